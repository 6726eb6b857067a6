#include "normlab/study/comparison.h"

#include <gtest/gtest.h>

#include <numbers>

#include "normlab/study/export.h"
#include "normlab/study/testing/fake_duel.h"
#include "normlab/study/testing/fake_study.h"

namespace normlab {
namespace {

// Cells of a plan with the loss and time that the functions give; empty: diverged.
std::vector<Cell> MakeCells(
    const StudyPlan& plan, const std::function<std::optional<double>(const std::string&, uint64_t)>& loss,
    const std::function<double(const std::string&, uint64_t)>& time = [](auto&&...) { return 2.0; }) {
  std::vector<Cell> cells;
  for (const GridCell& place : CellOrder(plan.variants.size(), plan.seeds.size())) {
    Cell cell{.variant = place.variant, .seed = place.seed};
    const Variant& variant = plan.variants[place.variant].variant;
    const uint64_t seed = plan.seeds[place.seed];
    const TrainConfig config = CellConfig(variant, seed);
    const std::optional<double> value = loss(variant.name, seed);
    TakeRecord(cell, value ? FakeRecord(config, *value, time(variant.name, seed)) : FakeDivergence(config));
    cells.push_back(std::move(cell));
  }
  return cells;
}

constexpr double kA[] = {3.10, 3.12, 3.08, 3.15, 3.11}, kB[] = {3.08, 3.11, 3.05, 3.13, 3.10};

// The oracle of paired runs: rmsnorm is A, the baseline B.
StudyPlan OraclePlan(int looks = 1) {
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1, 2, 3, 4, 5});
  request.looks = looks;
  return MakePlan(request);
}
std::optional<double> OracleLoss(const std::string& name, uint64_t seed) {
  return name == "rmsnorm" ? kA[seed - 1] : kB[seed - 1];
}

// S-01.
TEST(StudyComparisonTest, PairedNumbersComeThroughTheWholeChain) {
  const StudyPlan plan = OraclePlan();
  const StudyResults results = Evaluate(plan, MakeCells(plan, OracleLoss));
  const MetricComparison& loss = *results.Find(1, Metric::kTestLoss);
  EXPECT_EQ(loss.result.n, 5u);
  EXPECT_NEAR(*loss.result.difference, 0.018, 1e-12);
  EXPECT_NEAR(*loss.result.sd, 0.0083666, 1e-7);
  EXPECT_NEAR(*loss.result.ci_low, 0.00761, 5e-6);
  EXPECT_NEAR(*loss.result.ci_high, 0.02839, 5e-6);
  EXPECT_NEAR(*loss.result.equivalence_ci_low, 0.01002, 5e-6);
  EXPECT_NEAR(*loss.result.equivalence_ci_high, 0.02598, 5e-6);
  EXPECT_NEAR(*loss.result.p_value, 0.00858, 5e-6);
  EXPECT_NEAR(*loss.result.sign_flip_p, 0.0625, 1e-12);
  EXPECT_EQ(loss.result.verdict, stats::Verdict::kWorse);
  EXPECT_NE(loss.explanation.find("paired by seed, n = 5"), std::string::npos);
  EXPECT_FALSE(results.Worse().empty());

  const Json json = ResultsJson(results);
  EXPECT_EQ(json["comparisons"][0]["verdict"], "worse");
  EXPECT_NEAR(json["comparisons"][0]["ci_low"].get<double>(), 0.00761, 5e-6);
  EXPECT_EQ(json["comparisons"][0]["confidence"], 0.95);
}

// S-01.
TEST(StudyComparisonTest, MarginsDecideEquivalence) {
  for (const auto& [margin, verdict] :
       {std::pair{0.05, stats::Verdict::kEquivalent}, {0.02, stats::Verdict::kWorse}}) {
    StudyPlan plan = OraclePlan();
    plan.margin_nats = margin;
    EXPECT_EQ(Evaluate(plan, MakeCells(plan, OracleLoss)).Find(1, Metric::kTestLoss)->result.verdict, verdict)
        << margin;
  }
}

TEST(StudyComparisonTest, ErrorIsSharedOverVariantsAndLooks) {
  StudyRequest request = FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3});
  request.looks = 3;
  const StudyPlan plan = MakePlan(request);
  const StudyResults results =
      Evaluate(plan, MakeCells(plan, [](auto&&, uint64_t seed) { return 3.0 + 0.1 * double(seed); }));
  EXPECT_NEAR(results.comparisons[0].result.confidence, 1 - 0.05 / 6, 1e-12);
}

TEST(StudyComparisonTest, OneSeedGivesNoVerdict) {
  const StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm", {1}));
  const StudyResults results = Evaluate(plan, MakeCells(plan, OracleLoss));
  EXPECT_EQ(results.Find(1, Metric::kTestLoss)->result.verdict, stats::Verdict::kNone);
  EXPECT_TRUE(ResultsJson(results)["comparisons"][0]["verdict"].is_null());
  EXPECT_TRUE(ResultsJson(results)["comparisons"][0]["ci_low"].is_null());
  EXPECT_TRUE(results.Worse().empty());
  EXPECT_FALSE(results.variants[0].test_loss_sd);
}

TEST(StudyComparisonTest, DivergedRunsAreShownAndNeverAveraged) {
  const StudyPlan plan = OraclePlan();
  const auto loss = [](const std::string& name, uint64_t seed) -> std::optional<double> {
    if (name == "rmsnorm" && seed == 3) return std::nullopt;
    return OracleLoss(name, seed);
  };
  const StudyResults results = Evaluate(plan, MakeCells(plan, loss));
  const MetricComparison& comparison = *results.Find(1, Metric::kTestLoss);
  EXPECT_EQ(results.counts.diverged, 1u);
  EXPECT_TRUE(results.counts.complete());  // an outcome
  EXPECT_EQ(comparison.result.n, 4u);
  EXPECT_EQ(comparison.result.diverged_variant, 1u);
  EXPECT_NEAR(*results.variants[1].test_loss, (3.10 + 3.12 + 3.15 + 3.11) / 4, 1e-12);
  EXPECT_NE(comparison.explanation.find("1 of 5 runs diverged"), std::string::npos);
}

TEST(StudyComparisonTest, AVariantThatAlwaysDivergesIsNamedSo) {
  const StudyPlan plan = OraclePlan();
  const auto loss = [](const std::string& name, uint64_t seed) -> std::optional<double> {
    if (name == "rmsnorm") return std::nullopt;
    return OracleLoss(name, seed);
  };
  const StudyResults results = Evaluate(plan, MakeCells(plan, loss));
  EXPECT_EQ(results.Find(1, Metric::kTestLoss)->result.verdict, stats::Verdict::kDiverged);
  EXPECT_FALSE(results.variants[1].test_loss);
  EXPECT_FALSE(results.Worse().empty());
}

TEST(StudyComparisonTest, AGateDoesNotPassAVariantThatDivergedThoughOneSeedGivesNoVerdict) {
  StudyPlan plan = OraclePlan();
  plan.seeds = {1};
  const auto loss = [](const std::string& name, uint64_t seed) -> std::optional<double> {
    if (name == "rmsnorm") return std::nullopt;
    return OracleLoss(name, seed);
  };
  const StudyResults results = Evaluate(plan, MakeCells(plan, loss));
  EXPECT_EQ(results.Find(1, Metric::kTestLoss)->result.verdict, stats::Verdict::kNone);
  EXPECT_FALSE(results.Worse().empty());
}

// Times are judged by a duel: study_duel_test.cc.
TEST(StudyComparisonTest, MemoryIsOnlyCounted) {
  const StudyPlan plan = OraclePlan();
  const StudyResults results = Evaluate(plan, MakeCells(plan, OracleLoss));
  const MetricComparison& memory = *results.Find(1, Metric::kPeakBytes);
  EXPECT_FALSE(memory.judged);
  EXPECT_EQ(*memory.result.difference, 0);
  EXPECT_TRUE(ResultsJson(results)["comparisons"][3]["verdict"].is_null());
}

TEST(StudyComparisonTest, TheMeanRateAgreesWithTheMeanTime) {
  const StudyPlan plan = OraclePlan();
  const auto time = [](const std::string&, uint64_t seed) { return seed == 1 ? 10.0 : 1.0; };
  const VariantSummary summary = Evaluate(plan, MakeCells(plan, OracleLoss, time)).variants[0];
  const double tokens = 10.0 * 16 * 256;  // steps, batch, window
  EXPECT_DOUBLE_EQ(*summary.time_s, 14.0 / 5);
  EXPECT_DOUBLE_EQ(*summary.tokens_per_s, tokens / (14.0 / 5));
}

TEST(StudyComparisonTest, TimesOfDifferentMachinesAreNotPaired) {
  const StudyPlan plan = OraclePlan();
  // Threads that spin while they wait are twice as fast alone, and a third as fast beside other programs.
  const std::function<void(Machine&)> changes[] = {[](Machine& machine) { machine.threads = 8; },
                                                   [](Machine& machine) { machine.jobs = 2; },
                                                   [](Machine& machine) { machine.wait_policy = "passive"; }};
  for (const auto& change : changes) {
    std::vector<Cell> cells = MakeCells(plan, OracleLoss);
    EXPECT_FALSE(Evaluate(plan, cells).machines_differ);
    for (Cell& cell : cells)
      if (cell.variant == 1 && cell.seed == 0) change(cell.record->machine);
    const StudyResults results = Evaluate(plan, cells);
    EXPECT_EQ(results.Find(1, Metric::kTime)->result.n, 4u);
    EXPECT_EQ(results.Find(1, Metric::kTime)->left_out, 1u);
    EXPECT_EQ(results.Find(1, Metric::kTestLoss)->result.n, 5u);
    EXPECT_TRUE(results.machines_differ);
  }
}

TEST(StudyComparisonTest, MissingCellsMakeVerdictsInterim) {
  const StudyPlan plan = OraclePlan();
  std::vector<Cell> cells = MakeCells(plan, OracleLoss);
  cells[4].status = CellStatus::kMissing;
  cells[4].record.reset();
  const StudyResults results = Evaluate(plan, cells);
  EXPECT_TRUE(results.comparisons[0].interim);
  EXPECT_EQ(results.comparisons[0].result.n, 4u);
  EXPECT_EQ(results.comparisons[0].result.diverged_variant, 0u);
  EXPECT_EQ(results.comparisons[0].explanation.rfind("interim", 0), 0u);
}

TEST(StudyComparisonTest, TheTextIntervalCarriesTheHeldOutBlocks) {
  const StudyPlan plan = OraclePlan();
  std::vector<Cell> cells = MakeCells(plan, OracleLoss);
  for (Cell& cell : cells) {  // the difference between variants itself differs from block to block
    cell.record->test_block_losses[0] += 0.02 * double(cell.variant);
    cell.record->test_block_losses[1] -= 0.02 * double(cell.variant);
  }
  const StudyResults results = Evaluate(plan, cells);
  const MetricComparison& loss = *results.Find(1, Metric::kTestLoss);
  ASSERT_TRUE(loss.text && loss.text->interval);
  EXPECT_LT(loss.text->interval->low, *loss.result.ci_low);
  EXPECT_GT(loss.text->interval->high, *loss.result.ci_high);
  EXPECT_NE(loss.explanation.find("(two-way, 5 seeds x 2 blocks): simultaneous 95% interval"),
            std::string::npos)
      << loss.explanation;
  const Json json = ResultsJson(results)["comparisons"][0];
  EXPECT_NEAR(json["text_block_sd"].get<double>(), 0.02 * std::numbers::sqrt2, 1e-9);
  EXPECT_EQ(json["text_blocks"], 2);
}

TEST(StudyComparisonTest, SeedsThatAreFarOutAreNamedAndKept) {
  const StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm", {11, 12, 13, 14, 15, 16, 17, 18}));
  const auto loss = [](const std::string& name, uint64_t seed) -> std::optional<double> {
    if (name == "layernorm") return 3.0;
    return seed == 14 ? 3.9 : 3.0 + 0.001 * double(seed % 3);
  };
  const StudyResults results = Evaluate(plan, MakeCells(plan, loss));
  const MetricComparison& comparison = *results.Find(1, Metric::kTestLoss);
  EXPECT_EQ(comparison.result.n, 8u);
  EXPECT_NE(comparison.explanation.find("part of every number here: seed 14; look"), std::string::npos)
      << comparison.explanation;
  EXPECT_EQ(ResultsJson(results)["comparisons"][0]["far_out_seeds"], Json::array({14}));
}

// S-09, S-19: a gate on speed follows the verdict on time, whose margin is that of the study.
TEST(StudyComparisonTest, AVariantIsSlowerWhereItsTimeIsWorse) {
  const auto slower = [](double ratio, double margin) {
    StudyPlan plan = OraclePlan();
    plan.speed_margin = margin;
    const DuelRecord duel =
        test::FakeDuelOf(plan, {.seconds = {0.02, ratio * 0.02}, .noise = 0.001, .autocorrelation = 0.2});
    return !Evaluate(plan, MakeCells(plan, OracleLoss), &duel).Slower().empty();
  };
  EXPECT_TRUE(slower(1.005, 0.002));
  EXPECT_FALSE(slower(1.005, 0.01));
  EXPECT_FALSE(slower(1.005, 0.05));
  EXPECT_TRUE(slower(2, 0.01));
  EXPECT_FALSE(slower(0.5, 0.01));
}

// S-23: adjusted values stand beside unadjusted ones, and are named.
TEST(StudyComparisonTest, HolmValuesAreGivenForOneMetricAtATime) {
  const StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3}));
  const StudyResults results =
      Evaluate(plan, MakeCells(plan, [](const std::string& name, uint64_t seed) {
                 return OracleLoss(name, seed).value() + (name == "no_norm" ? 0.5 + 0.01 * double(seed) : 0);
               }));
  const stats::Comparison &rms = results.Find(1, Metric::kTestLoss)->result,
                          &none = results.Find(2, Metric::kTestLoss)->result;
  EXPECT_NEAR(*none.holm_p, 2 * *none.p_value, 1e-12);
  EXPECT_NEAR(*rms.holm_p, std::max(*rms.p_value, *none.holm_p), 1e-12);
}

}  // namespace
}  // namespace normlab
