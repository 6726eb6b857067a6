#include "normlab/study/report/tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "normlab/study/testing/fake_results.h"

namespace normlab {
namespace {

std::vector<std::string> Titles(const ReportTable& table) {
  std::vector<std::string> titles;
  for (const ReportTable::Column& column : table.columns) titles.push_back(column.title);
  return titles;
}

std::vector<std::string> Texts(const std::vector<ReportField>& row) {
  std::vector<std::string> texts;
  for (const ReportField& field : row) texts.push_back(field.text);
  return texts;
}

TEST(ReportTablesTest, AComparisonNamesBothMeansTheDifferenceItsIntervalAndTheVerdict) {
  const StudyResults results = FakeResults({"base", "other"}, /*all_done=*/true);
  const ReportTable table = LossTable(results);
  EXPECT_EQ(Titles(table), (std::vector<std::string>{"variant", "mean, nats", "baseline's", "diff.",
                                                     "diff. %", "95% interval", "p", "n", "verdict"}));
  ASSERT_EQ(table.rows.size(), 1u);
  const std::vector<ReportField>& row = table.rows[0];
  const stats::Comparison& c = results.Find(1, Metric::kTestLoss)->result;
  EXPECT_EQ(row[0].text, "other");
  EXPECT_EQ(row[3].values, std::vector<double>{*c.difference});
  EXPECT_EQ(row[5].values, (std::vector<double>{*c.ci_low, *c.ci_high}));
  EXPECT_EQ(row[7].text, "3");
  EXPECT_EQ(row[8].text, "higher loss");
  for (const char* part :
       {"paired by seed over n seeds", "simultaneous over 1 comparison and 2 declared looks",
        "paired t test, unadjusted", "0.01 nats"})
    EXPECT_NE(table.note.find(part), std::string::npos) << part << " in " << table.note;
}

TEST(ReportTablesTest, TimesOfWholeRunsCarryNoVerdict) {
  const ReportTable table = WholeRunsTable(FakeResults({"base", "other"}, true));
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0][0].text, "other");
  EXPECT_EQ(std::ranges::count(Titles(table), "verdict"), 0);
  EXPECT_NE(table.note.find("decide nothing"), std::string::npos);
}

TEST(ReportTablesTest, MeansNameTheirIntervalTheirSpreadAndN) {
  const ReportTable table = VariantsTable(FakeResults({"base", "other", "none"}));
  const std::vector<std::string> titles = Titles(table);
  EXPECT_EQ(titles[2], "95% interval of the mean");
  EXPECT_EQ(titles[3], "sd");
  EXPECT_EQ(titles[4], "n");
  EXPECT_EQ(table.rows[1][2].text, "-");  // one run: no interval
  EXPECT_NE(table.note.find("Student's t, n seeds"), std::string::npos);
  EXPECT_NE(table.note.find("standard deviation of the test loss over seeds"), std::string::npos);
}

TEST(ReportTablesTest, WhatElseDiffersFromTheBaselineIsMarked) {
  const StudyResults results = FakeResults({"base", "other", "none"});
  const ReportTable table = NormsTable(results);
  EXPECT_EQ(Texts(table.rows[0]).back(), "baseline");
  EXPECT_EQ(table.rows[0][1].text, "layernorm (fused)");
  EXPECT_EQ(table.rows[0][2].text, "pre: norm1 and norm2 in 1 block, final_norm");
  EXPECT_EQ(table.rows[0][5].text, "yes");
  EXPECT_EQ(table.rows[1][5].text, "none");
  EXPECT_EQ(table.rows[1].back().text, "also differs: params -24");
  EXPECT_TRUE(table.rows[1].back().marked);

  StudyResults other = results;
  other.plan.variants[1].variant.config.model.norm_eps = 1e-6;
  EXPECT_EQ(NormsTable(other).rows[1].back().text,
            "also differs: params -24, norm_eps 1e-06 instead of 1e-05");
}

TEST(ReportTablesTest, RunsWhoseLogIsNotFiniteAreRankedAsFailed) {
  const StudyResults results = FakeResults({"base", "other"}, /*all_done=*/true);
  std::vector<CellLog> logs(results.cells.size());
  for (double step = 1; step <= 100; ++step) {
    logs[0].steps.loss.step.push_back(step);
    logs[0].steps.loss.value.push_back(std::fmod(step, 5) == 0 ? 2 : std::nan(""));
  }
  const ReportTable table = CellsTable(results, logs);
  const std::vector<ReportField>& last = table.rows.back();
  EXPECT_EQ(last[0].text, "base");
  EXPECT_EQ(last[1].text, "1");
  EXPECT_EQ(last[2].text, "done, but its log is broken");
  EXPECT_TRUE(last[2].marked);
  EXPECT_EQ(last.back().text, "loss nan from step 1 (80 of 100 steps)");
  EXPECT_EQ(table.rows[0][2].text, "done");
}

TEST(ReportTablesTest, RunsThatAreNotDoneStandLastWithTheirReason) {
  const ReportTable table = CellsTable(FakeResults({"base", "other", "none"}), {});
  ASSERT_EQ(table.rows.size(), 9u);
  EXPECT_EQ(table.rows[7][2].text.substr(0, 28), "diverged: loss became nan at");
  EXPECT_EQ(table.rows[8][2].text, "failed: the disk, \"full\",\nis full");
  EXPECT_EQ(table.rows[8][5].text, "-");
  EXPECT_TRUE(table.rows[8][5].values.empty());
}

TEST(ReportTablesTest, TheDuelShowsRatiosWithTheirIntervals) {
  const StudyResults results = FakeResults({"base", "other"}, true);
  EXPECT_TRUE(DuelTable(results, {}).rows.empty());
  const Json duel = ParseJson(R"({"batches": 20, "rounds_per_batch": 5, "autocorrelation": 0.12, "variants": [
    {"name": "base", "step_s": {"median": 0.002, "first_quartile": 0.0019, "third_quartile": 0.0022},
     "tokens_per_s": 1000, "ratio": null, "ci_low": null, "ci_high": null, "verdict": null,
     "interrupted_blocks": 0},
    {"name": "other", "step_s": {"median": 0.001, "first_quartile": 0.0009, "third_quartile": 0.0011},
     "tokens_per_s": 2000, "ratio": 0.5, "ci_low": 0.48, "ci_high": 0.52, "verdict": "better",
     "interrupted_blocks": 3}]})",
                              "duel");
  const ReportTable table = DuelTable(results, duel);
  EXPECT_EQ(Texts(table.rows[1]), (std::vector<std::string>{"other", "1", "[0.9, 1.1]", "2,000", "0.5000",
                                                            "[0.4800, 0.5200]", "3", "less time"}));
  EXPECT_NE(table.note.find("20 batches of 5 rounds"), std::string::npos);
  EXPECT_NE(table.note.find("first and third quartile"), std::string::npos);
}

}  // namespace
}  // namespace normlab
