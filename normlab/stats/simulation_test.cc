// Error rates and coverage of simulated studies: what the rules promise, measured. Every rate is printed.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "normlab/stats/bootstrap.h"
#include "normlab/stats/comparison.h"
#include "normlab/stats/outliers.h"
#include "normlab/stats/paired_t.h"
#include "normlab/stats/two_way.h"

namespace normlab::stats {
namespace {

constexpr int kStudies = 2000;
constexpr double kMargin = 0.01;
// 5% of 2000 studies plus three standard errors (sqrt(2000 0.05 0.95) = 9.7).
constexpr int kMostFalse = 130;

void Report(const std::string& what, int count, std::uint64_t seed) {
  std::cout << fmt::format("[     rate ] {}: {} of {} ({:.2f}%), seed {}\n", what, count, kStudies,
                           100.0 * count / kStudies, seed);
}

bool IsFalse(Verdict verdict, double truth) {
  switch (verdict) {
    case Verdict::kBetter:
      return truth >= 0;
    case Verdict::kWorse:
      return truth <= 0;
    case Verdict::kEquivalent:
      return std::abs(truth) >= kMargin;
    case Verdict::kIdentical:
    case Verdict::kDiverged:
      return true;
    default:
      return false;
  }
}

struct Scenario {
  const char* name;
  std::vector<double> truths;      // one true difference a variant
  double sd;                       // of one run about its seed's level; a difference has sqrt(2) of it
  std::vector<std::size_t> looks;  // seeds at each look
  bool skewed = false;
};

// The name alone in test listings.
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

// Studies in which any variant gets a false verdict at any look.
int FalseStudies(const Scenario& scenario, std::uint64_t seed) {
  std::mt19937_64 stream(seed);
  std::normal_distribution<double> normal;
  const auto noise = [&] {
    // Log-normal with the same spread, skewness 6.2: rare bad runs.
    if (!scenario.skewed) return scenario.sd * normal(stream);
    return scenario.sd * (std::exp(normal(stream)) - std::exp(0.5)) /
           std::sqrt((std::exp(1.0) - 1) * std::exp(1.0));
  };
  const ComparisonRule rule = {.variants = static_cast<int>(scenario.truths.size()),
                               .looks = static_cast<int>(scenario.looks.size()),
                               .margin = kMargin};
  int false_studies = 0;
  for (int study = 0; study < kStudies; ++study) {
    const std::size_t seeds = scenario.looks.back();
    std::vector<std::vector<PairedCell>> cells(scenario.truths.size());
    for (std::size_t i = 0; i < seeds; ++i) {
      const double level = 3 + 0.05 * normal(stream);  // shared by the seed: pairing removes it
      const double baseline = level + noise();
      for (std::size_t v = 0; v < cells.size(); ++v) {
        cells[v].push_back({.variant = level + scenario.truths[v] + noise(), .baseline = baseline});
      }
    }
    bool any_false = false;
    for (std::size_t look_seeds : scenario.looks) {
      for (std::size_t v = 0; v < cells.size() && !any_false; ++v) {
        const Comparison c = Compare(std::span(cells[v]).first(look_seeds), rule);
        any_false = IsFalse(c.verdict, scenario.truths[v]);
      }
    }
    false_studies += any_false;
  }
  return false_studies;
}

class FalseVerdicts : public testing::TestWithParam<Scenario> {};

TEST_P(FalseVerdicts, StayBelowTheRateOfTheStudy) {
  const std::uint64_t seed = 20250;
  const int count = FalseStudies(GetParam(), seed);
  Report(fmt::format("false verdicts, {}", GetParam().name), count, seed);
  EXPECT_LE(count, kMostFalse);
}

INSTANTIATE_TEST_SUITE_P(
    SimulatedStudies, FalseVerdicts,
    testing::Values(Scenario{"K1_zero_noisy", {0}, 0.02, {5}}, Scenario{"K1_zero_quiet", {0}, 0.004, {5}},
                    Scenario{"K1_zero_eight_seeds", {0}, 0.02, {8}},
                    Scenario{"K1_at_margin", {kMargin}, 0.004, {5}},
                    Scenario{"K1_at_minus_margin", {-kMargin}, 0.004, {5}},
                    Scenario{"K1_at_margin_quiet", {kMargin}, 0.001, {5}},
                    Scenario{"K1_zero_two_looks", {0}, 0.02, {5, 10}},
                    Scenario{"K4_zero_noisy", {0, 0, 0, 0}, 0.02, {5}},
                    Scenario{"K4_zero_quiet", {0, 0, 0, 0}, 0.004, {5}},
                    Scenario{"K4_at_margin", {kMargin, kMargin, kMargin, kMargin}, 0.003, {5}},
                    Scenario{"K4_at_minus_margin", {-kMargin, -kMargin, -kMargin, -kMargin}, 0.003, {5}},
                    Scenario{"K4_mixed", {0, kMargin, 0, kMargin}, 0.004, {5}},
                    Scenario{"K4_mixed_two_looks", {0, kMargin, 0, -kMargin}, 0.004, {5, 10}},
                    Scenario{"K4_zero_skewed", {0, 0, 0, 0}, 0.02, {5}, true}),
    [](const testing::TestParamInfo<Scenario>& scenario) { return scenario.param.name; });

// Studies whose interval holds the true mean 0.
template <class Draw, class MakeInterval>
int Covered(std::uint64_t seed, std::size_t n, const Draw& draw, const MakeInterval& make_interval) {
  std::mt19937_64 stream(seed);
  int covered = 0;
  for (int study = 0; study < kStudies; ++study) {
    std::vector<double> differences(n);
    for (double& difference : differences) difference = draw(stream);
    covered += make_interval(differences).Holds(0);
  }
  return covered;
}

Interval TInterval(std::span<const double> differences) {
  return *MeanInterval(PairedTTest(differences), 0.05);
}

TEST(CoverageTest, TIntervalOfNormalDifferences) {
  std::normal_distribution<double> normal;
  for (std::size_t n : {3, 5, 8, 20}) {
    normal.reset();
    const int covered = Covered(
        n, n, [&](auto& stream) { return normal(stream); }, TInterval);
    Report(fmt::format("coverage of t, normal differences, n = {}", n), covered, n);
    EXPECT_GE(covered, 0.93 * kStudies);
    EXPECT_LE(covered, 0.97 * kStudies);
  }
}

TEST(CoverageTest, TIntervalOfSkewedCellsUnderTheNull) {
  std::lognormal_distribution<double> skewed;
  for (std::size_t n : {3, 5, 8, 20}) {
    skewed.reset();
    const auto draw = [&](auto& stream) {
      const double variant = skewed(stream);
      return variant - skewed(stream);
    };
    const int covered = Covered(100 + n, n, draw, TInterval);
    Report(fmt::format("coverage of t, skewed cells, n = {}", n), covered, 100 + n);
    EXPECT_GE(covered, 0.93 * kStudies);
    EXPECT_LE(covered, 0.99 * kStudies);
  }
}

// Seeds and blocks of text both drawn: the interval that carries both, and the share of it that knows the
// seeds alone.
TEST(CoverageTest, TwoWayIntervalOfSeedsAndText) {
  constexpr std::size_t kSeeds = 5, kBlocks = 32;
  std::normal_distribution<double> normal;
  for (const double block_sd : {0.0, 0.5, 2.0}) {
    std::mt19937_64 stream(300);
    normal.reset();
    int two_way = 0;
    int seeds_alone = 0;
    for (int study = 0; study < kStudies; ++study) {
      std::vector<double> blocks(kBlocks);
      for (double& block : blocks) block = block_sd * normal(stream);
      std::vector<double> values;
      std::vector<double> means;
      for (std::size_t i = 0; i < kSeeds; ++i) {
        const double seed = 0.2 * normal(stream);
        double sum = 0;
        for (const double block : blocks) {
          values.push_back(seed + block + normal(stream));
          sum += values.back();
        }
        means.push_back(sum / kBlocks);
      }
      two_way += TwoWayInterval(values, kSeeds, kBlocks, 0.05).interval->Holds(0);
      seeds_alone += TInterval(means).Holds(0);
    }
    Report(fmt::format("coverage of seeds and text, sd of a block {}", block_sd), two_way, 300);
    Report(fmt::format("coverage of t over seeds alone, sd of a block {}", block_sd), seeds_alone, 300);
    EXPECT_GE(two_way, 0.9 * kStudies);
    EXPECT_LE(two_way, 0.99 * kStudies);
    EXPECT_LE(seeds_alone, two_way + 3 * 10);  // never the better of the two, but by chance
  }
}

TEST(MarkTest, FewSamplesOfNormalValuesHaveOneFarOut) {
  std::normal_distribution<double> normal;
  for (std::size_t n : {8, 10, 20}) {
    std::mt19937_64 stream(400 + n);
    normal.reset();
    int marked = 0;
    for (int study = 0; study < kStudies; ++study) {
      std::vector<double> values(n);
      for (double& value : values) value = normal(stream);
      marked += !FarOut(values).empty();
    }
    Report(fmt::format("normal samples with a value far out, n = {}", n), marked, 400 + n);
    EXPECT_LE(marked, 0.065 * kStudies);
  }
}

TEST(CoverageTest, BcaIntervalFromTwentySeedsOn) {
  std::normal_distribution<double> normal;
  const auto bca = [](std::span<const double> differences) {
    // No interval counts as one that misses.
    return BcaInterval(differences, {.resamples = 1999}).value_or(Interval{1, 1});
  };
  const int at_twenty = Covered(
      200, 20, [&](auto& stream) { return normal(stream); }, bca);
  Report("coverage of BCa, n = 20", at_twenty, 200);
  EXPECT_GE(at_twenty, 0.86 * kStudies);
  EXPECT_LE(at_twenty, 0.97 * kStudies);

  // Why it is not shown for few seeds.
  normal.reset();
  const int at_five = Covered(
      201, 5, [&](auto& stream) { return normal(stream); }, bca);
  Report("coverage of BCa, n = 5 (never shown)", at_five, 201);
  EXPECT_LT(at_five, 0.9 * kStudies);
}

}  // namespace
}  // namespace normlab::stats
