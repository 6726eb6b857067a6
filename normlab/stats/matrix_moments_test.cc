#include "normlab/stats/matrix_moments.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/random.h"

namespace normlab::stats {
namespace {

std::vector<double> Normal(size_t count, double mean = 0) {
  const RandomStream stream(1, "normal");
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = mean + stream.Normal(i);
  return values;
}

// The sample's own spread is sqrt(24 / n) = 0.005.
TEST(MatrixMoments, TheKurtosisOfNormalNumbersIsThreeAndNotZero) {
  const MatrixMoments moments = MomentsOf(Normal(1'000'000), 1000);
  EXPECT_NEAR(*moments.kurtosis, 3.00, 0.02);
  EXPECT_NEAR(moments.rms, 1, 0.005);
  EXPECT_NEAR(*moments.mean_share, 0.001, 0.0002);  // 1 / columns
  EXPECT_LT(*moments.outlier_ratio, 6);
  EXPECT_FALSE(moments.outlier_channel.has_value());
}

TEST(MatrixMoments, TheKurtosisIsTakenAboutTheMean) {
  EXPECT_NEAR(*MomentsOf(Normal(100'000, 1e6), 100).kurtosis, *MomentsOf(Normal(100'000), 100).kurtosis,
              1e-6);
}

// Two values of equal weight have the least kurtosis that there is, 1.
TEST(MatrixMoments, KnownValues) {
  const MatrixMoments moments = MomentsOf(std::vector<double>{1, 5, 5, 1, -1, 7, 7, -1}, 4);
  EXPECT_DOUBLE_EQ(moments.max, 7);
  EXPECT_DOUBLE_EQ(moments.rms, std::sqrt(152.0 / 8));
  EXPECT_DOUBLE_EQ(*moments.kurtosis, (4 * 16.0 + 4 * 256.0) / 8 / (10.0 * 10));
  EXPECT_DOUBLE_EQ(*moments.mean_share, (9.0 / 13 + 9.0 / 25) / 2);
  EXPECT_DOUBLE_EQ(*MomentsOf(std::vector<double>{1, 5, 5, 1}, 2).kurtosis, 1);
}

// in a row alone, and in one row of many.
TEST(MatrixMoments, AnOutlierIsFlaggedWithItsChannel) {
  for (const size_t rows : {size_t{1}, size_t{1000}}) {
    std::vector<double> values = Normal(rows * 128);
    values[rows / 2 * 128 + 17] = -100;
    const MatrixMoments moments = MomentsOf(values, 128);
    ASSERT_TRUE(moments.outlier_channel.has_value()) << rows;
    EXPECT_EQ(*moments.outlier_channel, 17);
    EXPECT_NEAR(*moments.outlier_ratio, 100, rows == 1 ? 60 : 5);
    EXPECT_EQ(moments.max, 100);
    EXPECT_GT(*moments.kurtosis, 50);
  }
}

TEST(MatrixMoments, TheMeanShareIsWhatCentringRemoves) {
  std::vector<double> values = Normal(64 * 32, 0.5);
  const double share = *MomentsOf(values, 32).mean_share;
  double removed = 0;
  for (size_t r = 0; r < 64; ++r) {
    double sum = 0, before = 0, after = 0;
    for (size_t c = 0; c < 32; ++c) sum += values[r * 32 + c];
    for (size_t c = 0; c < 32; ++c) {
      before += values[r * 32 + c] * values[r * 32 + c];
      after += std::pow(values[r * 32 + c] - sum / 32, 2);
    }
    removed += (before - after) / before / 64;
  }
  EXPECT_NEAR(share, removed, 1e-12);
}

TEST(MatrixMoments, WhatDoesNotExistIsNothing) {
  const MatrixMoments zeros = MomentsOf(std::vector<double>(12), 4);
  EXPECT_EQ(zeros.rms, 0);
  EXPECT_FALSE(zeros.kurtosis || zeros.mean_share || zeros.outlier_ratio || zeros.outlier_channel);
  const MatrixMoments equal = MomentsOf(std::vector<double>(12, 0.1), 4);
  EXPECT_FALSE(equal.kurtosis.has_value());
  EXPECT_DOUBLE_EQ(*equal.mean_share, 1);
  // A row of zeros has no share, and takes none from the others.
  EXPECT_DOUBLE_EQ(*MomentsOf(std::vector<double>{0, 0, 1, 1}, 2).mean_share, 1);
}

TEST(MatrixMoments, AValueThatIsNotFiniteShows) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::vector<double> values = Normal(640);
    values[300] = bad;
    const MatrixMoments moments = MomentsOf(values, 10);
    EXPECT_FALSE(std::isfinite(moments.rms));
    EXPECT_FALSE(std::isfinite(moments.max));
  }
}

TEST(MatrixMoments, AnyNumberOfThreadsGivesTheSameBits) {
  const std::vector<double> values = Normal(1000 * 33);
  const MatrixMoments one = MomentsOf(values, 33, 1);
  for (const int threads : {2, 3, 5}) {
    const MatrixMoments many = MomentsOf(values, 33, threads);
    EXPECT_EQ(one.rms, many.rms);
    EXPECT_EQ(one.kurtosis, many.kurtosis);
    EXPECT_EQ(one.mean_share, many.mean_share);
    EXPECT_EQ(one.outlier_ratio, many.outlier_ratio);
  }
}

TEST(MatrixMoments, RefusesWhatAreNoRows) {
  EXPECT_THROW(MomentsOf({}, 4), Error);
  EXPECT_THROW(MomentsOf(std::vector<double>(10), 4), Error);
}

}  // namespace
}  // namespace normlab::stats
