#pragma once
// A long row of token ids, wherever it is kept. TokenSource is the one interface that sampling and training
// see; text read as bytes is the first implementation, shards of packed ids can follow. All functions are
// const and may be called from several threads.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normlab {

// One file's share of the row.
struct TokenFile {
  std::string path;
  int64_t bytes = 0;
  int64_t first_token = 0;
};

struct TokensInfo {
  std::string tokenizer;  // "bytes"
  std::string tokenizer_hash;
  int64_t vocab_size = 0;  // every id is below it
  std::string data_hash;   // of the ids' bytes in order, whatever files they came from
  std::vector<TokenFile> files;
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;
  virtual const TokensInfo& info() const = 0;
  // Ids begin .. begin + out.size() - 1; the range lies inside the row.
  virtual void Copy(int64_t begin, std::span<int32_t> out) const = 0;

  // "book.txt, token 5120" for messages.
  std::string Place(int64_t token) const;
};

// Text files as byte tokens, joined in the order given with nothing between them. The text is kept in memory:
// a file that changes later changes nothing here. Throws Error for a missing or empty file, a folder, a
// device or pipe (which has no end, or cannot be read again when a study goes on), a file that changes while
// it is read, one given twice (its text would stand in the training and in the held-out part), and before
// anything is read for files that together do not fit into `room_bytes`.
std::shared_ptr<const TokenSource> ReadByteTokens(std::span<const std::filesystem::path> paths,
                                                  std::optional<uint64_t> room_bytes = {});

// Ids in memory. Throws Error for an id outside [0, vocab_size), with its position.
std::shared_ptr<const TokenSource> TokensFromIds(std::vector<int32_t> ids, TokensInfo info);

// Throws Error that names file, position, id and vocabulary where the row holds an id that a model with
// `model_vocab_size` has no embedding for. Reads the row only if it may.
void CheckVocabulary(const TokenSource& tokens, int64_t model_vocab_size);

}  // namespace normlab
