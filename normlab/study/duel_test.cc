#include "normlab/study/duel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/study/testing/duel_coverage.h"
#include "normlab/study/testing/stub_machine.h"

namespace normlab {
namespace {

using test::StubMachine;

TEST(DuelTest, TheRatioIsTheContendersTimeOverTheBaselines) {
  StubMachine machine{.seconds = {2, 3, 1}};
  const DuelResult result = RunDuel({.contenders = 3, .baseline = 2}, machine.Callbacks());
  EXPECT_NEAR(result.ratios[0]->ratio, 2, 1e-9);
  EXPECT_NEAR(result.ratios[1]->ratio, 3, 1e-9);
  EXPECT_FALSE(result.ratios[2]);
  EXPECT_NEAR(result.times[1].seconds[7], 3, 1e-9);
}

TEST(DuelTest, APlaceInTheRoundFavoursNobody) {
  // Whoever comes first takes 10% more. In a fixed order that would be a difference of 10% between equals.
  StubMachine machine{.seconds = {1, 1}, .noise = 0.001, .first_of_round = 0.1};
  const DuelResult result = RunDuel({}, machine.Callbacks());
  EXPECT_NEAR(result.ratios[1]->ratio, 1, 0.04);
  // 95 of 100 fair coins show between 40 and 60 heads; all rounds here are more, pilot included.
  size_t baseline_first = 0;
  for (size_t i = 0; i < machine.blocks.size(); i += 2) baseline_first += machine.blocks[i] == 0;
  const double share = static_cast<double>(baseline_first) / static_cast<double>(machine.blocks.size() / 2);
  EXPECT_NEAR(share, 0.5, 0.1);
}

TEST(DuelTest, EveryContenderWorksOnceInARound) {
  StubMachine machine{.seconds = {1, 1, 1}, .noise = 0.01};
  RunDuel({.contenders = 3}, machine.Callbacks());
  ASSERT_EQ(machine.blocks.size() % 3, 0u);
  for (size_t i = 0; i < machine.blocks.size(); i += 3) {
    std::vector<size_t> round(machine.blocks.begin() + static_cast<ptrdiff_t>(i),
                              machine.blocks.begin() + static_cast<ptrdiff_t>(i + 3));
    std::ranges::sort(round);
    ASSERT_EQ(round, (std::vector<size_t>{0, 1, 2}));
  }
}

TEST(DuelTest, EveryBatchPlacesAllMemoryAfreshInShuffledOrder) {
  StubMachine machine{.seconds = {1, 1, 1, 1}};
  RunDuel({.contenders = 4}, machine.Callbacks());
  ASSERT_EQ(machine.placements.size(), 21u);  // the pilot's, and 20
  EXPECT_TRUE(std::ranges::any_of(machine.placements,
                                  [&](const auto& order) { return order != machine.placements[0]; }));
  for (auto order : machine.placements) {
    std::ranges::sort(order);
    EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3}));
  }
}

TEST(DuelTest, OneLayoutOfMemoryDoesNotDecide) {
  // Each placement favours one of two equals by a few percent: the interval must be as wide as that, however
  // little the rounds of one batch differ.
  StubMachine machine{.seconds = {1, 1}, .noise = 1e-4, .layout = 0.02};
  const DuelResult result = RunDuel({}, machine.Callbacks());
  // s_M = 0.02 sqrt(2); t(0.975, 19) = 2.093: half a width of 0.0132, within the chance of 20 draws
  // (chi, 99.9%).
  EXPECT_GT(*result.ratios[1]->half_width, 0.006);
  EXPECT_LT(*result.ratios[1]->half_width, 0.021);
}

TEST(DuelTest, ADriftOfTheMachineFavoursNobody) {
  StubMachine machine{.seconds = {0.01, 0.01}, .noise = 0.005, .drift_per_s = 0.2};
  const DuelResult result = RunDuel({}, machine.Callbacks());
  EXPECT_GT(machine.now, 3);  // the last rounds take nearly twice the time of the first
  EXPECT_NEAR(result.ratios[1]->ratio, 1, 0.01);
}

TEST(DuelTest, ThePilotIsDiscarded) {
  StubMachine machine{.seconds = {1, 1}};
  DuelCallbacks callbacks = machine.Callbacks();
  const auto block = callbacks.block;
  callbacks.block = [&](size_t contender) {
    if (machine.blocks.size() < 200 && contender == 1) machine.now += 5;  // in the pilot alone
    block(contender);
  };
  const DuelResult result = RunDuel({}, callbacks);
  EXPECT_EQ(result.pilot_rounds, 100u);
  EXPECT_EQ(machine.blocks.size(), 2 * (100 + result.rounds()));
  EXPECT_EQ(result.rounds(), result.plan.batches * result.plan.rounds_per_batch);
  EXPECT_NEAR(result.ratios[1]->ratio, 1, 1e-9);
}

TEST(DuelTest, ThePilotsSpreadFixesTheRounds) {
  // The ratio of two independent blocks of sd 0.02: sqrt(2) 0.02 = 0.0283; 7.5 (2.093 0.0283 / (sqrt(20)
  // 0.00995))^2 = 13.3.
  StubMachine machine{.seconds = {1, 1}, .noise = 0.02};
  const DuelResult result = RunDuel({}, machine.Callbacks());
  EXPECT_NEAR(result.pilot.sd, 0.0283, 0.008);
  EXPECT_GE(result.plan.rounds_per_batch, 8u);
  EXPECT_LE(result.plan.rounds_per_batch, 22u);
  EXPECT_EQ(PlanDuel({}, {.sd = 0.0283}).rounds_per_batch, 14u);
  // More contenders share the alpha: t(1 - 0.025 / 4, 19) = 2.759 for 2.093.
  EXPECT_EQ(PlanDuel({.contenders = 5}, {.sd = 0.0283}).rounds_per_batch, 24u);
}

TEST(DuelTest, InterruptedBlocksAreMarkedAndKept) {
  StubMachine machine{.seconds = {1, 1}, .interrupted_share = 0.1};
  const DuelResult result = RunDuel({}, machine.Callbacks());
  EXPECT_EQ(result.times[0].seconds.size(), result.plan.batches * result.plan.rounds_per_batch);
  size_t long_blocks = 0;
  for (const DuelTimes& times : result.times)
    for (size_t r = 0; r < times.seconds.size(); ++r) {
      EXPECT_EQ(times.interrupted[r], times.seconds[r] > 1.2) << r;
      long_blocks += times.seconds[r] > 1.2;
    }
  EXPECT_GT(long_blocks, 0u);
  EXPECT_EQ(result.interrupted_blocks(), long_blocks);
}

// S-03
TEST(DuelTest, TheOrderOfEveryRoundIsKept) {
  StubMachine machine{.seconds = {1, 1, 1}, .noise = 0.01};
  const DuelResult result = RunDuel({.contenders = 3}, machine.Callbacks());
  ASSERT_EQ(result.round_log.size(), result.rounds());
  std::vector<size_t> all;
  for (const DuelRound& round : result.round_log)
    all.insert(all.end(), round.order.begin(), round.order.end());
  const auto after_pilot = machine.blocks.begin() + static_cast<ptrdiff_t>(3 * result.pilot_rounds);
  EXPECT_EQ(all, std::vector<size_t>(after_pilot, machine.blocks.end()));
}

TEST(DuelTest, WhatTheSystemTellsOfARoundStandsBesideIt) {
  StubMachine machine{.seconds = {1, 1}, .steal_s = 0.25, .mhz = 2000};
  const DuelResult result = RunDuel({}, machine.Callbacks());
  for (const DuelRound& round : result.round_log) {
    ASSERT_TRUE(round.stolen_s && round.mhz);
    EXPECT_DOUBLE_EQ(*round.stolen_s, 0.25);
    EXPECT_DOUBLE_EQ(*round.mhz, 2000);
  }
  StubMachine silent{.seconds = {1, 1}};
  const DuelResult unknown = RunDuel({}, silent.Callbacks());
  EXPECT_FALSE(unknown.round_log[0].stolen_s);
  EXPECT_FALSE(unknown.round_log[0].mhz);
}

TEST(DuelTest, TheSecondsForSoManyBatchesGiveThem) {
  for (const double round_s : {0.01, 1.0, 10.0})
    for (const double place_s : {0.0, 0.5, 8.0})
      for (const size_t batches : {3u, 6u, 20u}) {
        DuelPilot pilot{.sd = 1, .round_s = round_s, .place_s = place_s};
        const double seconds = SecondsForBatches(pilot, batches);
        // The pilot passes its fifth by up to a round, or is the fewest rounds.
        pilot.spent_s = std::max(0.2 * seconds + round_s, place_s + 2 * round_s);
        EXPECT_GE(PlanDuel({.half_width = 1e-9, .seconds = seconds}, pilot).batches, batches)
            << round_s << " " << place_s << " " << batches;
      }
}

TEST(DuelTest, PlacingAndPreparingAreNotTimed) {
  StubMachine machine{.seconds = {1, 2}, .place_s = 100, .prepare_s = 10};
  const DuelResult result = RunDuel({}, machine.Callbacks());
  EXPECT_NEAR(result.times[0].seconds[0], 1, 1e-9);
  EXPECT_NEAR(result.ratios[1]->ratio, 2, 1e-9);
}

TEST(DuelTest, TheSecondsAllowedCutTheRounds) {
  // Pilot: a fifth of 109 s, 11 rounds of 2 s. 87 s are left for 20 batches: 2 rounds each.
  StubMachine machine{.seconds = {1, 1}, .noise = 0.001};
  const DuelResult result = RunDuel({.half_width = 1e-5, .seconds = 109}, machine.Callbacks());
  EXPECT_EQ(result.pilot_rounds, 11u);
  EXPECT_TRUE(result.plan.cut);
  EXPECT_EQ(result.plan.batches, 20u);
  EXPECT_EQ(result.plan.rounds_per_batch, 2u);
  EXPECT_NEAR(machine.now, 102, 1);
}

TEST(DuelTest, ShorterBatchesThenFewer) {
  const DuelSettings settings{.half_width = 0.001, .seconds = 100};
  const auto plan = [&](double round_s, double place_s) {
    return PlanDuel(settings, {.sd = 0.1, .round_s = round_s, .place_s = place_s, .spent_s = 20});
  };
  EXPECT_EQ(plan(0.01, 0).rounds_per_batch, 64u);
  EXPECT_FALSE(plan(0.01, 0).cut);
  EXPECT_EQ(plan(0.5, 0).rounds_per_batch, 8u);
  EXPECT_EQ(plan(0.5, 1).rounds_per_batch, 6u);
  EXPECT_EQ(plan(0.5, 1).batches, 20u);
  EXPECT_EQ(plan(4, 4).rounds_per_batch, 1u);
  EXPECT_EQ(plan(4, 4).batches, 10u);
  EXPECT_TRUE(plan(4, 4).cut);
  EXPECT_EQ(plan(1, 8).batches, 5u);  // placing them takes half of the 80 s left
  EXPECT_EQ(plan(1, 8).rounds_per_batch, 8u);
  EXPECT_EQ(plan(0.1, 100).batches, 3u);
  EXPECT_EQ(plan(70, 0).batches, 3u);  // fewer tell nothing
}

TEST(DuelTest, AStopKeepsTheBatchesThatAreComplete) {
  StubMachine machine{.seconds = {1, 2}, .noise = 0.001};
  DuelCallbacks callbacks = machine.Callbacks();
  size_t asked = 0;
  callbacks.keep_going = [&](const DuelProgress& progress) {
    asked += !progress.pilot;
    return asked < 12;  // 5 rounds a batch: in the third batch
  };
  const DuelResult result = RunDuel({}, callbacks);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.batches, 2u);
  EXPECT_EQ(result.rounds(), 10u);
  EXPECT_NEAR(result.ratios[1]->ratio, 2, 0.01);
}

TEST(DuelTest, AStopInThePilotLeavesNoRatio) {
  StubMachine machine{.seconds = {1, 2}};
  DuelCallbacks callbacks = machine.Callbacks();
  callbacks.keep_going = [](const DuelProgress&) { return false; };
  const DuelResult result = RunDuel({}, callbacks);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.rounds(), 0u);
  EXPECT_FALSE(result.ratios[1]);
}

TEST(DuelTest, OneContenderAloneIsTimed) {
  StubMachine machine{.seconds = {1}};
  const DuelResult result = RunDuel({.contenders = 1}, machine.Callbacks());
  EXPECT_EQ(result.rounds(), 100u);
  EXPECT_FALSE(result.ratios[0]);
}

TEST(DuelTest, ProgressCountsAllRoundsAndTheTimeLeftFalls) {
  StubMachine machine{.seconds = {1, 1}};
  DuelCallbacks callbacks = machine.Callbacks();
  DuelProgress last;
  callbacks.keep_going = [&](const DuelProgress& progress) {
    EXPECT_TRUE(progress.pilot || last.pilot || progress.remaining_s <= last.remaining_s);
    last = progress;
    return true;
  };
  const DuelResult result = RunDuel({}, callbacks);
  EXPECT_EQ(last.rounds_done, result.rounds());
  EXPECT_EQ(last.rounds, result.rounds());
  EXPECT_NEAR(last.remaining_s, 0, 1e-9);
}

// The long form is in duel_simulation_test.cc.
TEST(DuelTest, TheIntervalHoldsTheTruthAboutAsOftenAsItSays) {
  test::ExpectCoverage(test::kNoisy, 150);
  test::ExpectCoverage(test::kAllDisturbances, 150);
}

TEST(DuelTest, RefusesSettingsThatAllowNoDuelAndAClockThatStandsStill) {
  StubMachine machine{.seconds = {1, 1}};
  EXPECT_THROW(RunDuel({.contenders = 0}, machine.Callbacks()), Error);
  EXPECT_THROW(RunDuel({.contenders = 2, .baseline = 2}, machine.Callbacks()), Error);
  EXPECT_THROW(RunDuel({.batches = 1}, machine.Callbacks()), Error);
  EXPECT_THROW(RunDuel({.pilot_rounds = 1}, machine.Callbacks()), Error);
  DuelCallbacks callbacks = machine.Callbacks();
  callbacks.now_s = [] { return 1.0; };
  EXPECT_THROW(RunDuel({}, callbacks), Error);
}

}  // namespace
}  // namespace normlab
