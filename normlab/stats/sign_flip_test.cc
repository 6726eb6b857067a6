#include "normlab/stats/sign_flip.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/paired_t.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

TEST(SignFlipTest, DarwinsMaizeIsExact) {
  const SignFlip result = SignFlipTest(reference::kDarwin);
  EXPECT_TRUE(result.exact);
  EXPECT_EQ(result.p_value, 1726.0 / 32768.0);
}

TEST(SignFlipTest, ObservedChoiceCountsAsExtreme) {
  // All five differences have one sign: only the observed choice and its mirror are as extreme.
  const SignFlip result = SignFlipTest(Differences(reference::kA, reference::kB));
  EXPECT_EQ(result.p_value, 0.0625);
  EXPECT_EQ(result.smallest_p, 0.0625);
}

TEST(SignFlipTest, TiesCountDespiteRounding) {
  // 0.1 + 0.2 - 0.3 and its mirror are both 0 in exact arithmetic, not in doubles. With the sign of 0.6
  // fixed, five of the eight sums reach 0.6.
  EXPECT_EQ(SignFlipTest(std::vector<double>{0.1, 0.2, -0.3, 0.6}).p_value, 0.625);
  EXPECT_EQ(SignFlipTest(std::vector<double>{-0.1, 0.2, 0.3}).p_value, 0.5);
}

TEST(SignFlipTest, EqualValuesAreAllAsExtreme) {
  // Every choice gives the sum 0, and 0 is as extreme as 0.
  EXPECT_EQ(SignFlipTest(std::vector<double>{0, 0, 0}).p_value, 1);
  EXPECT_EQ(SignFlipTest(std::vector<double>(30, 0.0)).p_value, 1);
}

TEST(SignFlipTest, SignOfTheDataDoesNotMatter) {
  std::vector<double> mirrored(reference::kDarwin.begin(), reference::kDarwin.end());
  for (double& value : mirrored) value = -value;
  EXPECT_EQ(SignFlipTest(mirrored).p_value, 1726.0 / 32768.0);
}

TEST(SignFlipTest, SamplingComesCloseToTheExactAnswer) {
  const SignFlip sampled =
      SignFlipTest(reference::kDarwin, {.max_exact_pairs = 10, .samples = 99'999, .seed = 3});
  EXPECT_FALSE(sampled.exact);
  EXPECT_EQ(sampled.smallest_p, 1.0 / 16384);
  // Standard error sqrt(p (1 - p) / 1e5) = 7.1e-4; four of them.
  EXPECT_NEAR(sampled.p_value, 1726.0 / 32768.0, 2.8e-3);
}

TEST(SignFlipTest, SampledPIsNeverZero) {
  const std::vector<double> same_sign(80, 1.0);
  const SignFlip result = SignFlipTest(same_sign);
  EXPECT_FALSE(result.exact);
  EXPECT_DOUBLE_EQ(result.p_value, 1e-5);
  EXPECT_DOUBLE_EQ(result.smallest_p, 1e-5);
}

TEST(SignFlipTest, SamplingFlipsEveryPairBeyond64) {
  // The first 64 differences cancel; the others all point one way, and only their flips can say so.
  std::vector<double> values;
  for (int i = 0; i < 32; ++i) values.insert(values.end(), {1e-3, -1e-3});
  for (int i = 0; i < 12; ++i) values.push_back(1);
  // 2 / 4096 for the twelve alone; four standard errors of 1e5 samples.
  EXPECT_NEAR(SignFlipTest(values).p_value, 2.0 / 4096, 2.8e-4);
}

TEST(SignFlipTest, SameSeedGivesTheSameP) {
  std::vector<double> values;
  for (int i = 0; i < 30; ++i) values.push_back(i % 7 - 2.5);
  EXPECT_EQ(SignFlipTest(values).p_value, SignFlipTest(values).p_value);
  EXPECT_NE(SignFlipTest(values).p_value, SignFlipTest(values, {.seed = 2}).p_value);
}

TEST(SignFlipTest, OnePairSaysNothing) { EXPECT_EQ(SignFlipTest(std::vector<double>{3}).p_value, 1); }

TEST(SignFlipTest, RefusesBrokenInput) {
  EXPECT_THROW(SignFlipTest(std::vector<double>{}), Error);
  EXPECT_THROW(SignFlipTest(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN()}), Error);
}

}  // namespace
}  // namespace normlab::stats
