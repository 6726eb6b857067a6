#include "normlab/stats/equivalence.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

PairedT Oracle() { return PairedTTest(Differences(reference::kA, reference::kB)); }

TEST(EquivalenceTest, WideMarginIsEquivalent) {
  const Equivalence result = TestEquivalence(Oracle(), 0.05, 0.05);
  EXPECT_TRUE(result.equivalent);
  EXPECT_NEAR(*result.p_value, 0.00051, 5e-6);
}

TEST(EquivalenceTest, NarrowMarginIsNot) {
  const Equivalence result = TestEquivalence(Oracle(), 0.02, 0.05);
  EXPECT_FALSE(result.equivalent);
  EXPECT_GT(*result.p_value, 0.05);
}

TEST(EquivalenceTest, IntervalHasLevelOneMinusTwoAlpha) {
  const Interval interval = *TestEquivalence(Oracle(), 0.05, 0.05).interval;
  EXPECT_NEAR(interval.low, 0.01002, 1e-5);
  EXPECT_NEAR(interval.high, 0.02598, 5e-6);
}

TEST(EquivalenceTest, A95PercentIntervalWouldBeTooStrict) {
  // The margin lies between the ends of the 90% and the 95% interval: equivalent at alpha = 0.05.
  EXPECT_TRUE(TestEquivalence(Oracle(), 0.027, 0.05).equivalent);
}

TEST(EquivalenceTest, IntervalAndPAgreeOnBothSidesOfTheEdge) {
  const PairedT test = Oracle();
  const double edge = TestEquivalence(test, 1, 0.05).interval->high;
  const Equivalence inside = TestEquivalence(test, edge * (1 + 1e-9), 0.05);
  const Equivalence outside = TestEquivalence(test, edge * (1 - 1e-9), 0.05);
  EXPECT_TRUE(inside.equivalent);
  EXPECT_LT(*inside.p_value, 0.05);
  EXPECT_FALSE(outside.equivalent);
  EXPECT_GT(*outside.p_value, 0.05);
}

TEST(EquivalenceTest, LowerSideCountsToo) {
  const std::vector<double> below = {-0.018, -0.02, -0.017, -0.021, -0.019};
  EXPECT_FALSE(TestEquivalence(PairedTTest(below), 0.01, 0.05).equivalent);
  EXPECT_TRUE(TestEquivalence(PairedTTest(below), 0.03, 0.05).equivalent);
}

TEST(EquivalenceTest, NoSpreadShowsNothing) {
  const Equivalence result = TestEquivalence(PairedTTest(std::vector<double>{0.1, 0.1, 0.1}), 1, 0.05);
  EXPECT_FALSE(result.equivalent);
  EXPECT_FALSE(result.interval);
  EXPECT_FALSE(result.p_value);
}

TEST(EquivalenceTest, AMarginOfZeroIsNeverEquivalent) {
  const Equivalence result = TestEquivalence(PairedTTest(std::vector<double>{1e-9, -1e-9, 0}), 0, 0.05);
  EXPECT_FALSE(result.equivalent);
  EXPECT_GE(*result.p_value, 0.5);
}

TEST(EquivalenceTest, RefusesBrokenInput) {
  EXPECT_THROW(TestEquivalence(Oracle(), -0.01, 0.05), Error);
  EXPECT_THROW(TestEquivalence(Oracle(), std::numeric_limits<double>::quiet_NaN(), 0.05), Error);
  EXPECT_THROW(TestEquivalence(Oracle(), 0.1, 0.5), Error);
}

}  // namespace
}  // namespace normlab::stats
