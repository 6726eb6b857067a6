#include "normlab/stats/proportion.h"

#include <gtest/gtest.h>

#include <limits>

#include "normlab/base/error.h"

namespace normlab::stats {
namespace {

TEST(ProportionTest, AllOfFive) {
  const Interval interval = ClopperPearson({5, 5}, 0.05);
  EXPECT_NEAR(interval.low, 0.478, 5e-4);
  EXPECT_EQ(interval.high, 1);
}

TEST(ProportionTest, NoneIsTheMirrorOfAll) {
  const Interval interval = ClopperPearson({0, 5}, 0.05);
  EXPECT_EQ(interval.low, 0);
  EXPECT_NEAR(interval.high, 1 - 0.478, 5e-4);
}

TEST(ProportionTest, FisherOfAllAgainstNone) {
  EXPECT_NEAR(FisherExact({5, 5}, {0, 5}), 0.00794, 5e-6);
  EXPECT_NEAR(FisherExact({0, 5}, {5, 5}), 0.00794, 5e-6);
}

TEST(ProportionTest, EqualRatesGiveOne) {
  EXPECT_DOUBLE_EQ(FisherExact({3, 7}, {3, 7}), 1);
  EXPECT_DOUBLE_EQ(FisherExact({0, 4}, {0, 9}), 1);
  EXPECT_DOUBLE_EQ(FisherExact({4, 4}, {9, 9}), 1);
}

TEST(ProportionTest, RefusesBrokenInput) {
  EXPECT_THROW(ClopperPearson({0, 0}, 0.05), Error);
  EXPECT_THROW(ClopperPearson({3, 2}, 0.05), Error);
  EXPECT_THROW(ClopperPearson({1, 2}, std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_THROW(FisherExact({1, 2}, {3, 2}), Error);
}

}  // namespace
}  // namespace normlab::stats
