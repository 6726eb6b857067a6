#include "normlab/stats/batch_verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/random.h"

namespace normlab::stats {
namespace {

constexpr ComparisonRule kRule{.looks = 1, .log_ratio = true};

// Twenty medians with exactly this mean and standard deviation.
std::vector<double> Medians(double mean, double sd, size_t batches = 20) {
  std::vector<double> medians(batches);
  const double n = static_cast<double>(batches);
  for (size_t j = 0; j < batches; ++j)
    medians[j] = mean + sd * std::sqrt((n - 1) / n) * (j % 2 == 0 ? 1 : -1);
  return medians;
}

TEST(BatchVerdictTest, TheIntervalIsStudentsOverTheBatches) {
  // t(0.975, 19) = 2.093024; t(0.95, 19) = 1.729133.
  const Comparison c = CompareBatches(Medians(std::log(0.97), 0.01), kRule);
  EXPECT_EQ(c.n, 20u);
  EXPECT_EQ(c.test, "duel");
  EXPECT_NEAR(*c.ratio, 0.97, 1e-12);
  EXPECT_NEAR(std::log(*c.ci_low), std::log(0.97) - 2.093024 * 0.01 / std::sqrt(20.0), 1e-8);
  EXPECT_NEAR(std::log(*c.equivalence_ci_high), std::log(0.97) + 1.729133 * 0.01 / std::sqrt(20.0), 1e-8);
  EXPECT_EQ(c.verdict, Verdict::kBetter);
  EXPECT_FALSE(c.seeds_needed);
  EXPECT_FALSE(c.bca_low);
  EXPECT_FALSE(c.mean_variant);
}

TEST(BatchVerdictTest, EquivalenceInsideTheMarginTakesPrecedence) {
  // 0.5% +- 0.23%: not zero, and below the margin of 1%.
  const Comparison c = CompareBatches(Medians(std::log(1.005), 0.005), kRule);
  EXPECT_GT(*c.ci_low, 1);
  EXPECT_EQ(c.verdict, Verdict::kEquivalent);
  ComparisonRule narrow = kRule;
  narrow.margin = 0.004;
  EXPECT_EQ(CompareBatches(Medians(std::log(1.005), 0.005), narrow).verdict, Verdict::kWorse);
}

TEST(BatchVerdictTest, AWideIntervalThatHoldsOneIsUndecided) {
  EXPECT_EQ(CompareBatches(Medians(0.004, 0.03), kRule).verdict, Verdict::kUndecided);
}

TEST(BatchVerdictTest, MoreVariantsMakeTheIntervalWider) {
  ComparisonRule of_four = kRule;
  of_four.variants = 4;
  // t(1 - 0.025 / 4, 19) = 2.759 for 2.093: 0.014 +- 0.0129 becomes 0.014 +- 0.0170.
  const std::vector<double> medians = Medians(0.014, 0.0275);
  EXPECT_EQ(CompareBatches(medians, kRule).verdict, Verdict::kWorse);
  EXPECT_EQ(CompareBatches(medians, of_four).verdict, Verdict::kUndecided);
  EXPECT_DOUBLE_EQ(CompareBatches(medians, of_four).confidence, 1 - 0.05 / 4);
}

TEST(BatchVerdictTest, FewerThanSixBatchesGiveNumbersAndNoVerdict) {
  const Comparison five = CompareBatches(Medians(0.5, 0.001, 5), kRule);
  EXPECT_EQ(five.verdict, Verdict::kNone);
  EXPECT_NE(five.reason.find("5 batches are complete, and a verdict needs 6"), std::string::npos);
  EXPECT_TRUE(five.ci_low);
  EXPECT_EQ(CompareBatches(Medians(0.5, 0.001, 6), kRule).verdict, Verdict::kWorse);
  EXPECT_EQ(CompareBatches({}, kRule).verdict, Verdict::kNone);
}

TEST(BatchVerdictTest, TurnedOverForRates) {
  ComparisonRule rate = kRule;
  rate.higher_is_better = true;
  const std::vector<double> time = Medians(std::log(0.9), 0.01);
  std::vector<double> speed = time;
  for (double& value : speed) value = -value;
  const Comparison a = CompareBatches(time, kRule), b = CompareBatches(speed, rate);
  EXPECT_EQ(a.verdict, Verdict::kBetter);
  EXPECT_EQ(b.verdict, Verdict::kBetter);
  EXPECT_NEAR(*a.ci_low * *b.ci_high, 1, 1e-12);
  EXPECT_NEAR(*a.ci_high * *b.ci_low, 1, 1e-12);
}

// Families of duels between equals: how often any of K verdicts says that there is a difference.
TEST(BatchVerdictTest, EqualsAreToldApartNoOftenerThanAlpha) {
  for (const int variants : {1, 4}) {
    ComparisonRule rule = kRule;
    rule.variants = variants;
    constexpr size_t kFamilies = 2000;
    size_t wrong = 0;
    for (uint64_t family = 0; family < kFamilies; ++family) {
      bool any = false;
      for (int v = 0; v < variants; ++v) {
        const RandomStream random(family, "medians " + std::to_string(v));
        std::vector<double> medians(20);
        for (size_t j = 0; j < medians.size(); ++j) medians[j] = 0.05 * random.Normal(j);
        const Verdict verdict = CompareBatches(medians, rule).verdict;
        any |= verdict == Verdict::kBetter || verdict == Verdict::kWorse;
      }
      wrong += any;
    }
    EXPECT_LE(wrong, 130u) << variants;  // 100, and three standard deviations
  }
}

TEST(BatchVerdictTest, SentencesSayHowMuchHowSureAndFromWhat) {
  const BatchWords words{.rounds_per_batch = 12};
  const auto explain = [&](double mean, double sd, size_t batches = 20) {
    return ExplainBatches(CompareBatches(Medians(mean, sd, batches), kRule), kRule, words);
  };
  const auto expect = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  };
  expect(explain(std::log(0.968), 0.01),
         {"3.2% less time per step (ratio 0.968, 95% interval 0.9635 to 0.9725; 20 batches of 12 rounds in "
          "turns); exceeds the margin of 1%."});
  expect(explain(0.012, 0.01), {"more time per step", "may lie within the margin of 1%"});
  expect(explain(0.001, 0.01),
         {"equivalent within 1%", "90% interval, of the two one-sided tests", "not shown to be zero"});
  expect(explain(0.005, 0.005), {"smaller than 1%, but not zero"});
  expect(explain(0.004, 0.03),
         {"undecided: the interval holds 1 and reaches beyond the margin of 1%", "not evidence of sameness"});
  expect(explain(0.2, 0.01, 3), {"no verdict on speed: 3 batches are complete, and a verdict needs 6"});
  ComparisonRule third_look = kRule;
  third_look.look = 3;
  expect(ExplainBatches(CompareBatches(Medians(0.5, 0.01), third_look), third_look, words),
         {"exploratory (look 3, where 1 was declared): 64.9% more time"});
  ComparisonRule of_four = kRule;
  of_four.variants = 4;
  expect(ExplainBatches(CompareBatches(Medians(0.5, 0.01), of_four), of_four, words),
         {"simultaneous 95% interval"});
}

TEST(BatchVerdictTest, WithoutASpreadThereIsNoChanceToMeasure) {
  EXPECT_EQ(CompareBatches(std::vector<double>(20, 0.0), kRule).verdict, Verdict::kIdentical);
  const Comparison same = CompareBatches(std::vector<double>(20, 0.1), kRule);
  EXPECT_EQ(same.verdict, Verdict::kUndecided);
  EXPECT_FALSE(same.ci_low);
  EXPECT_NE(ExplainBatches(same, kRule).find("undecided"), std::string::npos);
}

TEST(BatchVerdictTest, RefusesARuleOfDifferences) {
  EXPECT_THROW(CompareBatches(Medians(0, 0.1), {.log_ratio = false}), Error);
}

}  // namespace
}  // namespace normlab::stats
