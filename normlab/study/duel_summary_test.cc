#include "normlab/study/duel_summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "normlab/base/error.h"
#include "normlab/base/text.h"
#include "normlab/study/duel_text.h"
#include "normlab/study/testing/fake_duel.h"

namespace normlab {
namespace {

using stats::Verdict;
using test::FakeDuel;
using test::StubMachine;

TEST(DuelSummaryTest, RatiosTimesAndRatesAreThoseOfTheBlocks) {
  const DuelSummary summary =
      Summarize(FakeDuel({"a", "b", "c"}, {.seconds = {0.02, 0.018, 0.03}, .noise = 0.005}, {.baseline = 0}));
  EXPECT_FALSE(summary.variants[0].time);
  const DuelVariant& b = summary.variants[1];
  EXPECT_NEAR(*b.time->ratio, 0.9, 0.01);
  EXPECT_EQ(b.time->verdict, Verdict::kBetter);
  EXPECT_EQ(summary.variants[2].time->verdict, Verdict::kWorse);
  EXPECT_NEAR(b.step_s->median, 0.009, 1e-4);  // two steps a block
  EXPECT_LT(b.step_s->first_quartile, b.step_s->median);
  EXPECT_LT(b.step_s->median, b.step_s->third_quartile);
  EXPECT_NEAR(*b.tokens_per_s, 4096 / 0.009, 4096);
  EXPECT_LT(b.tokens_per_s_interval->low, *b.tokens_per_s);
  EXPECT_GT(b.tokens_per_s_interval->high, *b.tokens_per_s);
  EXPECT_EQ(b.batch_ratios.size(), 20u);
  EXPECT_EQ(b.round_ratios.size(), summary.rounds());
  EXPECT_NEAR(*summary.half_width, *std::max(summary.variants[1].half_width, summary.variants[2].half_width),
              0);
}

// S-09: the interval of the rate is that of the time, turned over.
TEST(DuelSummaryTest, TheRateIsTheInverseOfTheTime) {
  const DuelSummary summary = Summarize(FakeDuel({"a", "b"}, {.seconds = {0.02, 0.018}, .noise = 0.01}));
  const stats::Comparison &time = *summary.variants[1].time, &rate = *summary.variants[1].tokens_rate;
  EXPECT_NEAR(*time.ratio * *rate.ratio, 1, 1e-12);
  EXPECT_NEAR(*time.ci_low * *rate.ci_high, 1, 1e-12);
  EXPECT_EQ(rate.verdict, Verdict::kBetter);
}

TEST(DuelSummaryTest, AStepWithMoreTokensIsSlowerAndMayHaveTheHigherRate) {
  DuelRecord record = FakeDuel({"a", "b"}, {.seconds = {0.02, 0.03}, .noise = 0.001});
  record.contenders[1].tokens_per_step *= 2;
  const DuelSummary summary = Summarize(record);
  EXPECT_EQ(summary.variants[1].time->verdict, Verdict::kWorse);
  EXPECT_NEAR(*summary.variants[1].tokens_rate->ratio, 2 / 1.5, 0.01);
  EXPECT_EQ(summary.variants[1].tokens_rate->verdict, Verdict::kBetter);
}

// A variant against itself, on a machine that disturbs it in every way: never identical, and a difference is
// found no oftener than alpha says.
TEST(DuelSummaryTest, EqualsAreEquivalentOrUndecided) {
  size_t wrong = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const StubMachine machine{.seconds = {0.02, 0.02},
                              .noise = 0.02,
                              .autocorrelation = 0.5,
                              .layout = 0.005,
                              .interrupted_share = 0.05,
                              .drift_per_s = 1e-3,
                              .first_of_round = 0.01,
                              .seed = seed};
    const Verdict verdict =
        Summarize(FakeDuel({"a", "a again"}, machine, {.seed = seed})).variants[1].time->verdict;
    EXPECT_NE(verdict, Verdict::kIdentical);
    wrong += verdict != Verdict::kEquivalent && verdict != Verdict::kUndecided;
  }
  EXPECT_LE(wrong, 11u);  // 5 of 100, and three standard deviations
}

// S-03: no variant goes first oftener than chance has it, and the orders are in the record.
TEST(DuelSummaryTest, OrdersAreKeptAndFavourNobody) {
  const DuelRecord record = FakeDuel({"a", "b"}, {.noise = 0.05});
  const Json json = DuelJson(record);
  ASSERT_EQ(json["orders"].size(), record.result.rounds());
  const DuelSummary summary = Summarize(record);
  const double rounds = static_cast<double>(summary.rounds());
  EXPECT_EQ(summary.variants[0].first_in_round + summary.variants[1].first_in_round, summary.rounds());
  EXPECT_NEAR(static_cast<double>(summary.variants[0].first_in_round) / rounds, 0.5, 1.5 / std::sqrt(rounds));
}

TEST(DuelSummaryTest, TooFewBatchesGiveNoVerdictAndSayHowLongWouldDo) {
  // A round takes 0.04 s and placing 0.5 s: in 2 s there is no room for six batches.
  const DuelRecord record =
      FakeDuel({"a", "b"}, {.seconds = {0.02, 0.01}, .noise = 0.001, .place_s = 0.5}, {.seconds = 2});
  ASSERT_LT(record.result.batches, stats::kFewestJudgedBatches);
  const DuelSummary summary = Summarize(record);
  EXPECT_EQ(summary.variants[1].time->verdict, Verdict::kNone);
  EXPECT_TRUE(ToJson(summary)["variants"][1]["verdict"].is_null());
  ASSERT_TRUE(summary.seconds_needed);
  EXPECT_NE(summary.variants[1].explanation.find("no verdict on speed"), std::string::npos);
  EXPECT_NE(summary.variants[1].explanation.find("of duel would do for a verdict"), std::string::npos);

  const DuelSummary longer =
      Summarize(FakeDuel({"a", "b"}, {.seconds = {0.02, 0.01}, .noise = 0.001, .place_s = 0.5},
                         {.seconds = *summary.seconds_needed}));
  EXPECT_GE(longer.batches, stats::kFewestJudgedBatches);
  EXPECT_EQ(longer.variants[1].time->verdict, Verdict::kBetter);
}

TEST(DuelSummaryTest, WhoEndsADuelGetsNoVerdict) {
  StubMachine machine{.seconds = {0.02, 0.01}, .noise = 0.001};
  DuelRecord record = FakeDuel({"a", "b"}, machine);
  record.result.stopped = true;
  const DuelVariant variant = Summarize(record).variants[1];
  EXPECT_EQ(variant.time->verdict, Verdict::kNone);
  EXPECT_NE(variant.explanation.find("interrupted"), std::string::npos);
}

TEST(DuelSummaryTest, NothingButAPilotIsNothing) {
  DuelRecord record = FakeDuel({"a", "b"}, {.noise = 0.001});
  for (DuelTimes& times : record.result.times) times = {};
  record.result.round_log.clear();
  record.result.batches = 0;
  const DuelSummary summary = Summarize(record);
  EXPECT_FALSE(summary.variants[1].step_s);
  EXPECT_FALSE(summary.variants[1].time->ratio);
  EXPECT_EQ(summary.variants[1].time->verdict, Verdict::kNone);
  EXPECT_NE(DuelTables(summary).find("no verdict"), std::string::npos);
}

// S-21: a machine that runs at two speeds is told, with both; the pilot is counted and excluded.
TEST(DuelSummaryTest, TwoSpeedsAreToldAndThePilotIsCounted) {
  DuelRecord record = FakeDuel({"a", "b"}, {.noise = 0.01});
  for (DuelTimes& times : record.result.times)
    for (size_t r = 0; r < times.seconds.size(); r += 3) times.seconds[r] *= 3;
  const DuelSummary summary = Summarize(record);
  ASSERT_TRUE(summary.variants[0].groups);
  EXPECT_NEAR(summary.variants[0].groups->high_share, 1.0 / 3, 0.02);
  const std::string text = DuelMethod(summary, 10000);
  EXPECT_NE(text.find("two groups"), std::string::npos) << text;
  EXPECT_NE(text.find("pilot of 100 rounds"), std::string::npos) << text;
  EXPECT_FALSE(Summarize(FakeDuel({"a", "b"}, {.noise = 0.01})).variants[0].groups);
}

TEST(DuelSummaryTest, DisturbancesAreCountedAndTold) {
  const DuelSummary summary = Summarize(
      FakeDuel({"a", "b"}, {.noise = 0.01, .interrupted_share = 0.2, .steal_s = 0.01, .mhz = 2500}));
  EXPECT_GT(summary.interrupted_blocks(), 0u);
  EXPECT_EQ(summary.stolen_rounds, summary.rounds());
  EXPECT_NEAR(*summary.stolen_s, 0.01 * static_cast<double>(summary.rounds()), 1e-9);
  EXPECT_EQ(*summary.least_mhz, 2500);
  const std::string text = DuelMethod(summary, 10000);
  for (const char* part : {"took a processor away in", "others on the hardware got",
                           "processors ran at 2,500 MHz", "All of them count"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  const DuelSummary silent = Summarize(FakeDuel({"a", "b"}, {.noise = 0.01}));
  EXPECT_FALSE(silent.stolen_s);
  EXPECT_TRUE(ToJson(silent)["stolen_s"].is_null());
}

TEST(DuelSummaryTest, ARecordComesBackWithTheSameAnswers) {
  DuelRecord record =
      FakeDuel({"a", "b", "c"},
               {.seconds = {0.02, 0.018, 0.021}, .noise = 0.02, .interrupted_share = 0.1, .mhz = 3000},
               {.baseline = 1, .seconds = 30});
  record.rule.looks = 2;
  record.settings.alpha = record.rule.alpha / 2;
  const std::string text = DumpJson(DuelJson(record), 1);
  const DuelRecord back = DuelRecordFromJson(ParseJson(text, "duel.json"), "duel.json");
  EXPECT_EQ(DumpJson(DuelJson(back), 1), text);
  EXPECT_EQ(back.settings.baseline, 1u);
  EXPECT_EQ(back.result.times[2].interrupted, record.result.times[2].interrupted);
  EXPECT_EQ(back.result.round_log[3].order, record.result.round_log[3].order);
}

TEST(DuelSummaryTest, BrokenRecordsAreRefusedByName) {
  const Json good = DuelJson(FakeDuel({"a", "b"}, {.noise = 0.01}));
  const auto refuse = [&](const auto& change) {
    Json json = good;
    change(json);
    EXPECT_THROW(DuelRecordFromJson(json, "there/duel.json"), Error);
  };
  refuse([](Json& json) { json["schema_version"] = 2; });
  refuse([](Json& json) { json.erase("orders"); });
  refuse([](Json& json) { json["variants"][0]["block_s"].erase(0); });
  refuse([](Json& json) { json["variants"][0]["block_s"][0] = 0; });
  refuse([](Json& json) { json["variants"][0]["interrupted_rounds"] = {99999}; });
  refuse([](Json& json) { json = 3; });
  // What reads well and cannot be.
  refuse([](Json& json) { json["pilot"]["sd"] = "nan"; });
  refuse([](Json& json) { json["steps_per_block"] = 0; });
  refuse([](Json& json) { json["settings"]["batches"] = 0; });
  refuse([](Json& json) { json["settings"]["half_width"] = 0; });
  refuse([](Json& json) { json["variants"][0]["tokens_per_step"] = 0; });
  refuse([](Json& json) { json["orders"][0] = Json::array(); });
  refuse([](Json& json) { json["baseline"] = "x"; });
  Json newer = good;
  newer["schema_version"] = DuelRecord::kSchemaVersion + 1;
  EXPECT_THROW(DuelRecordFromJson(newer, "there/duel.json"), NewerDuel);
}

TEST(DuelSummaryTest, WhereThePrecisionIsReachedNothingMoreIsAskedFor) {
  DuelRecord record = FakeDuel({"a", "b"}, {.noise = 0.01}, {.seconds = 20});
  record.result.plan.cut = true;  // the pilot had been noisier than what followed
  ASSERT_TRUE(Summarize(record).half_width);
  const double reached = std::log1p(*Summarize(record).half_width);
  record.settings.half_width = 1.1 * reached;
  EXPECT_FALSE(Summarize(record).seconds_needed);
  EXPECT_EQ(DuelMethod(Summarize(record)).find("would do"), std::string::npos);
  record.settings.half_width = reached / 4;  // 16 times the time, whatever the pilot had promised
  EXPECT_GT(*Summarize(record).seconds_needed, 16 * (20 - record.result.pilot.spent_s));
}

TEST(DuelSummaryTest, TextSaysEveryIntervalsLevelWithin80Columns) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"handrolled_layernorm", "fused_layernorm", "fused_rmsnorm"},
        {std::string(100, 'x'), "a\nb"}}) {
    const DuelSummary summary =
        Summarize(FakeDuel(names, {.seconds = {0.02, 0.018}, .noise = 0.01, .steal_s = 0.001, .mhz = 2500}));
    const std::string text = DuelVerdicts(summary) + DuelTables(summary) + DuelMethod(summary);
    for (const char* part : {"less time per step", "95% interval", "+-: half its width", "by inverse times",
                             "Precision reached", "Autocorrelation", "quartiles", "20 batches", "MiB"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(Characters(line), 80u) << line;
  }
}

}  // namespace
}  // namespace normlab
