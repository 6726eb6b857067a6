#include "normlab/train/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

namespace normlab {
namespace {

// T-08
TEST(Schedule, TheFirstRateIsAboveZeroAndTheWarmUpEndsAtTheFullRate) {
  const Schedule schedule{.learning_rate = 1, .min_learning_rate = 0, .warmup_steps = 4, .steps = 10};
  EXPECT_DOUBLE_EQ(schedule.At(0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.At(1), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(2), 0.75);
  EXPECT_DOUBLE_EQ(schedule.At(3), 1.0);
  EXPECT_DOUBLE_EQ(schedule.At(4), 1.0);
}

// T-10
TEST(Schedule, TheCosineStartsAtTheFullRateAndTheLastStepHasTheMinimum) {
  const Schedule schedule{.learning_rate = 1e-3, .min_learning_rate = 1e-5, .warmup_steps = 20, .steps = 100};
  EXPECT_DOUBLE_EQ(schedule.At(19), 1e-3);
  EXPECT_DOUBLE_EQ(schedule.At(20), 1e-3);
  EXPECT_LT(schedule.At(21), 1e-3);
  EXPECT_DOUBLE_EQ(schedule.At(99), 1e-5);
  EXPECT_DOUBLE_EQ(schedule.At(100), 1e-5);
  EXPECT_DOUBLE_EQ(schedule.At(100000), 1e-5);
  for (int step = 20; step < 99; ++step) EXPECT_GT(schedule.At(step), schedule.At(step + 1));
}

// T-09
TEST(Schedule, NoCombinationOfWarmUpAndLengthDividesByZero) {
  for (const auto& [warmup, steps] :
       {std::pair{0, 10}, {10, 10}, {11, 10}, {0, 1}, {1, 1}, {0, 0}, {1, 2}, {1, 3}}) {
    const Schedule schedule{
        .learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = warmup, .steps = steps};
    for (int step = 0; step < steps + 2; ++step) {
      EXPECT_TRUE(std::isfinite(schedule.At(step)));
      EXPECT_GT(schedule.At(step), 0);
      EXPECT_LE(schedule.At(step), 1);
    }
  }
}

}  // namespace
}  // namespace normlab
