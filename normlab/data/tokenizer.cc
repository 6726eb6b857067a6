#include "normlab/data/tokenizer.h"

#include "normlab/base/error.h"
#include "normlab/base/hash.h"

namespace normlab {

std::string ByteTokenizer::hash() const { return HashHex("bytes: id = byte, 256 ids"); }

std::vector<int32_t> ByteTokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string ByteTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= kVocabSize)
      Fail("id {} at position {} is no byte; ids of the tokenizer \"bytes\" are 0 to {}", ids[i], i,
           kVocabSize - 1);
    text += static_cast<char>(static_cast<unsigned char>(ids[i]));
  }
  return text;
}

}  // namespace normlab
