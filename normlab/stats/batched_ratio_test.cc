#include "normlab/stats/batched_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "normlab/base/error.h"

namespace normlab::stats {
namespace {

TEST(BatchedRatioTest, IntervalOverTheMediansOfTheBatches) {
  // Medians 0.1, 0.2, 0.3; the outliers do not count. t(0.975, 2) = 4.30265.
  const std::vector<double> logs = {0.1, 9, 0.05, 0.2, -9, 0.25, 0.3, 0.3, 0.31};
  const BatchedRatio result = RatioOfBatches(logs, 3, 0.05);
  EXPECT_EQ(result.rounds_per_batch, 3u);
  EXPECT_NEAR(result.ratio, std::exp(0.2), 1e-12);
  EXPECT_NEAR(*result.half_width, 4.30265 * 0.1 / std::sqrt(3.0), 1e-6);
  EXPECT_NEAR(result.interval->low, std::exp(0.2 - *result.half_width), 1e-12);
  EXPECT_NEAR(result.interval->high, std::exp(0.2 + *result.half_width), 1e-12);
}

TEST(BatchedRatioTest, AutocorrelationOfTheRounds) {
  // Deviations -1, 1, -1, 1: products -1 three times over squares of 4.
  EXPECT_NEAR(*RatioOfBatches(std::vector<double>{1, 3, 1, 3}, 2, 0.05).lag_one_autocorrelation, -0.75,
              1e-12);
}

TEST(BatchedRatioTest, EqualRoundsHaveNoInterval) {
  const BatchedRatio result = RatioOfBatches(std::vector<double>{0.5, 0.5, 0.5, 0.5}, 2, 0.05);
  EXPECT_NEAR(result.ratio, std::exp(0.5), 1e-12);
  EXPECT_FALSE(result.interval);
  EXPECT_FALSE(result.lag_one_autocorrelation);
}

TEST(BatchedRatioTest, RoundsFollowThePilot) {
  // t(0.975, 19) = 2.09302: 7.5 (2.09302 0.04 / (sqrt(20) 0.01))^2 = 26.28.
  EXPECT_EQ(RoundsPerBatch({.pilot_sd = 0.04, .half_width = 0.01}), 27u);
  EXPECT_EQ(RoundsPerBatch({.pilot_sd = 0, .half_width = 0.01}), 5u);
  EXPECT_EQ(RoundsPerBatch({.pilot_sd = 1, .half_width = 0.01}), 64u);
}

TEST(BatchedRatioTest, RefusesBrokenInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(RatioOfBatches(std::vector<double>{1, 2, 3}, 2, 0.05), Error);
  EXPECT_THROW(RatioOfBatches(std::vector<double>{1, 2}, 1, 0.05), Error);
  EXPECT_THROW(RatioOfBatches(std::vector<double>{1, nan}, 2, 0.05), Error);
  EXPECT_THROW(RoundsPerBatch({.pilot_sd = nan, .half_width = 0.01}), Error);
  EXPECT_THROW(RoundsPerBatch({.pilot_sd = 0.1, .half_width = 0}), Error);
}

}  // namespace
}  // namespace normlab::stats
