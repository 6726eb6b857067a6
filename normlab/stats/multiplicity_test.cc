#include "normlab/stats/multiplicity.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"

namespace normlab::stats {
namespace {

TEST(MultiplicityTest, HolmKeepsTheOrderGiven) {
  const std::vector<double> adjusted = HolmAdjust(std::vector<double>{0.01, 0.04, 0.03, 0.005});
  const std::vector<double> expected = {0.03, 0.06, 0.06, 0.02};
  ASSERT_EQ(adjusted.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 1e-15) << i;
}

TEST(MultiplicityTest, HolmStopsAtOne) {
  EXPECT_EQ(HolmAdjust(std::vector<double>{0.6, 0.7}), (std::vector<double>{1, 1}));
  EXPECT_TRUE(HolmAdjust(std::vector<double>{}).empty());
}

TEST(MultiplicityTest, AlphaIsSharedOverVariantsAndLooks) {
  EXPECT_DOUBLE_EQ(AlphaPerVerdict(0.05, 4, 2), 0.00625);
  EXPECT_DOUBLE_EQ(AlphaPerVerdict(0.05, 1, 1), 0.05);
}

TEST(MultiplicityTest, RefusesBrokenInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(HolmAdjust(std::vector<double>{nan}), Error);
  EXPECT_THROW(HolmAdjust(std::vector<double>{1.1}), Error);
  EXPECT_THROW(AlphaPerVerdict(nan, 1, 1), Error);
  EXPECT_THROW(AlphaPerVerdict(0.05, 0, 1), Error);
  EXPECT_THROW(AlphaPerVerdict(0.05, 1, 0), Error);
}

}  // namespace
}  // namespace normlab::stats
