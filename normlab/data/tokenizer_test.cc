#include "normlab/data/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;

TEST(ByteTokenizer, GivesEveryByteItsOwnId) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::vector<int32_t> ids = ByteTokenizer().Encode(all);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
}

RC_GTEST_PROP(ByteTokenizer, DecodingGivesTheTextBack, (const std::vector<uint8_t>& bytes)) {
  const std::string text(bytes.begin(), bytes.end());
  RC_ASSERT(ByteTokenizer().Decode(ByteTokenizer().Encode(text)) == text);
}

TEST(ByteTokenizer, RefusesIdsThatAreNoBytes) {
  const std::vector<int32_t> high = {65, 256}, negative = {-1};
  EXPECT_SAYS(ErrorOf([&] { ByteTokenizer().Decode(high); }), {"id 256 at position 1", "0 to 255"});
  EXPECT_THROW(ByteTokenizer().Decode(negative), Error);
}

TEST(ByteTokenizer, KeepsItsNameAndHash) {
  EXPECT_EQ(ByteTokenizer().name(), "bytes");
  EXPECT_EQ(ByteTokenizer().vocab_size(), 256);
  EXPECT_EQ(ByteTokenizer().hash(), ByteTokenizer().hash());
  EXPECT_EQ(ByteTokenizer().hash().size(), 32u);
}

}  // namespace
}  // namespace normlab
