#include "normlab/stats/paired_t.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/effect_size.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

using reference::kA;
using reference::kB;
using reference::kDarwin;

// Tolerances are half a unit of the last digit that the reference values are given with.

TEST(PairedTTest, DarwinsMaize) {
  const PairedT test = PairedTTest(kDarwin);
  EXPECT_NEAR(*test.t, 2.14799, 5e-6);
  EXPECT_NEAR(*test.p_value, 0.049703, 5e-7);
  EXPECT_EQ(test.df, 14);
  const Interval interval = *MeanInterval(test, 0.05);
  EXPECT_NEAR(interval.low, 0.0312, 5e-5);
  EXPECT_NEAR(interval.high, 41.835, 5e-4);
}

// S-01.
TEST(PairedTTest, PairingFindsWhatTheSpreadOfSeedsHides) {
  const PairedT test = PairedTTest(Differences(kA, kB));
  EXPECT_NEAR(test.mean, 0.018, 1e-12);
  EXPECT_NEAR(test.sd, 0.0083666, 5e-8);
  EXPECT_NEAR(*test.t, 4.8107, 5e-5);
  EXPECT_NEAR(*test.p_value, 0.00858, 5e-6);
  const Interval wide = *MeanInterval(test, 0.05);
  EXPECT_NEAR(wide.low, 0.00761, 5e-6);
  EXPECT_NEAR(wide.high, 0.02839, 5e-6);
  const Interval narrow = *MeanInterval(test, 0.10);
  EXPECT_NEAR(narrow.low, 0.01002, 1e-5);
  EXPECT_NEAR(narrow.high, 0.02598, 5e-6);

  // Unpaired (Welch) the same ten numbers show nothing: t = 1.006, and p = 0.34 where 2.3 would be needed.
  const double standard_error = std::sqrt((std::pow(SampleSd(kA), 2) + std::pow(SampleSd(kB), 2)) / 5);
  EXPECT_NEAR((Mean(kA) - Mean(kB)) / standard_error, 1.006, 5e-4);
}

TEST(PairedTTest, EachOneSidedBoundHasTheLevelAlone) {
  const PairedT test = PairedTTest(kDarwin);
  const Interval bounds = *OneSidedBounds(test, 0.05);
  // 1.7613 is exceeded by Student's t with 14 degrees of freedom in 5%.
  EXPECT_NEAR(bounds.low, test.mean - 1.76131 * test.standard_error, 1e-4);
  EXPECT_NEAR(bounds.high, test.mean + 1.76131 * test.standard_error, 1e-4);
  EXPECT_DOUBLE_EQ(bounds.low, MeanInterval(test, 0.1)->low);
  EXPECT_FALSE(OneSidedBounds(PairedTTest(std::vector<double>{1, 1}), 0.05));
  EXPECT_THROW(OneSidedBounds(test, 0.5), Error);
  EXPECT_THROW(OneSidedBounds(test, std::numeric_limits<double>::quiet_NaN()), Error);
}

TEST(PairedTTest, DifferenceIsVariantMinusBaseline) {
  EXPECT_EQ(Differences(std::vector<double>{3}, std::vector<double>{1}), (std::vector<double>{2}));
}

TEST(PairedTTest, NoSpreadGivesNoTestAndNoInterval) {
  const PairedT test = PairedTTest(std::vector<double>{0.5, 0.5, 0.5});
  EXPECT_EQ(test.sd, 0);
  EXPECT_FALSE(test.t);
  EXPECT_FALSE(test.p_value);
  EXPECT_FALSE(MeanInterval(test, 0.05));
  EXPECT_FALSE(HedgesGz(test));
}

TEST(PairedTTest, HedgesGOfDarwinsMaize) { EXPECT_NEAR(*HedgesGz(PairedTTest(kDarwin)), 0.52426, 5e-6); }

TEST(PairedTTest, HedgesGNeedsThreePairs) { EXPECT_FALSE(HedgesGz(PairedTTest(std::vector<double>{1, 2}))); }

TEST(PairedTTest, RefusesBrokenInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(PairedTTest(std::vector<double>{1}), Error);
  EXPECT_THROW(PairedTTest(std::vector<double>{1, nan, 2}), Error);
  EXPECT_THROW(Differences(std::vector<double>{1, 2}, std::vector<double>{1}), Error);
  EXPECT_THROW(MeanInterval(PairedTTest(kDarwin), nan), Error);
  EXPECT_THROW(MeanInterval(PairedTTest(kDarwin), 0), Error);
}

TEST(IntervalTest, NanSupportsNoClaim) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Interval broken{nan, nan};
  EXPECT_FALSE(broken.Excludes(0));
  EXPECT_FALSE(broken.Holds(0));
  EXPECT_FALSE(broken.Within(1));
  EXPECT_FALSE((Interval{-1, 0.5}.Within(1)));  // touching is not inside
}

}  // namespace
}  // namespace normlab::stats
