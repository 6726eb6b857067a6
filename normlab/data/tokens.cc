#include "normlab/data/tokens.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <system_error>
#include <type_traits>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/hash.h"
#include "normlab/base/progress.h"
#include "normlab/data/tokenizer.h"

namespace normlab {
namespace {

// Ids are hashed as 32-bit little-endian numbers, so the same ids have the same hash wherever they are kept.
std::string HashIds(const TokenSource& tokens) {
  Hasher hasher;
  std::vector<int32_t> piece(1 << 16);
  for (int64_t begin = 0; begin < tokens.size(); begin += static_cast<int64_t>(piece.size())) {
    const auto count = std::min<int64_t>(static_cast<int64_t>(piece.size()), tokens.size() - begin);
    const std::span<int32_t> ids = std::span(piece).first(static_cast<size_t>(count));
    tokens.Copy(begin, ids);
    hasher.Update({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
  }
  return hasher.Hex();
}

// Ids in memory: bytes of text, or numbers.
template <class Elements>
class TokensInMemory final : public TokenSource {
 public:
  TokensInMemory(Elements elements, TokensInfo info)
      : elements_(std::move(elements)), info_(std::move(info)) {
    info_.data_hash = HashIds(*this);
  }
  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }
  const TokensInfo& info() const override { return info_; }
  void Copy(int64_t begin, std::span<int32_t> out) const override {
    NL_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= size());
    std::transform(elements_.begin() + begin, elements_.begin() + begin + static_cast<int64_t>(out.size()),
                   out.begin(), [](auto element) {
                     if constexpr (std::is_same_v<Elements, std::string>)
                       return static_cast<int32_t>(static_cast<uint8_t>(element));
                     else
                       return element;
                   });
  }

 private:
  Elements elements_;
  TokensInfo info_;
};

// Bytes of a text file. What is none is refused before it is opened: opening a pipe waits for its writer.
uint64_t TextFileSize(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status))
    Fail("\"{}\" is a folder; name the text files in it", path.string());
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    Fail(
        "\"{}\" is a device or a pipe, which cannot be read again when a study goes on; write the text into "
        "a "
        "file and name that",
        path.string());
  const auto size = std::filesystem::file_size(path, error);
  if (error)
    Fail("cannot read \"{}\": {}; check the path and the permissions", path.string(), error.message());
  return size;
}

// Reading several files holds one of them twice for a moment.
void RequireRoom(std::span<const uint64_t> sizes, std::optional<uint64_t> room_bytes) {
  if (!room_bytes) return;
  const double total = std::accumulate(sizes.begin(), sizes.end(), 0.0, [](double sum, uint64_t size) {
    return sum + static_cast<double>(size);
  });
  const double needed = total + (sizes.size() > 1 ? static_cast<double>(std::ranges::max(sizes)) : 0.0);
  if (needed <= static_cast<double>(*room_bytes)) return;
  Fail(
      "the data of {} does not fit into the {} of memory that are available: the text is kept in memory; "
      "name "
      "a part of it",
      FormatBytes(total), FormatBytes(static_cast<double>(*room_bytes)));
}

// For messages about token number `token` of the row.
std::string PlaceIn(std::span<const TokenFile> files, int64_t token) {
  const TokenFile* file = nullptr;
  for (const TokenFile& candidate : files)
    if (candidate.first_token <= token) file = &candidate;
  if (file == nullptr) return fmt::format("token {}", token);
  return fmt::format("\"{}\", token {}", file->path, token - file->first_token);
}

}  // namespace

std::string TokenSource::Place(int64_t token) const { return PlaceIn(info().files, token); }

std::shared_ptr<const TokenSource> ReadByteTokens(std::span<const std::filesystem::path> paths,
                                                  std::optional<uint64_t> room_bytes) {
  if (paths.empty()) Fail("no data: name at least one text file");
  const ByteTokenizer tokenizer;
  TokensInfo info{.tokenizer = tokenizer.name(),
                  .tokenizer_hash = tokenizer.hash(),
                  .vocab_size = tokenizer.vocab_size(),
                  .data_hash = {},
                  .files = {}};
  std::vector<uint64_t> sizes;
  for (const std::filesystem::path& path : paths) sizes.push_back(TextFileSize(path));
  RequireRoom(sizes, room_bytes);

  std::string all;
  std::map<std::string, std::string> path_of_hash;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::filesystem::path& path = paths[i];
    std::string text = ReadFile(path);
    if (text.size() != sizes[i])
      Fail("\"{}\" changed from {} to {} bytes while it was read; run again when nothing writes to it",
           path.string(), sizes[i], text.size());
    if (text.empty()) Fail("\"{}\" is empty; name a file with text", path.string());
    const auto [known, is_new] = path_of_hash.emplace(HashHex(text), path.string());
    if (!is_new)
      Fail(
          "\"{}\" holds the same text as \"{}\"; name it once, or the held-out part would repeat what "
          "training reads",
          path.string(), known->second);
    info.files.push_back(
        {path.string(), static_cast<int64_t>(text.size()), static_cast<int64_t>(all.size())});
    if (paths.size() == 1) {
      all = std::move(text);
    } else {
      if (i == 0) all.reserve(std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}));
      all += text;
    }
  }
  return std::make_shared<TokensInMemory<std::string>>(std::move(all), std::move(info));
}

std::shared_ptr<const TokenSource> TokensFromIds(std::vector<int32_t> ids, TokensInfo info) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= info.vocab_size)
      Fail(
          "{}: id {} is outside the vocabulary of {} ids (0 to {}); the data was made with another "
          "tokenizer, or is damaged",
          PlaceIn(info.files, static_cast<int64_t>(i)), ids[i], info.vocab_size, info.vocab_size - 1);
  return std::make_shared<TokensInMemory<std::vector<int32_t>>>(std::move(ids), std::move(info));
}

void CheckVocabulary(const TokenSource& tokens, int64_t model_vocab_size) {
  if (tokens.info().vocab_size <= model_vocab_size) return;
  std::vector<int32_t> piece(1 << 16);
  for (int64_t begin = 0; begin < tokens.size(); begin += static_cast<int64_t>(piece.size())) {
    const auto count = std::min<int64_t>(static_cast<int64_t>(piece.size()), tokens.size() - begin);
    tokens.Copy(begin, std::span(piece).first(static_cast<size_t>(count)));
    for (int64_t i = 0; i < count; ++i)
      if (piece[static_cast<size_t>(i)] >= model_vocab_size)
        Fail(
            "{}: id {} is outside the model's vocabulary of {} ids (0 to {}); set vocab_size to at least {}, "
            "the size of the "
            "tokenizer \"{}\"",
            tokens.Place(begin + i), piece[static_cast<size_t>(i)], model_vocab_size, model_vocab_size - 1,
            tokens.info().vocab_size, tokens.info().tokenizer);
  }
}

}  // namespace normlab
