#include "normlab/base/hash.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace normlab {
namespace {

TEST(Hash, IsXxh3With128Bits) {
  // The value of the empty input that xxHash documents for seed 0.
  EXPECT_EQ(HashHex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(HashHex("a").size(), 32u);
  EXPECT_NE(HashHex("a"), HashHex("b"));
}

RC_GTEST_PROP(Hash, DoesNotDependOnTheCuts, (const std::vector<std::string>& pieces)) {
  Hasher hasher;
  std::string whole;
  for (const std::string& piece : pieces) {
    hasher.Update(piece);
    whole += piece;
    RC_ASSERT(hasher.Hex() == HashHex(whole));  // asking does not disturb it
  }
}

}  // namespace
}  // namespace normlab
