#include "normlab/study/export.h"

#include <gtest/gtest.h>

#include <clocale>
#include <sstream>

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

TEST(ExportTest, DecimalsHaveADotWhateverTheLocale) {
  const StudyResults results = FakeResults({"base", "b", "c"});
  const std::string csv = ResultsCsv(results), json = DumpJson(ResultsJson(results)),
                    text = ResultsText(results);
  for (const char* locale : {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "C.UTF-8"}) {
    if (std::setlocale(LC_ALL, locale) == nullptr) continue;
    EXPECT_EQ(ResultsCsv(results), csv) << locale;
    EXPECT_EQ(DumpJson(ResultsJson(results)), json) << locale;
    EXPECT_EQ(ResultsText(results), text) << locale;
  }
  std::setlocale(LC_ALL, "C");
  EXPECT_NE(csv.find("9358.25"), std::string::npos);
}

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
       {"No verdict yet: 8 of 9 runs have ended", "| variant |", "95% interval of the mean", "simultaneous",
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

TEST(ExportTest, TextNamesIntervalsCountsReasonsAndLimits) {
  const std::string text = ResultsText(FakeResults({"base", "other", "none"}));
  for (const char* part :
       {"9 planned: 7 done, 1 diverged, 1 failed, 0 missing", "simultaneous", "95%", "paired by seed",
        "Baseline: base", "other, seed 2: diverged", "other, seed 3: failed", "interim",
        "Seeds vary the initial weights", "weaker evidence", "24 parameters fewer"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

}  // namespace
}  // namespace normlab
