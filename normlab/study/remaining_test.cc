#include "normlab/study/remaining.h"

#include <gtest/gtest.h>

namespace normlab {
namespace {

TEST(RemainingTest, KnowsNothingBeforeAnythingHasRun) {
  const RemainingTime time({1, 1});
  EXPECT_FALSE(time.Cell(0));
  EXPECT_FALSE(time.Total({{.variant = 0, .elapsed_s = 5}}, {1}));
  EXPECT_FALSE(time.Total({}, {1}));
  EXPECT_EQ(time.Total({}, {}), 0);
}

TEST(RemainingTest, TheRunningCellStandsForOthersUntilTheyAreKnown) {
  const RemainingTime time({1, 2});
  // 4 s gone, 6 s to go: a cell of variant 0 takes 10 s, one of variant 1 twice that.
  EXPECT_DOUBLE_EQ(*time.Total({{.variant = 0, .elapsed_s = 4, .remaining_s = 6}}, {1, 0}), 6 + 20 + 10);
}

TEST(RemainingTest, UsesTheMeanOfWhatAVariantTook) {
  RemainingTime time({1, 1});
  time.Add(0, 10);
  time.Add(0, 20);
  EXPECT_DOUBLE_EQ(*time.Cell(0), 15);
  EXPECT_DOUBLE_EQ(*time.Cell(1), 15);
  time.Add(1, 40);
  EXPECT_DOUBLE_EQ(*time.Cell(1), 40);
  EXPECT_DOUBLE_EQ(*time.Total({{.variant = 1, .elapsed_s = 10}}, {0}), 30 + 15);
  EXPECT_DOUBLE_EQ(*time.Total({{.variant = 1, .elapsed_s = 50}}, {}), 0);
}

TEST(RemainingTest, CellsAtTheSameTimeShareTheWait) {
  RemainingTime time({1, 1});
  time.Add(0, 10);
  time.Add(1, 4);
  const std::vector<RunningCell> running = {{.variant = 0, .elapsed_s = 2, .remaining_s = 8},
                                            {.variant = 1, .elapsed_s = 1, .remaining_s = 3}};
  // Places are free after 8 and 3 s; cells of 10, 4 and 10 s begin after 3, 8 and 12 s.
  EXPECT_DOUBLE_EQ(*time.Total(running, {0, 1, 0}, 2), 22);
  EXPECT_DOUBLE_EQ(*time.Total(running, {}, 2), 8);
  EXPECT_DOUBLE_EQ(*time.Total({running[0]}, {1}, 2), 8);  // a place is free now
}

TEST(RemainingTest, EveryRunningCellTellsOfItsVariant) {
  const RemainingTime time({1, 1});
  const std::vector<RunningCell> running = {{.variant = 0, .elapsed_s = 0, .remaining_s = 10},
                                            {.variant = 1, .elapsed_s = 0, .remaining_s = 4}};
  EXPECT_DOUBLE_EQ(*time.Total(running, {1, 0}, 2), 4 + 4 + 10);
}

}  // namespace
}  // namespace normlab
