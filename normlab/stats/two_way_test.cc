#include "normlab/stats/two_way.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"

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
