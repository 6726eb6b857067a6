#include "normlab/stats/first_moved.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/base/random.h"

namespace normlab::stats {
namespace {

// Signals with noise around levels of their own at steps 44 to 103; `change` alters one.
std::vector<SignalsOfStep> Log(const std::function<double(size_t, int64_t, double)>& change,
                               size_t signals = 4) {
  const RandomStream stream(1, "signals");
  std::vector<SignalsOfStep> log;
  for (int64_t step = 44; step <= 103; ++step) {
    SignalsOfStep& now = log.emplace_back();
    now.step = step;
    for (size_t s = 0; s < signals; ++s) {
      const double noise = stream.Normal(static_cast<uint64_t>(step) * signals + s);
      const double level = std::pow(10.0, static_cast<double>(s));
      now.values.push_back(change(s, step, level * (1 + 0.05 * noise)));
    }
  }
  return log;
}

// an update norm doubles at step 100, others follow, and the loss at step 103.
TEST(FirstMoved, TheSignalThatMovedFirstStandsFirst) {
  const std::vector<Move> moves = MovesBefore(Log([](size_t signal, int64_t step, double value) {
    if (signal == 2 && step >= 100) return 2 * value;
    if (signal == 0 && step >= 102) return 5 * value;
    if (signal == 3 && step == 103) return 3 * value;
    return value;
  }));
  ASSERT_EQ(moves.size(), 3u);
  EXPECT_EQ(moves[0].signal, 2u);
  EXPECT_EQ(moves[0].step, 100);
  EXPECT_NEAR(moves[0].ratio, 2, 0.3);
  EXPECT_EQ(moves[1].signal, 0u);
  EXPECT_EQ(moves[1].step, 102);
  EXPECT_EQ(moves[2].signal, 3u);
  EXPECT_EQ(moves[2].step, 103);
}

TEST(FirstMoved, AtOneStepTheLargestStandsFirst) {
  const std::vector<Move> moves = MovesBefore(Log([](size_t signal, int64_t step, double value) {
    return step == 101 ? value * (2 + static_cast<double>(signal)) : value;
  }));
  ASSERT_EQ(moves.size(), 4u);
  EXPECT_EQ(moves[0].signal, 3u);
  EXPECT_EQ(moves[3].signal, 0u);
}

TEST(FirstMoved, NoiseMovesNothing) {
  EXPECT_TRUE(MovesBefore(Log([](size_t, int64_t, double value) { return value; }, 200)).empty());
}

TEST(FirstMoved, WhatMovedLongBeforeIsLevel) {
  EXPECT_TRUE(MovesBefore(Log([](size_t signal, int64_t step, double value) {
                return signal == 1 && (step == 93 || step == 60) ? 4 * value : value;
              })).empty());
}

TEST(FirstMoved, WhatWasOverBeforeIsNoPartOfItAndAGapIs) {
  const auto moves = [](std::initializer_list<int64_t> off) {
    return MovesBefore(Log([off](size_t signal, int64_t step, double value) {
      return signal == 1 && std::ranges::count(off, step) > 0 ? 4 * value : value;
    }));
  };
  EXPECT_TRUE(moves({95, 96, 99}).empty());
  EXPECT_EQ(moves({100}).at(0).step, 100);
  EXPECT_EQ(moves({94, 97, 100}).at(0).step, 94);
  EXPECT_EQ(moves({93, 94, 98, 99, 101, 103}).at(0).step, 98);
}

TEST(FirstMoved, AValueThatIsNotFiniteMoved) {
  const std::vector<Move> moves = MovesBefore(Log(
      [](size_t signal, int64_t step, double value) { return signal == 1 && step == 101 ? NAN : value; }));
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].step, 101);
}

TEST(FirstMoved, TooFewStepsTellNothing) {
  std::vector<SignalsOfStep> log =
      Log([](size_t, int64_t step, double value) { return step == 103 ? 9 * value : value; });
  log.erase(log.begin(), log.end() - 19);  // nine steps of level
  EXPECT_TRUE(MovesBefore(log).empty());
  EXPECT_TRUE(MovesBefore({}).empty());
}

}  // namespace
}  // namespace normlab::stats
