#include "normlab/stats/bootstrap.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

TEST(BootstrapTest, DarwinsMaize) {
  // Two runs of 1e6 resamples elsewhere give about [-1.7, 36.2]; the spread of an end point here, with 1e5
  // resamples, is 0.012 standard errors of the mean (9.75): 0.12. Four of them and the half digit of the
  // reference.
  const Interval interval = *BcaInterval(reference::kDarwin, {.resamples = 100'000});
  EXPECT_NEAR(interval.low, -1.7, 0.55);
  EXPECT_NEAR(interval.high, 36.2, 0.55);
}

TEST(BootstrapTest, SkewMovesBothEnds) {
  // The two low plants pull the mean down; the corrected interval reaches further on their side than t does.
  const Interval interval = *BcaInterval(reference::kDarwin);
  const double mean = 314.0 / 15;
  EXPECT_GT(mean - interval.low, interval.high - mean);
}

TEST(BootstrapTest, SameSeedGivesTheSameInterval) {
  const Interval first = *BcaInterval(reference::kDarwin);
  const Interval second = *BcaInterval(reference::kDarwin);
  const Interval other = *BcaInterval(reference::kDarwin, {.seed = 2});
  EXPECT_EQ(first.low, second.low);
  EXPECT_EQ(first.high, second.high);
  EXPECT_NE(first.low, other.low);
}

TEST(BootstrapTest, EqualValuesHaveNoInterval) {
  EXPECT_FALSE(BcaInterval(std::vector<double>{0.1, 0.1, 0.1}));
}

TEST(BootstrapTest, RefusesBrokenInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(BcaInterval(std::vector<double>{1}), Error);
  EXPECT_THROW(BcaInterval(std::vector<double>{1, nan}), Error);
  EXPECT_THROW(BcaInterval(reference::kDarwin, {.alpha = nan}), Error);
  EXPECT_THROW(BcaInterval(reference::kDarwin, {.resamples = 99}), Error);
}

}  // namespace
}  // namespace normlab::stats
