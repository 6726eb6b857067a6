#include "normlab/study/export.h"

#include <gtest/gtest.h>

#include <clocale>
#include <sstream>

#include "normlab/base/testing/comma_locale.h"
#include "normlab/stats/descriptive.h"
#include "normlab/study/testing/fake_results.h"

namespace normlab {
namespace {

// RFC 4180, as another program reads it.
std::vector<std::vector<std::string>> ParseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1);
  std::string field;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',' || c == '\r') {
      rows.back().push_back(std::move(field));
      field.clear();
    } else if (c == '\n') {
      rows.emplace_back();
    } else {
      field += c;
    }
  }
  rows.pop_back();
  return rows;
}

// S-25.
TEST(ExportTest, CsvComesBackWithNamesThatHoldCommasQuotesAndLineBreaks) {
  const std::string nasty = "a,\"b\"\nc";
  const StudyResults results = FakeResults({"base", nasty, "none"});
  const auto rows = ParseCsv(ResultsCsv(results));
  ASSERT_EQ(rows.size(), 1 + results.cells.size());
  const auto column = [&](const std::string& name) {
    return static_cast<size_t>(std::ranges::find(rows[0], name) - rows[0].begin());
  };
  for (size_t i = 0; i < results.cells.size(); ++i) {
    const Cell& cell = results.cells[i];
    const std::vector<std::string>& row = rows[i + 1];
    ASSERT_EQ(row.size(), rows[0].size());
    EXPECT_EQ(row[column("variant")], results.variants[cell.variant].name);
    EXPECT_EQ(row[column("status")], Name(cell.status));
    EXPECT_EQ(row[column("reason")], cell.reason);
    if (cell.status == CellStatus::kDone)
      EXPECT_EQ(std::stod(row[column("test_loss")]), *cell.record->test_loss);  // every digit
    else
      EXPECT_EQ(row[column("test_loss")], "");
  }
}

// S-25: another program that reads the CSV comes to the same table.
TEST(ExportTest, CsvGivesTheMeansOfTheTable) {
  const StudyResults results = FakeResults({"base", "a,\"b\"\nc", "none"});
  const auto rows = ParseCsv(ResultsCsv(results));
  const auto column = [&](const std::string& name) {
    return static_cast<size_t>(std::ranges::find(rows[0], name) - rows[0].begin());
  };
  for (const VariantSummary& variant : results.variants) {
    std::vector<double> losses, times;
    for (size_t i = 1; i < rows.size(); ++i) {
      if (rows[i][column("variant")] != variant.name || rows[i][column("status")] != "done") continue;
      losses.push_back(std::stod(rows[i][column("test_loss")]));
      times.push_back(std::stod(rows[i][column("time_s")]));
    }
    EXPECT_EQ(losses.size(), variant.counts.done);
    EXPECT_EQ(stats::Mean(losses), variant.test_loss);
    EXPECT_EQ(stats::Mean(times), variant.time_s);
  }
}

// S-25.
TEST(ExportTest, DecimalsHaveADotWhateverTheLocale) {
  const StudyResults results = FakeResults({"base", "b", "c"});
  const std::string csv = ResultsCsv(results), json = DumpJson(ResultsJson(results)),
                    text = ResultsText(results);
  EXPECT_NE(csv.find("9358.25"), std::string::npos);
  const testing::CommaLocale comma;
  if (!comma) GTEST_SKIP() << "no locale with a decimal comma here (Debian: apt install locales)";
  ASSERT_STREQ(std::localeconv()->decimal_point, ",");
  EXPECT_EQ(ResultsCsv(results), csv);
  EXPECT_EQ(DumpJson(ResultsJson(results)), json);
  EXPECT_EQ(ResultsText(results), text);
}

// S-25.
TEST(ExportTest, NotFiniteNumbersAreKept) {
  StudyResults results = FakeResults({"base", "b", "c"});
  results.cells[0].record->train_loss = NAN;
  EXPECT_NE(ResultsCsv(results).find(",nan,"), std::string::npos);
  EXPECT_EQ(ResultsJson(results)["cells"][0]["train_loss"], "nan");
}

TEST(ExportTest, WhatDoesNotExistIsNull) {
  const Json json = ResultsJson(FakeResults({"base", "b", "c"}));
  EXPECT_EQ(json["schema_version"], 1);
  for (const Json& cell : json["cells"]) {
    if (cell["status"] == "done") continue;
    EXPECT_TRUE(cell["test_loss"].is_null());
    if (cell["status"] != "failed") continue;
    for (const char* key : {"time_s", "tokens", "tokens_per_s", "peak_bytes", "test_block_losses"})
      EXPECT_TRUE(cell[key].is_null()) << key;
  }
  EXPECT_EQ(json["study"]["complete"], false);
  EXPECT_EQ(json["study"]["counts"]["failed"], 1);
  EXPECT_TRUE(json["variants"][1]["sd_test_loss"].is_null());
}

size_t Width(const std::string& line) {
  return static_cast<size_t>(
      std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// S-07, S-08.
TEST(ExportTest, TextStaysWithin80ColumnsWithoutEscapes) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"handrolled_layernorm", "handrolled_rmsnorm", "no_norm"},
        {"norm_type=handrolled_layernorm,learning_rate=0.001",
         "norm_type=handrolled_rmsnorm,learning_rate=0.001,norm_eps=1e-05,"
         "beta2=0.95,warmup_fraction=0.1",
         "c"},
        {std::string(300, 'x'), "a,\"b\"\nc\x1b[31m", "\xc3\xa9t\xc3\xa9"}}) {
    const std::string text = ResultsText(FakeResults(names));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(Width(line), 80u) << line;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}

TEST(ExportTest, MarkdownHasTheTablesAndNoMarkupOfNames) {
  const std::string text = ResultsMarkdown(FakeResults({"base", "a|b<script>*", "none"}));
  for (const char* part :
       {"Interim, 8 of 9 runs have ended", "| variant |", "95% interval of the mean", "simultaneous",
        "a\\|b\\<script\\>\\*", "params -24", "Margin stated beforehand: 0.01 nats", "Seeds do not vary"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  EXPECT_EQ(text.find("<script>"), std::string::npos);
}

TEST(ExportTest, TheMeanOfEachVariantHasItsOwnInterval) {
  const StudyResults results = FakeResults({"base", "other"}, /*all_done=*/true);
  const Json variant = ResultsJson(results)["variants"][0];
  // 3.25, 3.253, 3.251: mean +- t(0.975, 2) sd / sqrt(3)
  const double mean = 3.2513333333333333, half = 4.302652729911275 * 0.0015275252316519 / std::sqrt(3.0);
  EXPECT_NEAR(variant["mean_test_loss_ci_low"].get<double>(), mean - half, 1e-9);
  EXPECT_NEAR(variant["mean_test_loss_ci_high"].get<double>(), mean + half, 1e-9);
}

TEST(ExportTest, TheArticlesNormsFitWithoutFolding) {
  const std::string text =
      ResultsText(FakeResults({"handrolled_layernorm", "handrolled_rmsnorm", "no_norm"}));
  EXPECT_NE(text.find("\nhandrolled_rmsnorm  "), std::string::npos) << text;
}

// The line below the first one that is `line`.
std::string LineAfter(const std::string& text, const std::string& line) {
  const size_t at = text.find("\n" + line + "\n");
  if (at == std::string::npos) return "no line " + line;
  const size_t begin = at + line.size() + 2;
  return text.substr(begin, text.find('\n', begin) - begin);
}

// S-07: both means, the difference in nats and in percent, interval, p and verdict; folded in 80 columns, one
// line where there is room.
TEST(ExportTest, TheTableOfLossesHasBothMeansDifferencesIntervalAndVerdict) {
  StudyResults results = FakeResults({"a_rather_long_base", "a_rather_long_other", "a_rather_long_third"});
  stats::Comparison& c = results.comparisons[1].result;
  ASSERT_EQ(results.comparisons[1].metric, Metric::kTestLoss);
  c.mean_variant = 2.75578;
  c.mean_baseline = 2.47991;
  c.difference = 0.27587;
  c.ratio = 1.11124;
  c.ci_low = 0.09929;
  c.ci_high = -0.45251;
  c.p_value = 0.00264;
  const std::string folded = ResultsText(results), wide = ResultsText(results, 120);
  EXPECT_EQ(LineAfter(folded, "test loss, nats"),
            "    mean  baseline    diff.  diff. %        95% interval       p  verdict");
  const std::string numbers = "2.7558    2.4799  +0.2759  +11.12%  [+0.0993, -0.4525]  0.0026  higher loss*";
  EXPECT_EQ(LineAfter(folded.substr(folded.find("test loss, nats\n")), "a_rather_long_third"),
            "  " + numbers);
  EXPECT_NE(wide.find("\na_rather_long_third  " + numbers + "\n"), std::string::npos) << wide;
}

// S-02: whatever stands after a number in brackets or as sd is named where it stands or in the legend.
TEST(ExportTest, SpreadsAndIntervalsAreNamed) {
  const std::string text = ResultsText(FakeResults({"base", "other", "none"}), 1000);
  for (const char* part :
       {"  95% interval  ", "sd: standard deviation of the test loss (nats)",
        "interval: simultaneous 95% interval, over 2 comparisons and 2 declared looks (98.75% each)",
        "paired by seed"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  EXPECT_EQ(text.find("+-"), std::string::npos);
  EXPECT_EQ(text.find("\xc2\xb1"), std::string::npos);
}

// S-23: p is unadjusted and says so, Holm is named with where it is.
TEST(ExportTest, AdjustedPValuesAreNamed) {
  const StudyResults results = FakeResults({"base", "other", "none"});
  EXPECT_NE(ResultsText(results, 1000).find("p: paired t test, unadjusted (Holm-adjusted in results.json)"),
            std::string::npos);
  const Json json = ResultsJson(results)["comparisons"][1];
  EXPECT_GE(json["holm_p"].get<double>(), json["p_value"].get<double>());
}

// S-19.
TEST(ExportTest, AMarginOfZeroIsNone) {
  StudyResults results = FakeResults({"base", "other", "none"});
  EXPECT_NE(ResultsText(results, 1000).find("Margins stated beforehand: 0.01 nats, 1% of time."),
            std::string::npos);
  results.plan.margin_nats = results.plan.speed_margin = 0;
  EXPECT_NE(ResultsText(results, 1000).find("Margins stated beforehand: none for losses, none for times."),
            std::string::npos);
}

TEST(ExportTest, TextNamesIntervalsCountsReasonsAndLimits) {
  const std::string text = ResultsText(FakeResults({"base", "other", "none"}));
  for (const char* part :
       {"9 planned: 7 done, 1 diverged, 1 failed, 0 missing", "simultaneous", "95%", "paired by seed",
        "Baseline: base", "other, seed 2: diverged", "other, seed 3: failed", "interim",
        "Seeds vary the initial weights", "no duel", "not judged without a duel", "24 parameters fewer"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

}  // namespace
}  // namespace normlab
