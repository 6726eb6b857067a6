#include "normlab/stats/descriptive.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "normlab/base/error.h"

namespace normlab::stats {
namespace {

using Values = std::vector<double>;

TEST(DescriptiveTest, MeanKeepsItsDigitsUnderALargeOffset) {
  const Values values = {1e15 + 1, 1e15 + 2, 1e15 + 4};
  EXPECT_DOUBLE_EQ(Mean(values) - 1e15, 2.375);  // 7/3 to the 1/8 that doubles hold there
}

TEST(DescriptiveTest, SdDividesByNMinusOne) {
  EXPECT_DOUBLE_EQ(SampleSd(Values{1, 2, 3, 4}), std::sqrt(5.0 / 3.0));
}

TEST(DescriptiveTest, SdOfEqualValuesIsExactlyZero) { EXPECT_EQ(SampleSd(Values{0.1, 0.1, 0.1}), 0.0); }

TEST(DescriptiveTest, QuantileIsType7) {
  const Values values = {4, 1, 3, 2};  // any order
  EXPECT_DOUBLE_EQ(Quantile(values, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(Median(values), 2.5);
  EXPECT_DOUBLE_EQ(Median(Values{5}), 5);
}

TEST(DescriptiveTest, RefusesWhatHasNoAnswer) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Mean(Values{}), Error);
  EXPECT_THROW(SampleSd(Values{1}), Error);
  EXPECT_THROW(Mean(Values{1, nan}), Error);
  EXPECT_THROW(Mean(Values{1, std::numeric_limits<double>::infinity()}), Error);
  EXPECT_THROW(Quantile(Values{1}, 1.5), Error);
  EXPECT_THROW(Quantile(Values{1}, nan), Error);
}

}  // namespace
}  // namespace normlab::stats
