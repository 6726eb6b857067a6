// Divergence in a comparison: an outcome of its own, counted and tested, never averaged.

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "normlab/stats/comparison.h"
#include "normlab/stats/testdata/cells.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

using reference::AddDiverged;
using reference::Cells;
using reference::kA;
using reference::kB;
using reference::Pair;
using reference::Shifted;

constexpr ComparisonRule kOneLook = {.variants = 1, .looks = 1};

TEST(DivergenceTest, AllRunsDiverged) {
  Cells cells;
  AddDiverged(cells, 5);
  const Comparison c = Compare(cells, {.variants = 4, .looks = 2});
  EXPECT_EQ(c.verdict, Verdict::kDiverged);
  EXPECT_EQ(c.n, 0u);
  EXPECT_EQ(c.diverged_variant, 5u);
  EXPECT_EQ(c.runs_variant, 5u);
  EXPECT_NEAR(*c.diverged_variant_low, 0.478, 5e-4);
  EXPECT_EQ(c.diverged_variant_high, 1.0);
  EXPECT_NEAR(*c.divergence_p, 0.00794, 5e-6);
  EXPECT_FALSE(c.mean_variant);  // never averaged
  EXPECT_FALSE(c.difference);
}

TEST(DivergenceTest, TwoDivergedRunsAreNoVerdict) {
  Cells cells;
  AddDiverged(cells, 2);
  EXPECT_EQ(Compare(cells, kOneLook).verdict, Verdict::kNone);
  AddDiverged(cells, 1);
  EXPECT_EQ(Compare(cells, kOneLook).verdict, Verdict::kDiverged);

  // Two runs of the variant do not become enough by a longer baseline.
  Cells two(5, PairedCell{.variant = std::nullopt, .baseline = 3.1, .variant_ran = false});
  two[0].variant_ran = two[1].variant_ran = true;
  EXPECT_EQ(Compare(two, {}).verdict, Verdict::kNone);
}

TEST(DivergenceTest, DivergingMoreOftenIsWorse) {
  Cells cells = Shifted({-0.2, -0.21});
  AddDiverged(cells, 6);
  const Comparison c = Compare(cells, kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kWorse);
  EXPECT_TRUE(c.worse_by_divergence);
  EXPECT_NEAR(*c.divergence_p, 0.00699, 5e-6);
  EXPECT_EQ(c.n, 2u);
}

TEST(DivergenceTest, DivergenceUsesTheSharedErrorRateToo) {
  Cells cells = Shifted({-0.2, -0.21});
  AddDiverged(cells, 6);
  EXPECT_NE(Compare(cells, {.variants = 4, .looks = 2}).verdict, Verdict::kWorse);  // 0.00699 > 0.00625
}

TEST(DivergenceTest, DivergingLessOftenIsNotWorse) {
  Cells cells = Shifted({-0.2, -0.21});
  for (int i = 0; i < 6; ++i) cells.push_back({.variant = 3.0, .baseline = std::nullopt});
  const Comparison c = Compare(cells, kOneLook);
  EXPECT_NEAR(*c.divergence_p, 0.00699, 5e-6);
  EXPECT_EQ(c.verdict, Verdict::kUndecided);  // n = 2
  EXPECT_EQ(c.diverged_baseline, 6u);
}

TEST(DivergenceTest, ADivergedRunBarsBetter) {
  Cells cells = Shifted({-0.11, -0.09, -0.1, -0.12, -0.08, -0.1});
  ASSERT_EQ(Compare(cells, kOneLook).verdict, Verdict::kBetter);
  AddDiverged(cells, 1);
  const Comparison c = Compare(cells, kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kUndecided);
  EXPECT_NE(c.reason.find("bars better"), std::string::npos);
}

TEST(DivergenceTest, ADivergedRunBarsEquivalent) {
  Cells cells = Shifted({0.001, -0.001, 0.002, -0.002, 0.0005, 0.0});
  ASSERT_EQ(Compare(cells, kOneLook).verdict, Verdict::kEquivalent);
  AddDiverged(cells, 1);
  EXPECT_EQ(Compare(cells, kOneLook).verdict, Verdict::kUndecided);
}

TEST(DivergenceTest, ADivergedRunDoesNotBarWorse) {
  Cells cells = Shifted({0.11, 0.09, 0.1, 0.12, 0.08, 0.1});
  AddDiverged(cells, 1);
  EXPECT_EQ(Compare(cells, kOneLook).verdict, Verdict::kWorse);
}

TEST(DivergenceTest, ADivergedBaselineDoesNotBarBetter) {
  Cells cells = Shifted({-0.11, -0.09, -0.1, -0.12, -0.08, -0.1});
  cells.push_back({.variant = 3.0, .baseline = std::nullopt});
  const Comparison c = Compare(cells, kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kBetter);
  EXPECT_EQ(c.n, 6u);
}

// The mirror of the two above: without the seed on which the baseline failed the baseline looks too good.
TEST(DivergenceTest, ADivergedBaselineBarsWorseAndEquivalent) {
  Cells worse = Shifted({0.11, 0.09, 0.1, 0.12, 0.08, 0.1});
  worse.push_back({.variant = 3.0, .baseline = std::nullopt});
  const Comparison c = Compare(worse, kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kUndecided);
  EXPECT_NE(c.reason.find("of the baseline bars worse"), std::string::npos);
  EXPECT_TRUE(c.difference_shown);

  Cells equivalent = Shifted({0.001, -0.001, 0.002, -0.002, 0.0005, 0.0});
  equivalent.push_back({.variant = 3.0, .baseline = std::nullopt});
  EXPECT_EQ(Compare(equivalent, kOneLook).verdict, Verdict::kUndecided);
}

TEST(DivergenceTest, SwappingTheTwoMirrorsTheVerdictOfDifferences) {
  const auto swapped = [](Cells cells) {
    for (PairedCell& cell : cells) cell = {.variant = cell.baseline, .baseline = cell.variant};
    return cells;
  };
  for (double sign : {1.0, -1.0}) {
    for (int diverged : {0, 1}) {
      Cells cells = Shifted({0.11 * sign, 0.09 * sign, 0.1 * sign, 0.12 * sign, 0.08 * sign, 0.1 * sign});
      AddDiverged(cells, diverged);
      const Verdict there = Compare(cells, kOneLook).verdict;
      const Verdict back = Compare(swapped(cells), kOneLook).verdict;
      EXPECT_EQ(back, there == Verdict::kBetter  ? Verdict::kWorse
                      : there == Verdict::kWorse ? Verdict::kBetter
                                                 : there);
    }
  }
}

TEST(DivergenceTest, NothingCanBeComparedWithABaselineThatAlwaysDiverges) {
  const Comparison c = Compare(Cells(5, PairedCell{.variant = 3.0, .baseline = std::nullopt}), kOneLook);
  EXPECT_EQ(c.verdict, Verdict::kNone);
  EXPECT_NE(c.reason.find("all runs of the baseline diverged"), std::string::npos);
}

TEST(DivergenceTest, ADivergedRunBarsIdentical) {
  Cells cells = Pair(kA, kA);
  AddDiverged(cells, 1);
  EXPECT_EQ(Compare(cells, kOneLook).verdict, Verdict::kUndecided);
}

TEST(DivergenceTest, MissingRunsAreNotDivergence) {
  Cells cells = Pair(kA, kB);
  cells.push_back({.variant = std::nullopt, .baseline = 3.0, .variant_ran = false});
  const Comparison c = Compare(cells, kOneLook);
  EXPECT_EQ(c.diverged_variant, 0u);
  EXPECT_EQ(c.runs_variant, 5u);
  EXPECT_EQ(c.runs_baseline, 6u);
  EXPECT_EQ(c.n, 5u);
  EXPECT_EQ(c.verdict, Verdict::kWorse);
}

}  // namespace
}  // namespace normlab::stats
