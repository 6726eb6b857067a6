#include "normlab/base/nearest.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace normlab {
namespace {

const std::vector<std::string> kNorms = {"layernorm", "rmsnorm", "fused_rmsnorm", "no_norm"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(Nearest("rmsnrm", kNorms), "rmsnorm");        // a letter missing
  EXPECT_EQ(Nearest("layernnorm", kNorms), "layernorm");  // one too many
  EXPECT_EQ(Nearest("rnsnorm", kNorms), "rmsnorm");       // another one
  EXPECT_EQ(Nearest("alyernorm", kNorms), "layernorm");   // neighbours swapped
  EXPECT_EQ(Nearest("no_norm", kNorms), "no_norm");
}

TEST(Nearest, ASwapOfNeighboursCountsOnce) {
  // "ab" -> "ba" is one step, so it wins over the two steps to "xy".
  EXPECT_EQ(Nearest("ab", std::vector<std::string>{"xy", "ba"}), "ba");
}

TEST(Nearest, ProposesNothingFarAway) {
  EXPECT_EQ(Nearest("batch_size_of_data", kNorms), std::nullopt);
  EXPECT_EQ(Nearest("zzzzzz", kNorms), std::nullopt);
  EXPECT_EQ(Nearest("x", std::vector<std::string>{}), std::nullopt);
}

TEST(UnknownName, ProposesAndListsWhatIsKnown) {
  EXPECT_EQ(UnknownName("rmsnrm", kNorms),
            "\"rmsnrm\"; did you mean \"rmsnorm\"? known: layernorm, rmsnorm, fused_rmsnorm, no_norm");
  EXPECT_EQ(UnknownName("zzzzzz", kNorms), "\"zzzzzz\"; known: layernorm, rmsnorm, fused_rmsnorm, no_norm");
}

RC_GTEST_PROP(Nearest, ANameOneLetterOffIsFound, ()) {
  const auto letters = rc::gen::inRange('a', 'z');
  const auto name = *rc::gen::container<std::string>(8, letters);
  const auto place = *rc::gen::inRange<size_t>(0, name.size());
  std::string typed = name;
  typed.erase(place, 1);
  RC_ASSERT(Nearest(typed, std::vector<std::string>{"0123456789012345", name}) == name);
}

}  // namespace
}  // namespace normlab
