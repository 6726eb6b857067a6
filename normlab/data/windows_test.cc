#include "normlab/data/windows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;

// Token i of the row is i.
std::shared_ptr<const TokenSource> Counting(int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return TokensFromIds(std::move(ids), {.tokenizer = "test",
                                        .tokenizer_hash = {},
                                        .vocab_size = std::max<int64_t>(n, 1),
                                        .data_hash = {},
                                        .files = {{"file", n, 0}}});
}

// A split whose whole row is for training.
Split TrainOn(int64_t n, int64_t window) {
  Split split;
  split.train = {0, n};
  split.held_out = {n, n};
  split.window = window;
  return split;
}

std::vector<int64_t> StartsOfEpoch(BatchSampler& sampler, int64_t epoch, int64_t windows) {
  std::vector<int64_t> starts;
  for (int64_t i = epoch * windows; i < (epoch + 1) * windows; ++i)
    starts.push_back(sampler.Start(i / sampler.batch(), i % sampler.batch()));
  return starts;
}

TEST(WindowsIn, CountsTheTargetOfTheLastInput) {
  EXPECT_EQ(WindowsIn({0, 100}, 8), 12);
  EXPECT_EQ(WindowsIn({0, 2 * 8 * 4 + 1}, 8), 8);
  EXPECT_EQ(WindowsIn({0, 2 * 8 * 4}, 8), 7);
  EXPECT_EQ(WindowsIn({5, 14}, 8), 1);
  EXPECT_EQ(WindowsIn({5, 13}, 8), 0);
  EXPECT_EQ(WindowsIn({5, 5}, 8), 0);
}

TEST(SplitTokens, HoldsOutTheLastTenth) {
  const Split split = SplitTokens(*Counting(1003), {.window = 16, .batch = 4});
  EXPECT_EQ(split.train, (TokenRange{0, 903}));
  EXPECT_EQ(split.held_out, (TokenRange{903, 1003}));
  EXPECT_EQ(split.train_windows(), 56);
}

TEST(SplitTokens, SpacesTheHeldOutWindowsEvenlyOverTheWholePart) {
  const auto tokens = Counting(100000);
  const Split split = SplitTokens(*tokens, {.window = 16, .batch = 4});
  ASSERT_EQ(split.held_out_starts.size(), 256u);
  EXPECT_EQ(split.held_out_starts.front(), 90000);
  EXPECT_EQ(split.held_out_starts.back() + 16 + 1, 100000);
  for (size_t i = 1; i < 256; ++i) {
    const int64_t gap = split.held_out_starts[i] - split.held_out_starts[i - 1];
    EXPECT_TRUE(gap == 39 || gap == 40 || gap == 38) << gap;  // (10000 - 17) / 255 = 39.1
  }
}

RC_GTEST_PROP(SplitTokens, TrainingAndHeldOutNeverShareAnId, ()) {
  const auto n = *rc::gen::inRange<int64_t>(40, 5000);
  const auto window = *rc::gen::inRange<int64_t>(1, 40);
  const auto wanted = *rc::gen::inRange<int64_t>(1, 300);
  const auto tokens = Counting(n);
  Split split;
  try {
    split = SplitTokens(*tokens, {.window = window, .batch = 1, .held_out_windows = wanted});
  } catch (const Error&) {
    RC_DISCARD("too short");
  }
  RC_ASSERT(split.train.end == split.held_out.begin);
  const int64_t available = WindowsIn(split.held_out, window);
  RC_ASSERT(static_cast<int64_t>(split.held_out_starts.size()) == std::min(available, wanted));
  int64_t previous_end = split.held_out.begin;
  for (const int64_t start : split.held_out_starts) {
    RC_ASSERT(start >= previous_end);    // no overlap
    RC_ASSERT(start + window + 1 <= n);  // the last target exists
    previous_end = start + window;
  }
  BatchSampler sampler(tokens, split, 3, 1);
  for (int64_t step = 0; step < 20; ++step)
    for (int64_t b = 0; b < 3; ++b) RC_ASSERT(sampler.Start(step, b) + window + 1 <= split.train.end);
}

TEST(SplitTokens, SaysHowManyWindowsThereAreAndHowManyAreNeeded) {
  EXPECT_SAYS(ErrorOf([] { SplitTokens(*Counting(808), {.window = 512, .batch = 8}); }),
              {"too short for one batch", "728 tokens holds 1 window of 512 tokens", "needs 8",
               "4,097 tokens", "smaller batch or window"});
  EXPECT_SAYS(ErrorOf([] { SplitTokens(*Counting(808), {.window = 100, .batch = 2}); }),
              {"too short for a test", "80 tokens holds no window of 100 tokens", "101 needed"});
  EXPECT_THROW(SplitTokens(*Counting(1), {.window = 1, .batch = 1}), Error);
  EXPECT_NO_THROW(SplitTokens(*Counting(20), {.window = 1, .batch = 1}));
}

TEST(SplitTokens, ExactlyOneBatchIsEnough) {
  // 65 + 17 tokens: 8 windows of 8 for training.
  EXPECT_NO_THROW(SplitTokens(*Counting(82), {.window = 8, .batch = 8, .held_out_fraction = 17.5 / 82}));
  EXPECT_THROW(SplitTokens(*Counting(81), {.window = 8, .batch = 8, .held_out_fraction = 17.5 / 81}), Error);
}

TEST(BatchSampler, VisitsEveryWindowOncePerEpochInAnotherOrder) {
  constexpr int64_t kTokens = 1000, kWindow = 8;
  const int64_t windows = WindowsIn({0, kTokens}, kWindow);
  BatchSampler sampler(Counting(kTokens), TrainOn(kTokens, kWindow), 7, 1);
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int64_t> starts = StartsOfEpoch(sampler, epoch, windows);
    std::vector<int64_t> sorted = starts;
    std::sort(sorted.begin(), sorted.end());
    const int64_t phase = sorted[0];
    EXPECT_LT(phase, kWindow);
    for (int64_t i = 0; i < windows; ++i)
      EXPECT_EQ(sorted[static_cast<size_t>(i)], std::min(phase + i * kWindow, kTokens - 1 - kWindow));
    EXPECT_TRUE(epoch > 0 || phase == 0);
    EXPECT_NE(starts, sorted);
    orders.push_back(starts);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(BatchSampler, ThePhaseOfLaterEpochsTakesEveryValue) {
  BatchSampler sampler(Counting(100), TrainOn(100, 8), 4, 3);
  std::map<int64_t, int> phases;
  for (int64_t epoch = 1; epoch <= 800; ++epoch) {
    const std::vector<int64_t> starts = StartsOfEpoch(sampler, epoch, 12);
    ++phases[*std::min_element(starts.begin(), starts.end())];
  }
  EXPECT_EQ(phases.size(), 8u);
  for (const auto& [phase, count] : phases) EXPECT_NEAR(count, 100, 47) << phase;  // five standard deviations
}

TEST(BatchSampler, EveryOrderOfWindowsIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> orders;
  for (uint64_t seed = 0; seed < 2400; ++seed) {
    BatchSampler sampler(Counting(25), TrainOn(25, 6), 1, seed);
    ++orders[StartsOfEpoch(sampler, 0, 4)];
  }
  ASSERT_EQ(orders.size(), 24u);
  double chi2 = 0;
  for (const auto& [order, count] : orders) chi2 += (count - 100.0) * (count - 100.0) / 100;
  EXPECT_LT(chi2, 58);  // 23 degrees of freedom: above with probability 1e-4
}

TEST(BatchSampler, TargetsAreTheNextIds) {
  const auto tokens = Counting(500);
  BatchSampler sampler(tokens, TrainOn(500, 10), 4, 9);
  std::vector<int32_t> inputs(40), targets(40);
  sampler.Fill(3, inputs, targets);
  for (int64_t row = 0; row < 4; ++row) {
    const auto first = static_cast<size_t>(row * 10);
    EXPECT_EQ(inputs[first], sampler.Start(3, row));
    for (size_t t = 0; t < 10; ++t) EXPECT_EQ(targets[first + t], inputs[first + t] + 1);
    for (size_t t = 1; t < 10; ++t) EXPECT_EQ(inputs[first + t], inputs[first + t - 1] + 1);
  }
}

RC_GTEST_PROP(BatchSampler, AStepIsAFunctionOfSeedAndStepAlone, (uint64_t seed)) {
  const auto batch = *rc::gen::inRange<int64_t>(1, 9);
  const auto steps = *rc::gen::container<std::vector<int64_t>>(12, rc::gen::inRange<int64_t>(0, 60));
  const auto tokens = Counting(300);
  BatchSampler straight(tokens, TrainOn(300, 16), batch, seed),
      jumping(tokens, TrainOn(300, 16), batch, seed);
  std::vector<std::vector<int64_t>> expected;
  for (int64_t step = 0; step < 60; ++step) {
    expected.emplace_back();
    for (int64_t b = 0; b < batch; ++b) expected.back().push_back(straight.Start(step, b));
  }
  for (const int64_t step : steps)
    for (int64_t b = 0; b < batch; ++b)
      RC_ASSERT(jumping.Start(step, b) == expected[static_cast<size_t>(step)][static_cast<size_t>(b)]);
}

TEST(BatchSampler, MicroBatchesAreCutsOfTheSameBatch) {
  BatchSampler sampler(Counting(300), TrainOn(300, 16), 6, 5);
  std::vector<int32_t> whole(96), whole_targets(96), part(32), part_targets(32);
  for (int64_t step = 0; step < 10; ++step) {
    sampler.Fill(step, whole, whole_targets);
    for (int64_t first = 0; first < 6; first += 2) {
      sampler.Fill(step, first, 2, part, part_targets);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * 16));
      EXPECT_TRUE(std::equal(part_targets.begin(), part_targets.end(), whole_targets.begin() + first * 16));
    }
  }
}

TEST(BatchSampler, SeedsGiveOtherOrders) {
  BatchSampler a(Counting(1000), TrainOn(1000, 8), 4, 1), b(Counting(1000), TrainOn(1000, 8), 4, 2);
  EXPECT_NE(StartsOfEpoch(a, 0, 124), StartsOfEpoch(b, 0, 124));
}

TEST(BatchSampler, KeepsItsOrderForever) {
  // A change here means that old runs cannot be repeated.
  BatchSampler sampler(Counting(1000), TrainOn(1000, 8), 4, 1);
  std::vector<int64_t> starts;
  for (const int64_t step : {0, 31, 62})
    for (int64_t b = 0; b < 4; ++b) starts.push_back(sampler.Start(step, b));
  EXPECT_EQ(starts, (std::vector<int64_t>{312, 352, 768, 704, 716, 28, 388, 340, 618, 770, 50, 194}));
}

TEST(BatchSampler, OneWindowIsEnough) {
  BatchSampler sampler(Counting(9), TrainOn(9, 8), 1, 1);
  for (int64_t step = 0; step < 5; ++step) EXPECT_EQ(sampler.Start(step, 0), 0);
}

TEST(BatchSampler, WrongSizesAreBugs) {
  BatchSampler sampler(Counting(100), TrainOn(100, 8), 4, 1);
  std::vector<int32_t> inputs(32), targets(31);
  EXPECT_THROW(sampler.Fill(0, inputs, targets), std::logic_error);
  EXPECT_THROW(sampler.Start(0, 4), std::logic_error);
  EXPECT_THROW(sampler.Start(-1, 0), std::logic_error);
}

TEST(FillHeldOut, GivesTheWindowsInOrder) {
  const auto tokens = Counting(1000);
  const Split split = SplitTokens(*tokens, {.window = 8, .batch = 1, .held_out_windows = 5});
  std::vector<int32_t> inputs(16), targets(16);
  FillHeldOut(*tokens, split, 3, 2, inputs, targets);
  EXPECT_EQ(inputs[0], split.held_out_starts[3]);
  EXPECT_EQ(inputs[8], split.held_out_starts[4]);
  EXPECT_EQ(targets[15], 999);
  EXPECT_THROW(FillHeldOut(*tokens, split, 4, 2, inputs, targets), std::logic_error);
}

TEST(Summarize, CountsWhatTheRunUses) {
  const auto tokens = Counting(1003);
  const Split split = SplitTokens(*tokens, {.window = 16, .batch = 4});
  const DataSummary summary = Summarize(*tokens, split, 4, 28);
  EXPECT_EQ(summary.train_windows, 56);
  EXPECT_EQ(summary.train_tokens_unused, 903 - (56 * 16 + 1));
  EXPECT_EQ(summary.held_out_windows, 6);
  EXPECT_EQ(summary.held_out_windows_asked, 256);
  EXPECT_DOUBLE_EQ(summary.epochs, 2.0);
  EXPECT_EQ(summary.ToString(),
            "data      1,003 bytes, 1,003 tokens (vocabulary 1,003)\n"
            "training  903 tokens: 56 windows of 16, 6 tokens unused\n"
            "held out  100 tokens: 6 windows for the test loss (the text is too short for 256)\n"
            "steps     28 of 4 x 16 tokens = 1,792 tokens, 2 epochs");
}

}  // namespace
}  // namespace normlab
