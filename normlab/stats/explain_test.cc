#include "normlab/stats/explain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "normlab/base/progress.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

using reference::kA;
using reference::kB;
using Cells = std::vector<PairedCell>;

constexpr ComparisonRule kOneLook = {.variants = 1, .looks = 1};

Cells Oracle(bool swapped = false) {
  Cells cells;
  for (std::size_t i = 0; i < kA.size(); ++i) {
    cells.push_back(swapped ? PairedCell{.variant = kB[i], .baseline = kA[i]}
                            : PairedCell{.variant = kA[i], .baseline = kB[i]});
  }
  return cells;
}

std::string Text(const Cells& cells, const ComparisonRule& rule, const Words& words = {}) {
  return Explain(Compare(cells, rule), rule, words);
}

bool Says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ExplainTest, BetterNamesAmountIntervalAndPairing) {
  EXPECT_EQ(Text(Oracle(true), kOneLook),
            "lower loss by 0.018 nats (simultaneous 95% interval 0.00761 to 0.0284; paired by seed, n = 5), "
            "on this text "
            "and set-up; may exceed the margin of 0.01 nats.");
}

TEST(ExplainTest, WorseSaysHigher) {
  const ComparisonRule rule = {.looks = 1, .margin = 0.005};
  EXPECT_EQ(Text(Oracle(), rule),
            "higher loss by 0.018 nats (simultaneous 95% interval 0.00761 to 0.0284; paired by seed, n = 5), "
            "on this text "
            "and set-up; exceeds the margin of 0.005 nats.");
}

TEST(ExplainTest, EquivalentIsNotEqual) {
  const std::string text =
      Text({{3.001, 3.0}, {3.009, 3.01}, {3.022, 3.02}, {2.998, 3.0}, {3.0305, 3.03}}, kOneLook);
  EXPECT_TRUE(Says(text, "the difference is below the margin of 0.01 nats stated beforehand")) << text;
  EXPECT_TRUE(Says(text, "not shown to be zero.")) << text;
  EXPECT_TRUE(Says(text, "simultaneous 90% interval, of the two one-sided tests, ")) << text;
  EXPECT_TRUE(Says(text, "paired by seed, n = 5")) << text;
}

TEST(ExplainTest, EquivalentMayBeRealAndSmall) {
  const ComparisonRule rule = {.looks = 1, .margin = 0.05};
  EXPECT_TRUE(Says(Text(Oracle(), rule), "smaller than 0.05 nats, but not zero.")) << Text(Oracle(), rule);
}

TEST(ExplainTest, AnUndecidedRatioIsHeldAgainstOne) {
  const Cells cells = {{1.02, 1.0}, {0.99, 1.01}, {1.03, 1.02}, {0.99, 1.0}, {1.03, 1.03}};
  ComparisonRule rule = kOneLook;
  rule.log_ratio = true;
  EXPECT_TRUE(Says(Explain(Compare(cells, rule), rule), "undecided: the interval holds 1"));
}

TEST(ExplainTest, ManySeedsAreReadableNumbers) {
  const Cells cells = {{3.5, 3.0}, {2.7, 3.01}, {3.03, 3.62}, {2.99, 3.3}, {3.93, 3.03}};
  const Comparison c = Compare(cells, kOneLook);
  ASSERT_GE(*c.seeds_needed_low, 1000);
  const std::string text = Explain(c, kOneLook);
  EXPECT_TRUE(Says(text, "; " + FormatCount(*c.seeds_needed_low) + " to " +
                             FormatCount(*c.seeds_needed_high) + " seeds would decide in 80% of studies"))
      << text;
}

// Differences 0.02, -0.02, 0.01, -0.01, 0.
const Cells kUndecided = {{3.02, 3.0}, {2.99, 3.01}, {3.03, 3.02}, {2.99, 3.0}, {3.03, 3.03}};

TEST(ExplainTest, UndecidedIsNotSameness) {
  const Comparison c = Compare(kUndecided, kOneLook);
  const std::string text = Explain(c, kOneLook);
  EXPECT_TRUE(Says(text, "undecided: the interval holds 0")) << text;
  EXPECT_TRUE(Says(text, "simultaneous 95% interval -0.0196 to 0.0196; paired by seed, n = 5")) << text;
  EXPECT_TRUE(
      Says(text, "not evidence of sameness; " + std::to_string(*c.seeds_needed_low) + " to " +
                     std::to_string(*c.seeds_needed_high) +
                     " seeds would decide in 80% of studies (these 5 see a difference of 0.0266 nats as "
                     "often)."))
      << text;
  for (const char* word : {"same ", "equal", "equivalent"}) EXPECT_FALSE(Says(text, word)) << text;
}

TEST(ExplainTest, EveryUndecidedHasANextStep) {
  Cells constant = {{3.25, 3.0}, {3.5, 3.25}, {3.75, 3.5}};
  EXPECT_TRUE(Says(Text(constant, kOneLook), "; not evidence of sameness; see that the seed reaches"));

  Cells diverged = Oracle();
  diverged.push_back({.variant = 3.0, .baseline = std::nullopt});
  EXPECT_TRUE(Says(Text(diverged, kOneLook), "a diverged run of the baseline bars worse"));
  EXPECT_TRUE(Says(Text(diverged, kOneLook), "find out why the run diverged."));

  // n = 2, and a sign-flip test that does not agree: more seeds.
  EXPECT_TRUE(Says(Text({{3.0, 3.1}, {3.0, 3.2}}, kOneLook), "seeds would decide in 80% of studies"));
  Cells darwin;
  for (double d : reference::kDarwin) darwin.push_back({.variant = 300 + d, .baseline = 300});
  const ComparisonRule rule = {.looks = 1, .margin = 5};
  EXPECT_TRUE(Says(Text(darwin, rule), "the sign-flip test does not agree"));
  EXPECT_TRUE(Says(Text(darwin, rule), "seeds would decide in 80% of studies"));
}

TEST(ExplainTest, APlanThatIsMetPointsAtTheMargin) {
  Cells cells;
  for (int i = 0; i < 60; ++i)
    cells.push_back({.variant = 3.0055 + (i % 2 == 0 ? 0.0213 : -0.0213), .baseline = 3});
  const Comparison c = Compare(cells, kOneLook);
  ASSERT_EQ(c.verdict, Verdict::kUndecided);
  ASSERT_LE(*c.seeds_needed_high, 60);
  EXPECT_TRUE(Says(Explain(c, kOneLook), "so the difference may lie close to the margin of 0.01 nats"));
}

// S-19: a margin of 0 leaves difference or no verdict, never equivalence.
TEST(ExplainTest, AMarginOfZeroIsNotNamed) {
  const ComparisonRule rule = {.looks = 1, .margin = 0};
  EXPECT_TRUE(Text(Oracle(), rule).ends_with(", on this text and set-up.")) << Text(Oracle(), rule);
  const std::string undecided = Text(kUndecided, rule);
  EXPECT_TRUE(Says(undecided, "undecided: the interval holds 0 (difference")) << undecided;
  EXPECT_TRUE(undecided.ends_with("; no margin was stated, so no number of seeds can show sameness."))
      << undecided;
}

TEST(ExplainTest, NotZeroIsSaidOnlyWhereADifferenceIsShown) {
  // Darwin's maize: of its mean t says that it is not 0 (p = 0.0497), and the sign-flip test does not
  // (0.0527).
  Cells cells;
  for (double d : reference::kDarwin) cells.push_back({.variant = 3 + 1e-4 * d, .baseline = 3});
  const Comparison c = Compare(cells, kOneLook);
  ASSERT_EQ(c.verdict, Verdict::kEquivalent);
  ASSERT_GT(*c.ci_low, 0);
  ASSERT_GT(*c.sign_flip_p, 0.05);
  EXPECT_TRUE(Says(Explain(c, kOneLook), "not shown to be zero.")) << Explain(c, kOneLook);
}

TEST(ExplainTest, OneSeed) {
  EXPECT_EQ(Text({{3.0, 3.1}}, kOneLook),
            "one seed cannot tell a difference from chance; a verdict needs 3 or more.");
}

TEST(ExplainTest, NothingToCompareWith) {
  const std::string text = Text(Cells(3, PairedCell{.variant = 3.0, .baseline = std::nullopt}), kOneLook);
  EXPECT_TRUE(text.starts_with("all runs of the baseline diverged, so there is nothing to compare with."))
      << text;
  EXPECT_TRUE(Says(text, "Variant: 0 of 3 runs diverged")) << text;
}

TEST(ExplainTest, TwoSeedsAreAsGoodAsUseless) {
  const std::string text = Text({{3.0, 3.1}, {3.0, 3.2}}, kOneLook);
  EXPECT_TRUE(Says(text, "two seeds give no verdict")) << text;
  EXPECT_TRUE(Says(text, "n = 2")) << text;
}

TEST(ExplainTest, Identical) {
  EXPECT_EQ(Text({{3.0, 3.0}, {3.1, 3.1}, {3.2, 3.2}}, kOneLook),
            "identical: the loss is the same number in all 3 pairs of runs; no interval.");
}

TEST(ExplainTest, DivergedHasARateAndNoLoss) {
  const Cells cells(5, PairedCell{.variant = std::nullopt, .baseline = 3.0});
  EXPECT_EQ(Text(cells, kOneLook), "5 of 5 runs diverged (95% interval 48% to 100%); no loss comparison.");
}

TEST(ExplainTest, WorseByDivergence) {
  Cells cells = {{2.9, 3.0}, {2.8, 3.0}};
  cells.resize(8, PairedCell{.variant = std::nullopt, .baseline = 3.0});
  EXPECT_EQ(Text(cells, kOneLook),
            "diverges more often: 6 of 8 runs diverged (95% interval 35% to 97%), against 0 of 8 runs "
            "diverged (95% "
            "interval 0% to 37%) of the baseline (Fisher's exact test, p = 0.007).");
}

TEST(ExplainTest, DivergenceNeverHidesBehindTheMean) {
  Cells cells = Oracle();
  cells.push_back({.variant = std::nullopt, .baseline = 3.0});
  const std::string text = Text(cells, kOneLook);
  EXPECT_TRUE(Says(text, "higher loss by")) << text;
  EXPECT_TRUE(
      Says(text, "Variant: 1 of 6 runs diverged (95% interval 0% to 64%). Baseline: 0 of 6 runs diverged"))
      << text;
}

TEST(ExplainTest, MoreSeedsDoNotLiftABar) {
  Cells cells = Oracle(true);
  cells.push_back({.variant = std::nullopt, .baseline = 3.0});
  const std::string text = Text(cells, kOneLook);
  EXPECT_TRUE(Says(text, "undecided: a diverged run of the variant bars better")) << text;
  EXPECT_FALSE(Says(text, "would decide")) << text;
}

TEST(ExplainTest, RatiosInPercent) {
  const ComparisonRule rule = {.looks = 1, .log_ratio = true};
  const Words words = {.metric = "time", .unit = "s", .setup = "this machine"};
  const std::string text =
      Text({{9.0, 10.0}, {9.01, 10.0}, {8.99, 10.0}, {9.02, 10.0}, {8.98, 10.0}}, rule, words);
  EXPECT_TRUE(
      Says(text,
           "lower time by 10% (ratio 0.9, simultaneous 95% interval 0.898 to 0.902; paired by seed, n = 5), "
           "on this machine; exceeds the margin of 1%."))
      << text;
}

TEST(ExplainTest, AnUndeclaredLookSaysSo) {
  const ComparisonRule rule = {.looks = 2, .look = 3};
  EXPECT_TRUE(Text(Oracle(), rule).starts_with("exploratory (look 3, where 2 were declared): "));
}

}  // namespace
}  // namespace normlab::stats
