#include "normlab/stats/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"
#include "normlab/stats/bootstrap.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/effect_size.h"
#include "normlab/stats/equivalence.h"
#include "normlab/stats/multiplicity.h"
#include "normlab/stats/outliers.h"
#include "normlab/stats/paired_t.h"
#include "normlab/stats/power.h"
#include "normlab/stats/proportion.h"
#include "normlab/stats/sign_flip.h"
#include "normlab/stats/wilcoxon.h"

namespace normlab::stats {
namespace {

// The level at which a single divergence rate is shown; it decides nothing.
constexpr double kRateAlpha = 0.05;

// What the verdict looks at, in the unit of the differences (logs with log_ratio).
struct Evidence {
  std::vector<double> differences;
  std::vector<std::size_t> cells;  // of which each is
  double margin = 0;
  double alpha = 0;              // alpha_v
  bool spread_is_noise = false;  // all differences equal, up to the rounding of the values
  std::optional<PairedT> t;      // from n = 2 on
  std::optional<Interval> interval;
  Equivalence equivalence;
  std::optional<SignFlip> sign_flip;
};

void RequireRule(const ComparisonRule& rule) {
  RequireNotNegative("Compare", "margin", rule.margin);
  if (rule.look < 1) Fail("Compare: look is {}; the first look is 1", rule.look);
}

void RequireValue(std::optional<double> value, const ComparisonRule& rule, std::size_t cell) {
  if (!value) return;
  if (!std::isfinite(*value)) {
    Fail("Compare: cell {} holds {}; leave the value of a diverged run empty", cell, *value);
  }
  if (rule.log_ratio && !(*value > 0))
    Fail("Compare: cell {} holds {}; a ratio needs values above 0", cell, *value);
}

// Counts the runs and keeps the pairs in which both finished.
void Collect(std::span<const PairedCell> cells, const ComparisonRule& rule, Comparison& result,
             Evidence& evidence) {
  std::vector<double> variant;
  std::vector<double> baseline;
  double magnitude = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const PairedCell& cell = cells[i];
    if ((cell.variant && !cell.variant_ran) || (cell.baseline && !cell.baseline_ran)) {
      Fail("Compare: cell {} holds a value of a run that did not run", i);
    }
    RequireValue(cell.variant, rule, i);
    RequireValue(cell.baseline, rule, i);
    result.runs_variant += cell.variant_ran;
    result.runs_baseline += cell.baseline_ran;
    result.diverged_variant += cell.variant_ran && !cell.variant;
    result.diverged_baseline += cell.baseline_ran && !cell.baseline;
    if (!cell.variant || !cell.baseline) continue;
    variant.push_back(*cell.variant);
    baseline.push_back(*cell.baseline);
    evidence.cells.push_back(i);
    evidence.differences.push_back(rule.log_ratio ? std::log(*cell.variant / *cell.baseline)
                                                  : *cell.variant - *cell.baseline);
    const double size = rule.log_ratio ? std::max(1.0, std::abs(evidence.differences.back()))
                                       : std::max(std::abs(*cell.variant), std::abs(*cell.baseline));
    magnitude = std::max(magnitude, size);
  }
  result.n = evidence.differences.size();
  if (result.n == 0) return;
  result.mean_variant = Mean(variant);
  result.mean_baseline = Mean(baseline);
  if (!rule.log_ratio && *result.mean_baseline > 0)
    result.ratio = *result.mean_variant / *result.mean_baseline;

  // Each value is rounded to eps/2 of its size, so equal differences come out up to 2 eps apart: a constant
  // shift of 0.02 must not look like a spread of 1e-17 and a t of 1e15.
  const auto [least, most] = std::minmax_element(evidence.differences.begin(), evidence.differences.end());
  evidence.spread_is_noise = *most - *least <= 4 * std::numeric_limits<double>::epsilon() * magnitude;
}

void CountDivergence(Comparison& result) {
  const Count variant{result.diverged_variant, result.runs_variant};
  const Count baseline{result.diverged_baseline, result.runs_baseline};
  if (variant.runs > 0) {
    const Interval rate = ClopperPearson(variant, kRateAlpha);
    result.diverged_variant_low = rate.low;
    result.diverged_variant_high = rate.high;
  }
  if (baseline.runs > 0) {
    const Interval rate = ClopperPearson(baseline, kRateAlpha);
    result.diverged_baseline_low = rate.low;
    result.diverged_baseline_high = rate.high;
  }
  if (variant.runs > 0 && baseline.runs > 0 && variant.hits + baseline.hits > 0) {
    result.divergence_p = FisherExact(variant, baseline);
  }
}

// All that the n differences say, into `evidence` (for the verdict) and `result` (in the reader's unit).
void Estimate(const ComparisonRule& rule, Comparison& result, Evidence& evidence) {
  const std::span<const double> differences = evidence.differences;
  if (differences.empty()) return;
  const auto shown = [&](double value) { return rule.log_ratio ? std::exp(value) : value; };
  (rule.log_ratio ? result.ratio : result.difference) = shown(Mean(differences));
  if (result.n < 2) return;

  evidence.t = PairedTTest(differences);
  evidence.sign_flip = SignFlipTest(differences);
  result.sign_flip_p = evidence.sign_flip->p_value;
  if (const auto wilcoxon = WilcoxonSignedRank(differences)) result.wilcoxon_p = wilcoxon->p_value;
  result.sd = evidence.spread_is_noise ? 0.0 : evidence.t->sd;
  if (evidence.spread_is_noise) return;

  evidence.interval = MeanInterval(*evidence.t, evidence.alpha);
  evidence.equivalence = TestEquivalence(*evidence.t, evidence.margin, evidence.alpha);
  result.ci_low = shown(evidence.interval->low);
  result.ci_high = shown(evidence.interval->high);
  result.equivalence_ci_low = shown(evidence.equivalence.interval->low);
  result.equivalence_ci_high = shown(evidence.equivalence.interval->high);
  result.p_value = evidence.t->p_value;
  result.equivalence_p = evidence.equivalence.p_value;
  result.hedges_g = HedgesGz(*evidence.t);
  if (result.n >= kMinBootstrapSize) {
    if (const auto bca = BcaInterval(differences, {.alpha = evidence.alpha})) {
      result.bca_low = shown(bca->low);
      result.bca_high = shown(bca->high);
    }
  }

  if (result.n >= kMinMarkedSize) {
    for (std::size_t i : FarOut(differences)) result.far_out.push_back(evidence.cells[i]);
  }

  const double smallest = SmallestDetectable(result.n, evidence.t->sd, evidence.alpha);
  result.smallest_detectable = rule.log_ratio ? std::expm1(smallest) : smallest;
  if (rule.margin == 0) return;
  const SeedPlan plan = SeedsNeeded({.sd = evidence.t->sd,
                                     .n = result.n,
                                     .margin = evidence.margin,
                                     .alpha = evidence.alpha,
                                     .power = 0.8});
  result.seeds_needed = plan.seeds;
  result.seeds_needed_low = plan.low;
  result.seeds_needed_high = plan.high;
}

void Undecided(Comparison& result, std::string reason) {
  result.verdict = Verdict::kUndecided;
  result.reason = std::move(reason);
}

// True where divergence alone settles the matter.
bool JudgeDivergence(const Evidence& evidence, Comparison& result) {
  const bool variant_always = result.diverged_variant == result.runs_variant;
  if (variant_always && result.diverged_baseline == 0 && result.runs_variant >= 3 &&
      result.runs_baseline >= 3) {
    result.verdict = Verdict::kDiverged;
    result.test = "all runs of the variant diverged, none of the baseline";
    return true;
  }
  // Cross-multiplied, as run counts may differ.
  const bool more_often =
      result.diverged_variant * result.runs_baseline > result.diverged_baseline * result.runs_variant;
  if (more_often && result.divergence_p && *result.divergence_p <= evidence.alpha) {
    result.verdict = Verdict::kWorse;
    result.worse_by_divergence = true;
    result.test = "Fisher's exact test of divergence";
    return true;
  }
  return false;
}

// From 6 seeds on the distribution-free test must agree with the t interval, where it is able to.
bool SignFlipIsAsked(const Evidence& evidence) {
  return evidence.differences.size() >= 6 && evidence.sign_flip->smallest_p <= evidence.alpha;
}

void JudgeDifferences(const ComparisonRule& rule, const Evidence& evidence, Comparison& result) {
  const bool variant_diverged = result.diverged_variant > 0;
  const bool any_diverged = variant_diverged || result.diverged_baseline > 0;
  if (result.n < 2) {
    result.verdict = Verdict::kNone;
    const bool no_yardstick = result.runs_baseline > 0 && result.diverged_baseline == result.runs_baseline;
    result.reason = result.n == 1  ? "one seed cannot tell a difference from chance"
                    : no_yardstick ? "all runs of the baseline diverged, so there is nothing to compare with"
                                   : "no seed finished in both";
    return;
  }
  if (result.n == 2)
    return Undecided(
        result,
        "two seeds give no verdict, for their interval rests on one difference of two numbers; 3 or more do");

  result.test = "paired t";
  const std::span<const double> differences = evidence.differences;
  if (std::all_of(differences.begin(), differences.end(), [](double d) { return d == 0; })) {
    if (any_diverged) {
      return Undecided(result,
                       "the finished runs are identical, but a diverged run bars a verdict of sameness");
    }
    result.verdict = Verdict::kIdentical;
    result.test = "equal values";
    return;
  }
  if (evidence.spread_is_noise) {
    return Undecided(result,
                     "all differences are the same number, so their spread, and with it chance, is unknown");
  }
  const bool excluded = evidence.interval->Excludes(0);
  const bool flips_asked = SignFlipIsAsked(evidence);
  result.difference_shown = excluded && (!flips_asked || evidence.sign_flip->p_value <= evidence.alpha);
  if (evidence.equivalence.equivalent) {
    if (any_diverged) {
      return Undecided(result, variant_diverged ? "a diverged run of the variant bars equivalent"
                                                : "a diverged run of the baseline bars equivalent");
    }
    result.verdict = Verdict::kEquivalent;
    result.test = "two one-sided paired t";
    return;
  }
  if (!excluded) {
    return Undecided(result, fmt::format("the interval holds {}{}", rule.log_ratio ? 1 : 0,
                                         rule.margin > 0 ? " and reaches beyond the margin" : ""));
  }
  if (flips_asked) result.test = "paired t and sign-flip";
  if (!result.difference_shown) {
    return Undecided(result, "the t interval excludes 0, but the sign-flip test does not agree");
  }
  const bool better = rule.higher_is_better ? evidence.interval->low > 0 : evidence.interval->high < 0;
  if (better && variant_diverged) return Undecided(result, "a diverged run of the variant bars better");
  if (!better && result.diverged_baseline > 0) {
    return Undecided(result, "a diverged run of the baseline bars worse");
  }
  result.verdict = better ? Verdict::kBetter : Verdict::kWorse;
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNone:
      return "none";
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kEquivalent:
      return "equivalent";
    case Verdict::kIdentical:
      return "identical";
    case Verdict::kDiverged:
      return "diverged";
    case Verdict::kUndecided:
      return "undecided";
  }
  Fail("VerdictName: {} is no verdict", static_cast<int>(verdict));
}

Comparison Compare(std::span<const PairedCell> cells, const ComparisonRule& rule) {
  RequireRule(rule);
  Comparison result;
  Evidence evidence;
  evidence.alpha = AlphaPerVerdict(rule.alpha, rule.variants, rule.looks);
  evidence.margin = rule.log_ratio ? std::log1p(rule.margin) : rule.margin;
  result.confidence = 1 - evidence.alpha;
  result.exploratory = rule.look > rule.looks;

  Collect(cells, rule, result, evidence);
  CountDivergence(result);
  Estimate(rule, result, evidence);
  if (!JudgeDivergence(evidence, result)) JudgeDifferences(rule, evidence, result);
  return result;
}

void AdjustHolm(std::span<Comparison> family) {
  std::vector<double> p_values;
  for (const Comparison& comparison : family) p_values.push_back(comparison.p_value.value_or(1.0));
  const std::vector<double> adjusted = HolmAdjust(p_values);
  for (std::size_t i = 0; i < family.size(); ++i) {
    if (family[i].p_value) family[i].holm_p = adjusted[i];
  }
}

}  // namespace normlab::stats
