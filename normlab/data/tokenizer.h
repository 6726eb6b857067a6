#pragma once
// Text to ids and back. A tokenizer has a name and a hash; checkpoints and runs record both, so that ids are
// never read with another tokenizer than the one that wrote them.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normlab {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;
  virtual std::string hash() const = 0;  // equal hashes: equal ids for every text
  virtual int64_t vocab_size() const = 0;
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;  // throws Error for an id out of range
};

// Every byte is a token: 256 ids, no training, any file, lossless.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int64_t kVocabSize = 256;
  std::string name() const override { return "bytes"; }
  std::string hash() const override;
  int64_t vocab_size() const override { return kVocabSize; }
  std::vector<int32_t> Encode(std::string_view text) const override;
  std::string Decode(std::span<const int32_t> ids) const override;
};

}  // namespace normlab
