#include "normlab/stats/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/testdata/cells.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

using reference::Cells;
using reference::kA;
using reference::kB;
using reference::Pair;
using reference::Shifted;

constexpr ComparisonRule kOneLook = {.variants = 1, .looks = 1};

// S-01: the same five seeds, paired.
TEST(ComparisonTest, PairedNumbersOfTheOracle) {
  const Comparison c = Compare(Pair(kA, kB), kOneLook);
  EXPECT_EQ(c.n, 5u);
  EXPECT_NEAR(*c.difference, 0.018, 1e-12);
  EXPECT_NEAR(*c.sd, 0.0083666, 5e-8);
  EXPECT_NEAR(*c.p_value, 0.00858, 5e-6);
  EXPECT_NEAR(*c.ci_low, 0.00761, 5e-6);
  EXPECT_NEAR(*c.ci_high, 0.02839, 5e-6);
  EXPECT_NEAR(*c.equivalence_ci_low, 0.01002, 1e-5);
  EXPECT_NEAR(*c.equivalence_ci_high, 0.02598, 5e-6);
  EXPECT_EQ(c.sign_flip_p, 0.0625);
  EXPECT_DOUBLE_EQ(c.confidence, 0.95);
  EXPECT_NEAR(*c.difference, *c.mean_variant - *c.mean_baseline, 1e-14);  // a few roundings of 3
  EXPECT_NEAR(*c.ratio, 3.112 / 3.094, 1e-12);
  EXPECT_FALSE(c.bca_low);  // n < 20
  EXPECT_EQ(c.verdict, Verdict::kWorse);
  EXPECT_EQ(c.test, "paired t");
}

TEST(ComparisonTest, LowerLossIsBetter) {
  EXPECT_EQ(Compare(Pair(kA, kB), kOneLook).verdict, Verdict::kWorse);
  EXPECT_EQ(Compare(Pair(kB, kA), kOneLook).verdict, Verdict::kBetter);
  EXPECT_LT(*Compare(Pair(kB, kA), kOneLook).difference, 0);
}

TEST(ComparisonTest, HigherIsBetterWhereTheRuleSaysSo) {
  ComparisonRule rule = kOneLook;
  rule.higher_is_better = true;
  EXPECT_EQ(Compare(Pair(kA, kB), rule).verdict, Verdict::kBetter);
  EXPECT_EQ(Compare(Pair(kB, kA), rule).verdict, Verdict::kWorse);
}

TEST(ComparisonTest, EquivalenceNeedsTheWholeIntervalInsideTheMargin) {
  ComparisonRule rule = kOneLook;
  rule.margin = 0.05;
  const Comparison wide = Compare(Pair(kA, kB), rule);
  EXPECT_EQ(wide.verdict, Verdict::kEquivalent);
  EXPECT_NEAR(*wide.equivalence_p, 0.00051, 5e-6);
  EXPECT_GT(*wide.ci_low, 0);  // real, and smaller than the margin: equivalence takes precedence
  rule.margin = 0.02;
  EXPECT_EQ(Compare(Pair(kA, kB), rule).verdict, Verdict::kWorse);
}

TEST(ComparisonTest, EquivalenceUsesTheShorterInterval) {
  ComparisonRule rule = kOneLook;
  rule.margin = 0.027;  // between the ends of the 90% and the 95% interval
  EXPECT_EQ(Compare(Pair(kA, kB), rule).verdict, Verdict::kEquivalent);
}

TEST(ComparisonTest, VariantsAndLooksShareTheErrorRate) {
  // p = 0.0086: enough alone, too much as one of four variants and two looks (0.05 / 8 = 0.00625).
  const ComparisonRule family = {.variants = 4, .looks = 2};
  const Comparison c = Compare(Pair(kA, kB), family);
  EXPECT_DOUBLE_EQ(c.confidence, 1 - 0.00625);
  EXPECT_EQ(c.verdict, Verdict::kUndecided);
  EXPECT_LT(*c.ci_low, 0);
  const ComparisonRule variants = {.variants = 8, .looks = 1};
  EXPECT_EQ(Compare(Pair(kA, kB), variants).verdict, Verdict::kUndecided);
  const ComparisonRule looks = {.variants = 1, .looks = 8};
  EXPECT_EQ(Compare(Pair(kA, kB), looks).verdict, Verdict::kUndecided);
}

TEST(ComparisonTest, DefaultIsTwoLooks) { EXPECT_DOUBLE_EQ(Compare(Pair(kA, kB), {}).confidence, 0.975); }

TEST(ComparisonTest, OneSeedGivesNoVerdict) {
  const Comparison c = Compare(Shifted({-0.5}), kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kNone);
  EXPECT_EQ(c.reason, "one seed cannot tell a difference from chance");
  EXPECT_DOUBLE_EQ(*c.difference, -0.5);
  EXPECT_FALSE(c.sd);
  EXPECT_FALSE(c.ci_low);
  EXPECT_FALSE(c.p_value);
  EXPECT_FALSE(c.seeds_needed);
}

TEST(ComparisonTest, NoSeedGivesNoVerdict) {
  const Comparison c = Compare({}, kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kNone);
  EXPECT_FALSE(c.difference);
  EXPECT_FALSE(c.divergence_p);
}

TEST(ComparisonTest, TwoSeedsAreAlwaysUndecided) {
  for (const std::vector<double>& d : {std::vector<double>{-0.5, -0.5001}, {0.0, 0.0}, {1e-6, 2e-6}}) {
    EXPECT_EQ(Compare(Shifted(d), kOneLook).verdict, Verdict::kUndecided);
  }
  const Comparison c = Compare(Shifted({0.01, 0.03}), kOneLook);
  EXPECT_NEAR((*c.ci_high - *c.ci_low) / 2 / *c.sd, 9.0, 0.05);  // 9.0 s at 0.05
}

TEST(ComparisonTest, EqualRunsAreIdentical) {
  const Comparison c = Compare(Pair(kA, kA), kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kIdentical);
  EXPECT_EQ(c.difference, 0.0);
  EXPECT_EQ(c.sd, 0.0);
  EXPECT_FALSE(c.ci_low);
  EXPECT_FALSE(c.equivalence_ci_low);
  EXPECT_FALSE(c.p_value);
  EXPECT_FALSE(c.smallest_detectable);
}

TEST(ComparisonTest, AConstantShiftIsUndecided) {
  const Comparison c = Compare(Shifted({0.25, 0.25, 0.25, 0.25}), kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kUndecided);
  EXPECT_FALSE(c.ci_low);
  EXPECT_NE(c.reason.find("spread"), std::string::npos);
}

TEST(ComparisonTest, RoundingIsNotASpread) {
  // 3.10 - 3.08 and 4.02 - 4.00 differ in the last bits only; a t of 1e14 is no evidence.
  const std::vector<double> variant = {3.10, 4.02, 3.07, 4.03, 2.95};
  const std::vector<double> baseline = {3.08, 4.00, 3.05, 4.01, 2.93};
  ASSERT_NE(variant[0] - baseline[0], variant[1] - baseline[1]);
  const Comparison c = Compare(Pair(variant, baseline), kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kUndecided);
  EXPECT_EQ(c.sd, 0.0);
  EXPECT_FALSE(c.p_value);
}

TEST(ComparisonTest, SixSeedsNeedTheSignFlipTestToo) {
  const Comparison agree = Compare(Shifted({0.11, 0.09, 0.1, 0.12, 0.08, 0.1, 0.11, 0.09}), kOneLook);
  EXPECT_EQ(agree.verdict, Verdict::kWorse);
  EXPECT_EQ(agree.test, "paired t and sign-flip");
}

TEST(ComparisonTest, SignFlipVetoesTheTInterval) {
  // t: p = 0.0497. Sign-flip: p = 0.0527 (Darwin's maize, in hundredths).
  std::vector<double> d;
  for (double value : reference::kDarwin) d.push_back(value / 64);
  const Comparison c = Compare(Shifted(d), kOneLook);
  EXPECT_GT(*c.ci_low, 0);
  EXPECT_NEAR(*c.sign_flip_p, 1726.0 / 32768, 1e-12);
  EXPECT_EQ(c.verdict, Verdict::kUndecided);
  EXPECT_NE(c.reason.find("sign-flip"), std::string::npos);
}

TEST(ComparisonTest, FiveSeedsDoNotNeedTheSignFlipTest) {
  // At 0.1 the sign-flip test of five could answer (0.0625), but it is asked from six on.
  EXPECT_EQ(Compare(Pair(kA, kB), {.alpha = 0.1, .looks = 1}).test, "paired t");
}

TEST(ComparisonTest, SignFlipIsNotAskedForWhereItCannotAnswer) {
  // n = 6: 2^-5 = 0.031 > 0.05 / 8. The t interval alone decides.
  const ComparisonRule family = {.variants = 4, .looks = 2};
  const Comparison c = Compare(Shifted({0.11, 0.09, 0.1, 0.12, 0.08, 0.1}), family);
  EXPECT_EQ(c.verdict, Verdict::kWorse);
  EXPECT_EQ(c.test, "paired t");
}

TEST(ComparisonTest, RatiosAreJudgedOnLogs) {
  ComparisonRule rule = kOneLook;
  rule.log_ratio = true;
  const std::vector<double> baseline = {10, 20, 40, 80, 160};
  std::vector<double> variant;
  for (std::size_t i = 0; i < 5; ++i)
    variant.push_back(baseline[i] * 0.9 * (1 + 0.001 * static_cast<double>(i)));
  const Comparison c = Compare(Pair(variant, baseline), rule);
  EXPECT_EQ(c.verdict, Verdict::kBetter);
  EXPECT_NEAR(*c.ratio, 0.9 * std::exp(std::log(1.001 * 1.002 * 1.003 * 1.004) / 5), 1e-12);
  EXPECT_NEAR(std::sqrt(*c.ci_low * *c.ci_high), *c.ratio, 1e-12);  // symmetric in logs
  EXPECT_FALSE(c.difference);

  // Swapping the two inverts the ratio and its interval.
  const Comparison swapped = Compare(Pair(baseline, variant), rule);
  EXPECT_NEAR(*swapped.ratio * *c.ratio, 1, 1e-12);
  EXPECT_NEAR(*swapped.ci_low * *c.ci_high, 1, 1e-12);
  EXPECT_EQ(swapped.verdict, Verdict::kWorse);
}

TEST(ComparisonTest, RatiosWithinOnePercentAreEquivalent) {
  ComparisonRule rule = kOneLook;
  rule.log_ratio = true;
  const std::vector<double> baseline = {100, 101, 99, 102, 100};
  const std::vector<double> variant = {100.2, 101.1, 99.3, 102.3, 100.1};
  EXPECT_EQ(Compare(Pair(variant, baseline), rule).verdict, Verdict::kEquivalent);
}

TEST(ComparisonTest, RatiosBeyondOnePercentAreNotEquivalent) {
  ComparisonRule rule = kOneLook;
  rule.log_ratio = true;
  const std::vector<double> baseline = {100, 101, 99, 102, 100};
  std::vector<double> variant;
  for (std::size_t i = 0; i < 5; ++i)
    variant.push_back(baseline[i] * (1.011 + 0.0001 * static_cast<double>(i % 2)));
  EXPECT_EQ(Compare(Pair(variant, baseline), rule).verdict, Verdict::kWorse);
}

TEST(ComparisonTest, BootstrapFromTwentySeedsOn) {
  std::vector<double> d;
  for (int i = 0; i < 20; ++i) d.push_back(0.01 * (i % 7) - 0.02);
  const Comparison c = Compare(Shifted(d), kOneLook);
  EXPECT_LT(*c.bca_low, *c.difference);
  EXPECT_GT(*c.bca_high, *c.difference);
  d.pop_back();
  EXPECT_FALSE(Compare(Shifted(d), kOneLook).bca_low);
}

TEST(ComparisonTest, AnUndeclaredLookIsExploratory) {
  EXPECT_FALSE(Compare(Pair(kA, kB), {.looks = 2, .look = 2}).exploratory);
  EXPECT_TRUE(Compare(Pair(kA, kB), {.looks = 2, .look = 3}).exploratory);
}

TEST(ComparisonTest, ADifferenceIsShownWhateverBarsAVerdict) {
  EXPECT_TRUE(Compare(Pair(kA, kB), kOneLook).difference_shown);
  EXPECT_TRUE(Compare(Pair(kA, kB), {.looks = 1, .margin = 0.05}).difference_shown);  // and equivalent
  EXPECT_FALSE(Compare(Shifted({0.02, -0.02, 0.01, -0.01, 0.0}), kOneLook).difference_shown);
  EXPECT_FALSE(Compare(Shifted({0.11, 0.110001}), kOneLook).difference_shown);  // two seeds show nothing
}

// S-19: speed margins of 0, 1 and 5% on one pair of times, 0.5 to 0.7% apart.
TEST(ComparisonTest, MarginsFromZeroUpDecideWhatIsEquivalent) {
  const std::vector<double> baseline = {100, 101, 99, 102, 100};
  const std::vector<double> variant = {100.5, 101.6, 99.6, 102.7, 100.6};
  for (const auto& [margin, verdict] :
       {std::pair{0.0, Verdict::kWorse}, {0.01, Verdict::kEquivalent}, {0.05, Verdict::kEquivalent}}) {
    const ComparisonRule rule = {.looks = 1, .margin = margin, .log_ratio = true};
    const Comparison c = Compare(Pair(variant, baseline), rule);
    EXPECT_EQ(c.verdict, verdict) << margin;
    EXPECT_TRUE(c.difference_shown);
    EXPECT_EQ(c.seeds_needed.has_value(), margin > 0);  // no margin, no plan
  }
  // At 0 even the tightest interval about 1 is no equivalence, and equal runs are still identical.
  const ComparisonRule zero = {.looks = 1, .margin = 0, .log_ratio = true};
  EXPECT_EQ(
      Compare(Pair(std::vector<double>{1 + 1e-9, 1 - 1e-9, 1}, std::vector<double>{1, 1, 1}), zero).verdict,
      Verdict::kUndecided);
  EXPECT_EQ(Compare(Pair(baseline, baseline), zero).verdict, Verdict::kIdentical);
}

TEST(ComparisonTest, FarOutCellsAreMarkedAndKept) {
  std::vector<double> d = {0.011, 0.009, 0.01, 0.012, 0.008, 0.01, 0.011};
  Cells cells = Shifted(d);
  // Indices are those of the cells, not of the pairs.
  cells.insert(cells.begin() + 2, {.variant = std::nullopt, .baseline = 3.1});
  cells.push_back({.variant = 3.5, .baseline = 3.0});
  const Comparison c = Compare(cells, kOneLook);
  EXPECT_EQ(c.n, 8u);
  EXPECT_EQ(c.far_out, (std::vector<std::size_t>{8}));
  EXPECT_NEAR(*c.difference, (0.071 + 0.5) / 8, 1e-12);
  cells.erase(cells.begin());
  EXPECT_TRUE(Compare(cells, kOneLook).far_out.empty());  // marks among seven would be chance
}

TEST(ComparisonTest, SeedsArePlannedForTheMargin) {
  // Same spread, another difference: the same plan.
  const Comparison near = Compare(Shifted({0.02, -0.02, 0.01, -0.01, 0.0}), kOneLook);
  const Comparison far = Compare(Shifted({1.02, 0.98, 1.01, 0.99, 1.0}), kOneLook);
  EXPECT_EQ(near.seeds_needed, far.seeds_needed);
  EXPECT_LE(*near.seeds_needed_low, *near.seeds_needed);
  EXPECT_LE(*near.seeds_needed, *near.seeds_needed_high);
  EXPECT_NEAR(*near.smallest_detectable / *near.sd, 1.7, 0.05);
}

TEST(ComparisonTest, HolmOverAFamilyDecidesNothing) {
  std::vector<Comparison> family = {Compare(Pair(kA, kB), kOneLook),
                                    Compare(Shifted({0.02, -0.02, 0.01}), kOneLook),
                                    Compare(Pair(kA, kA), kOneLook)};
  const Verdict before = family[0].verdict;
  AdjustHolm(family);
  EXPECT_DOUBLE_EQ(*family[0].holm_p, 3 * *family[0].p_value);  // the one without p counts in the size
  EXPECT_GE(*family[1].holm_p, *family[0].holm_p);
  EXPECT_FALSE(family[2].holm_p);
  EXPECT_EQ(family[0].verdict, before);
}

TEST(ComparisonTest, NamesOfVerdicts) {
  EXPECT_EQ(VerdictName(Verdict::kNone), "none");
  EXPECT_EQ(VerdictName(Verdict::kBetter), "better");
  EXPECT_EQ(VerdictName(Verdict::kWorse), "worse");
  EXPECT_EQ(VerdictName(Verdict::kEquivalent), "equivalent");
  EXPECT_EQ(VerdictName(Verdict::kIdentical), "identical");
  EXPECT_EQ(VerdictName(Verdict::kDiverged), "diverged");
  EXPECT_EQ(VerdictName(Verdict::kUndecided), "undecided");
}

TEST(ComparisonTest, RefusesBrokenInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Compare(Shifted({0.1, nan, 0.2}), kOneLook), Error);
  EXPECT_THROW(Compare(Cells{{.variant = std::nullopt, .baseline = nan}}, kOneLook), Error);
  EXPECT_THROW(Compare(Pair(kA, kB), {.margin = -0.01}), Error);
  EXPECT_THROW(Compare(Pair(kA, kB), {.margin = nan}), Error);
  EXPECT_THROW(Compare(Pair(kA, kB), {.variants = 0}), Error);
  EXPECT_THROW(Compare(Pair(kA, kB), {.look = 0}), Error);
  EXPECT_THROW(Compare(Cells{{.variant = -1, .baseline = 1}}, {.log_ratio = true}), Error);
  EXPECT_THROW(Compare(Cells{{.variant = 1, .baseline = 1, .variant_ran = false}}, kOneLook), Error);
}

}  // namespace
}  // namespace normlab::stats
