#include "normlab/stats/two_way.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/paired_t.h"

namespace normlab::stats {
namespace {

TEST(TwoWayTest, MeanSquaresByHand) {
  // Seeds {1, 3}, blocks {-1, 0, 1}, no residual.
  const std::vector<double> values = {0, 1, 2, 2, 3, 4};
  const TwoWay result = TwoWayInterval(values, 2, 3, 0.05);
  EXPECT_DOUBLE_EQ(result.mean, 2);
  EXPECT_NEAR(result.ms_seed, 6, 1e-12);   // 3 (1 + 1) / 1
  EXPECT_NEAR(result.ms_block, 2, 1e-12);  // 2 (1 + 0 + 1) / 2
  EXPECT_NEAR(result.ms_residual, 0, 1e-12);
  EXPECT_NEAR(*result.variance, 8.0 / 6, 1e-12);
  EXPECT_NEAR(*result.df, 64.0 / (36 + 4.0 / 2), 1e-9);
}

TEST(TwoWayTest, ComponentsByHand) {
  // Seeds {1, 3} and blocks {-1, 0, 1} as above: one seed has variance 6 / 3, one block 2 / 2, nothing is
  // left.
  const TwoWay result = TwoWayInterval(std::vector<double>{0, 1, 2, 2, 3, 4}, 2, 3, 0.05);
  EXPECT_NEAR(result.var_seed, 2, 1e-12);
  EXPECT_NEAR(result.var_block, 1, 1e-12);
  EXPECT_NEAR(result.var_residual, 0, 1e-12);
  EXPECT_NEAR(*result.variance, result.var_seed / 2 + result.var_block / 3 + result.var_residual / 6, 1e-12);
}

TEST(TwoWayTest, TextThatAddsNoSpreadLeavesTheIntervalOfTheSeeds) {
  // Block means are equal, cells are not: MS_block = 0 < MS_rest. Seed means 1 and 3.
  const TwoWay result = TwoWayInterval(std::vector<double>{0, 2, 4, 2}, 2, 2, 0.05);
  EXPECT_NEAR(result.ms_block, 0, 1e-12);
  EXPECT_GT(result.ms_residual, 0);
  EXPECT_EQ(result.var_block, 0);
  EXPECT_EQ(result.df, 1);
  const Interval seeds = *MeanInterval(PairedTTest(std::vector<double>{1, 3}), 0.05);
  EXPECT_NEAR(result.interval->low, seeds.low, 1e-9);
  EXPECT_NEAR(result.interval->high, seeds.high, 1e-9);
}

TEST(TwoWayTest, DegreesOfFreedomNeverFallBelowOne) {
  // Seed means that agree by luck, blocks hardly above the rest: Satterthwaite's df would be 0.06.
  const std::vector<double> values = {-2, 1, 0.1, 1, 2, -1.9};
  const TwoWay result = TwoWayInterval(values, 2, 3, 1e-6);
  ASSERT_TRUE(result.df);
  EXPECT_EQ(*result.df, 1);
  EXPECT_LT(result.interval->low, result.mean);
}

TEST(TwoWayTest, EqualCellsHaveNoInterval) {
  const TwoWay result = TwoWayInterval(std::vector<double>{1, 1, 1, 1}, 2, 2, 0.05);
  EXPECT_EQ(result.mean, 1);
  EXPECT_FALSE(result.variance);
  EXPECT_FALSE(result.interval);
}

TEST(TwoWayTest, RefusesBrokenInput) {
  EXPECT_THROW(TwoWayInterval(std::vector<double>{1, 2, 3}, 2, 2, 0.05), Error);
  EXPECT_THROW(TwoWayInterval(std::vector<double>{1, 2}, 1, 2, 0.05), Error);
  EXPECT_THROW(
      TwoWayInterval(std::vector<double>{1, 2, 3, std::numeric_limits<double>::quiet_NaN()}, 2, 2, 0.05),
      Error);
}

}  // namespace
}  // namespace normlab::stats
