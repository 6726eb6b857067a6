#include "normlab/stats/power.h"

#include <gtest/gtest.h>

#include <boost/math/distributions/non_central_t.hpp>
#include <cmath>
#include <limits>

#include "normlab/base/error.h"
#include "normlab/stats/paired_t.h"

namespace normlab::stats {
namespace {

TEST(PowerTest, ReferenceStudyOf34) {
  EXPECT_NEAR(PairedTPower({.n = 34, .effect = 0.5, .alpha = 0.05}), 0.80778, 5e-6);
}

TEST(PowerTest, AgreesWithTheNoncentralT) {
  for (std::size_t n : {2, 3, 5, 8, 20, 200}) {
    for (double effect : {0.1, 0.7, 1.5, 3.0}) {
      for (double alpha : {0.05, 0.00625}) {
        const double df = static_cast<double>(n - 1);
        const double critical = StudentCritical(alpha / 2, df);
        const boost::math::non_central_t t(df, effect * std::sqrt(static_cast<double>(n)));
        const double expected =
            boost::math::cdf(boost::math::complement(t, critical)) + boost::math::cdf(t, -critical);
        EXPECT_NEAR(PairedTPower({.n = n, .effect = effect, .alpha = alpha}), expected, 1e-9)
            << "n " << n << " effect " << effect << " alpha " << alpha;
      }
    }
  }
}

TEST(PowerTest, WithoutEffectPowerIsAlpha) {
  for (std::size_t n : {2, 3, 5, 50, 10'000}) {
    EXPECT_NEAR(PairedTPower({.n = n, .effect = 0, .alpha = 0.0125}), 0.0125, 1e-10) << n;
  }
}

TEST(PowerTest, FiniteWhereNoncentralityIsHuge) {
  EXPECT_NEAR(PairedTPower({.n = 500'000, .effect = 1, .alpha = 0.05}), 1, 1e-12);
  EXPECT_NEAR(PairedTPower({.n = 5, .effect = 1e8, .alpha = 0.05}), 1, 1e-12);
}

TEST(PowerTest, EquivalenceAtTheMarginIsNeverShownMoreOftenThanAlpha) {
  for (std::size_t n : {3, 5, 20, 200}) {
    const double power = EquivalencePower({.n = n, .effect = 2, .margin = 2, .alpha = 0.05});
    EXPECT_LE(power, 0.05 + 1e-12) << n;
    EXPECT_GT(power, 0) << n;
  }
  EXPECT_NEAR(EquivalencePower({.n = 200, .effect = 2, .margin = 2, .alpha = 0.05}), 0.05, 1e-9);
}

TEST(PowerTest, SmallestDetectableInStandardDeviations) {
  // 3.3 / 1.7 / 1.2 / 0.66 to the digits given.
  EXPECT_NEAR(SmallestDetectable(3, 1, 0.05), 3.3, 0.05);
  EXPECT_NEAR(SmallestDetectable(5, 1, 0.05), 1.7, 0.05);
  EXPECT_NEAR(SmallestDetectable(8, 1, 0.05), 1.2, 0.05);
  EXPECT_NEAR(SmallestDetectable(20, 1, 0.05), 0.66, 0.005);
}

TEST(PowerTest, SmallestDetectableHasThePowerAskedFor) {
  const double effect = SmallestDetectable(6, 2, 0.0125, 0.9) / 2;
  EXPECT_NEAR(PairedTPower({.n = 6, .effect = effect, .alpha = 0.0125}), 0.9, 1e-6);
}

TEST(PowerTest, PlansAreTheLeastThatReachThePower) {
  for (double ratio : {0.05, 0.2, 0.5, 1.0, 3.0, 40.0}) {
    for (double alpha : {0.05, 0.00625}) {
      const auto difference = static_cast<std::size_t>(*SeedsForDifference(ratio, alpha));
      EXPECT_GE(PairedTPower({.n = difference, .effect = ratio, .alpha = alpha}), 0.8) << ratio;
      const auto equivalence = static_cast<std::size_t>(*SeedsForEquivalence(ratio, alpha));
      EXPECT_GE(EquivalencePower({.n = equivalence, .effect = 0, .margin = ratio, .alpha = alpha}), 0.8)
          << ratio;
      if (difference > 3) {
        EXPECT_LT(PairedTPower({.n = difference - 1, .effect = ratio, .alpha = alpha}), 0.8) << ratio;
      }
      if (equivalence > 3) {
        EXPECT_LT(EquivalencePower({.n = equivalence - 1, .effect = 0, .margin = ratio, .alpha = alpha}), 0.8)
            << ratio;
      }
    }
  }
  EXPECT_EQ(SeedsForDifference(0.5, 0.05), 34);
}

TEST(PowerTest, PlanTakesTheLargerQuestionAndTheRangeOfSigma) {
  const SeedPlan plan = SeedsNeeded({.sd = 0.02, .n = 5, .margin = 0.01, .alpha = 0.05, .power = 0.8});
  EXPECT_EQ(plan.seeds, std::max(*SeedsForDifference(0.5, 0.05), *SeedsForEquivalence(0.5, 0.05)));
  EXPECT_GT(plan.seeds, *SeedsForDifference(0.5, 0.05));  // equivalence asks for more here
  // chi2 quantiles with 4 degrees of freedom: 7.77944 (0.9), 1.06362 (0.1).
  const double low = 0.5 / std::sqrt(4 / 7.77944);
  const double high = 0.5 / std::sqrt(4 / 1.06362);
  EXPECT_EQ(plan.low, std::max(*SeedsForDifference(low, 0.05), *SeedsForEquivalence(low, 0.05)));
  EXPECT_EQ(plan.high, std::max(*SeedsForDifference(high, 0.05), *SeedsForEquivalence(high, 0.05)));
}

TEST(PowerTest, PlanBeyondAMillionIsEmpty) {
  EXPECT_FALSE(SeedsForDifference(1e-4, 0.05));
  EXPECT_FALSE(SeedsForEquivalence(1e-9, 0.05));
  EXPECT_TRUE(SeedsForDifference(0.003, 0.05));
}

TEST(PowerTest, RefusesBrokenInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(PairedTPower({.n = 1, .effect = 1}), Error);
  EXPECT_THROW(PairedTPower({.n = 5, .effect = nan}), Error);
  EXPECT_THROW(EquivalencePower({.n = 5, .effect = 0, .margin = 0}), Error);
  EXPECT_THROW(SeedsNeeded({.sd = 0, .n = 5, .margin = 1}), Error);
  EXPECT_THROW(SeedsNeeded({.sd = nan, .n = 5, .margin = 1}), Error);
  EXPECT_THROW(SmallestDetectable(5, 1, 0.05, 0.01), Error);
}

}  // namespace
}  // namespace normlab::stats
