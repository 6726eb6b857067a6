#include "normlab/study/remaining.h"

#include <gtest/gtest.h>

namespace normlab {
namespace {

TEST(RemainingTest, KnowsNothingBeforeAnythingHasRun) {
  const RemainingTime time({1, 1});
  EXPECT_FALSE(time.Cell(0));
  EXPECT_FALSE(time.Total(0, 5, std::nullopt, {1}));
}

TEST(RemainingTest, TheRunningCellStandsForOthersUntilTheyAreKnown) {
  const RemainingTime time({1, 2});
  // 4 s gone, 6 s to go: a cell of variant 0 takes 10 s, one of variant 1 twice that.
  EXPECT_DOUBLE_EQ(*time.Total(0, 4, 6, {1, 0}), 6 + 20 + 10);
}

TEST(RemainingTest, UsesTheMeanOfWhatAVariantTook) {
  RemainingTime time({1, 1});
  time.Add(0, 10);
  time.Add(0, 20);
  EXPECT_DOUBLE_EQ(*time.Cell(0), 15);
  EXPECT_DOUBLE_EQ(*time.Cell(1), 15);
  time.Add(1, 40);
  EXPECT_DOUBLE_EQ(*time.Cell(1), 40);
  EXPECT_DOUBLE_EQ(*time.Total(1, 10, std::nullopt, {0}), 30 + 15);
  EXPECT_DOUBLE_EQ(*time.Total(1, 50, std::nullopt, {}), 0);
}

}  // namespace
}  // namespace normlab
