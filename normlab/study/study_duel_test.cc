#include "normlab/study/study_duel.h"

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/testing/files.h"
#include "normlab/study/comparison.h"
#include "normlab/study/export.h"
#include "normlab/study/testing/fake_duel.h"
#include "normlab/study/testing/fake_study.h"

namespace normlab {
namespace {

using test::FakeDuelOf;
using test::StubMachine;

StudyPlan Plan(std::vector<uint64_t> seeds = {1, 2, 3}) {
  return MakePlan(FakeRequest("layernorm,rmsnorm", std::move(seeds)));
}

std::vector<Cell> Cells(const StudyPlan& plan) {
  std::vector<Cell> cells;
  for (const GridCell& place : CellOrder(plan.variants.size(), plan.seeds.size())) {
    Cell cell{.variant = place.variant, .seed = place.seed};
    const TrainConfig config = CellConfig(plan.variants[place.variant].variant, plan.seeds[place.seed]);
    TakeRecord(cell, FakeRecord(config, 3.0 + 0.001 * static_cast<double>(place.seed), 10));
    cells.push_back(std::move(cell));
  }
  return cells;
}

constexpr double kFaster[] = {0.02, 0.018};
StubMachine Machine() { return {.seconds = {kFaster[0], kFaster[1]}, .noise = 0.005}; }

TEST(StudyDuelTest, TimesAreJudgedByTheDuelAndNotByTheCells) {
  const StudyPlan plan = Plan();
  const DuelRecord duel = FakeDuelOf(plan, Machine());
  const StudyResults results = Evaluate(plan, Cells(plan), &duel);  // in which all cells took 10 s
  const MetricComparison &time = *results.Find(1, Metric::kTime),
                         &rate = *results.Find(1, Metric::kTokensPerSecond);
  EXPECT_EQ(time.result.test, "duel");
  EXPECT_EQ(time.result.verdict, stats::Verdict::kBetter);
  EXPECT_NEAR(*time.result.ratio, 0.9, 0.01);
  EXPECT_EQ(time.result.n, 20u);
  EXPECT_EQ(rate.result.verdict, stats::Verdict::kBetter);
  EXPECT_NEAR(*rate.result.ratio * *time.result.ratio, 1, 1e-9);
  EXPECT_NEAR(*rate.result.ci_low * *time.result.ci_high, 1, 1e-9);
  EXPECT_NE(time.explanation.find("less time per step"), std::string::npos);
  EXPECT_NE(rate.explanation.find("more tokens/s"), std::string::npos);
  // Each declared look has a duel of its own: two, by default.
  EXPECT_DOUBLE_EQ(time.result.confidence, 1 - 0.05 / 2);

  const Json json = ResultsJson(results);
  EXPECT_EQ(json["comparisons"][1]["test"], "duel");
  EXPECT_EQ(json["comparisons"][1]["ci_low"], json["duel"]["variants"][1]["ci_low"]);
  EXPECT_EQ(json["duel"]["variants"][1]["verdict"], "better");
  for (const char* key : {"settings", "pilot", "batches", "rounds_per_batch", "half_width_asked",
                          "half_width_reached", "autocorrelation", "pilot_rounds"})
    EXPECT_TRUE(json["duel"].contains(key)) << key;
  for (const char* key : {"name", "step_s", "tokens_per_s", "peak_bytes", "ratio", "ci_low", "ci_high",
                          "verdict", "explanation", "round_ratios", "batch_ratios", "interrupted_blocks"})
    EXPECT_TRUE(json["duel"]["variants"][0].contains(key)) << key;
  const std::string text = ResultsText(results);
  for (const char* part : {"time of a step", "less time", "20 batches", "Autocorrelation"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

TEST(StudyDuelTest, WithoutADuelSpeedIsNotJudged) {
  const StudyPlan plan = Plan();
  const StudyResults results = Evaluate(plan, Cells(plan));
  EXPECT_FALSE(results.duel);
  for (const Metric metric : {Metric::kTime, Metric::kTokensPerSecond}) {
    const MetricComparison& comparison = *results.Find(1, metric);
    EXPECT_EQ(comparison.result.verdict, stats::Verdict::kNone);
    EXPECT_EQ(comparison.result.reason, "no duel");
    EXPECT_FALSE(comparison.result.ci_low);
    EXPECT_FALSE(comparison.result.p_value);
    EXPECT_EQ(comparison.result.n, 3u);
    EXPECT_NEAR(*comparison.result.ratio, 1, 1e-12);
    EXPECT_EQ(comparison.explanation.rfind("no duel", 0), 0u);
  }
  const Json json = ResultsJson(results);
  EXPECT_TRUE(json["duel"].is_null());
  EXPECT_TRUE(json["comparisons"][1]["verdict"].is_null());
  EXPECT_TRUE(json["comparisons"][1]["test"].is_null());
  EXPECT_NE(ResultsText(results).find("no duel"), std::string::npos);
}

TEST(StudyDuelTest, ADuelOfAnotherStudyDoesNotCount) {
  const StudyPlan plan = Plan();
  const DuelRecord good = FakeDuelOf(plan, Machine());
  ASSERT_TRUE(Covers(good, plan));
  const auto refuse = [&](const auto& change) {
    DuelRecord duel = good;
    change(duel);
    EXPECT_FALSE(Covers(duel, plan));
    EXPECT_FALSE(Evaluate(plan, Cells(plan), &duel).duel);
  };
  refuse([](DuelRecord& duel) { duel.contenders[1].name = "no_norm"; });
  refuse([](DuelRecord& duel) { duel.contenders[1].norm_implementation = "generic"; });
  refuse([](DuelRecord& duel) { duel.contenders[1].config["batch"] = 99; });
  refuse([](DuelRecord& duel) { duel.settings.baseline = 1; });
  refuse([](DuelRecord& duel) { duel.rule.margin = 0.05; });
  refuse([](DuelRecord& duel) { duel.result.stopped = true; });
  EXPECT_FALSE(Covers(good, MakePlan(FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3}))));
}

TEST(StudyDuelTest, ADuelStandsUntilSomethingOfItChanges) {
  StudyPlan plan = Plan();
  std::optional<DuelRecord> duel;
  const auto Why = [&](std::optional<double> asked_s = {}) {
    return WhyDuel(duel, plan, FakeMachine(), asked_s);
  };
  EXPECT_NE(Why(), "");
  duel = FakeDuelOf(plan, Machine());
  EXPECT_EQ(Why(), "");
  EXPECT_EQ(Why(1e9), "");  // more time changes nothing: the precision is there

  struct Machine busy = FakeMachine();
  busy.wait_policy = "passive";  // it is busier today
  EXPECT_EQ(WhyDuel(duel, plan, busy, {}), "");
  struct Machine other = FakeMachine();
  other.threads = 7;
  EXPECT_NE(WhyDuel(duel, plan, other, {}), "");

  plan.history.push_back(plan.history.back());  // extended
  EXPECT_NE(Why(), "");
  plan = Plan();
  duel->result.plan.cut = true;
  duel->settings.seconds = 10;
  EXPECT_EQ(Why(), "");
  EXPECT_EQ(Why(10), "");
  duel->result.batches = 6;
  EXPECT_EQ(Why(60), "");  // it has been judged, and was seen
  EXPECT_FALSE(WhyNoLongerDuel(*duel, {}));
  EXPECT_FALSE(WhyNoLongerDuel(*duel, 10));
  EXPECT_TRUE(WhyNoLongerDuel(*duel, 60));
  duel->result.batches = 5;
  EXPECT_NE(Why(60), "");  // it gave no verdict, and is given more
  EXPECT_EQ(Why(10), "");
}

TEST(StudyDuelTest, AFifthOfTheCellsTimeIsTheDefault) {
  const StudyPlan plan = Plan();
  std::vector<Cell> cells = Cells(plan);
  EXPECT_NEAR(DefaultDuelSeconds(cells), 6 * 10 / 5.0, 1e-12);
  cells[0].status = CellStatus::kMissing;
  EXPECT_NEAR(DefaultDuelSeconds(cells), 10, 1e-12);
}

TEST(StudyDuelTest, TheFolderKeepsItAndABrokenOneIsNamed) {
  testing::TempFolder folder;
  EXPECT_FALSE(ReadDuel(folder.path()));
  const StudyPlan plan = Plan();
  WriteDuel(FakeDuelOf(plan, Machine()), folder.path());
  const auto back = ReadDuel(folder.path());
  ASSERT_TRUE(back);
  EXPECT_TRUE(Covers(*back, plan));
  folder.Write("duel.json", "{\"schema_version\": 1}");
  EXPECT_SAYS(testing::ErrorOf([&] { ReadDuel(folder.path()); }), {"duel.json", "record of a duel"});
}

// S-19: without a margin nothing is equivalent, and the duel is as precise as by default.
TEST(StudyDuelTest, AMarginOfZeroIsNoPrecision) {
  StudyPlan plan = Plan();
  plan.speed_margin = 0;
  EXPECT_EQ(StudyDuelSettings(plan, 60).half_width, DuelSettings{}.half_width);
  const DuelRecord same = FakeDuelOf(plan, {.seconds = {0.02, 0.02}, .noise = 0.005});
  const StudyResults results = Evaluate(plan, Cells(plan), &same);
  EXPECT_EQ(results.Find(1, Metric::kTime)->result.verdict, stats::Verdict::kUndecided);
}

}  // namespace
}  // namespace normlab
