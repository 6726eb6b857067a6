#pragma once
// The verdict on one metric of a variant against a baseline, from runs paired by seed (docs/statistics.md).
//   alpha_v = alpha / (K L)                        K variants against the one baseline, L declared looks
//   I_D = mean(d) +- t(1 - alpha_v/2, n-1) s/sqrt(n),   I_E = mean(d) +- t(1 - alpha_v, n-1) s/sqrt(n)
//   n = 1 none · n = 2 undecided · n >= 3: I_E inside (-m, m) equivalent, else I_D without 0 better or worse,
//   else undecided · n >= 6 where 2^(1-n) <= alpha_v: better and worse need the sign-flip p <= alpha_v too
// d = variant - baseline, or log(variant / baseline) with log_ratio and m = log(1 + margin). A margin of 0
// leaves better, worse and undecided.
// Divergence is an outcome of its own: diverged losses are never averaged. The seeds that finished are no
// fair sample, so a diverged cell of the variant bars "better", one of the baseline "worse", either of the
// two "equivalent" and "identical".
// Assumes: as paired_t.h.   Pure and deterministic.
// Throws Error on a rule out of range, a value that is not finite, or one not above 0 with log_ratio.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normlab::stats {

enum class Verdict {
  kNone,  // fewer than two seeds finished in both
  kBetter,
  kWorse,       // by the metric, or by diverging more often (Comparison::worse_by_divergence)
  kEquivalent,  // the difference is below the margin; not shown to be zero
  kIdentical,   // every difference is exactly 0
  kDiverged,    // all runs of the variant diverged, none of the baseline
  kUndecided,
};

// "better" and so on; "none" for kNone (null in results.json).
std::string_view VerdictName(Verdict verdict);

struct ComparisonRule {
  double alpha = 0.05;     // of the whole study, shared out over variants and looks
  int variants = 1;        // K: variants compared with the baseline
  int looks = 2;           // L: looks at the data declared beforehand
  int look = 1;            // which one this is; above `looks`: exploratory
  double margin = 0.01;    // m, in the unit of the metric; with log_ratio a fraction; 0: no equivalence
  bool log_ratio = false;  // times and rates: judged by ratio
  bool higher_is_better = false;
};

// One seed of variant and baseline. Empty = that run diverged. A run that did not happen (failed, missing) is
// marked so; it counts neither as finished nor as diverged.
struct PairedCell {
  std::optional<double> variant, baseline;
  bool variant_ran = true, baseline_ran = true;
};

// Empty = the number does not exist. All levels are 1 - alpha_v unless said otherwise.
// With log_ratio: difference is empty; ratio is exp(mean log ratio); ci_*, equivalence_ci_* and bca_* are
// ratios (1 = same); sd is that of the log ratios; smallest_detectable is a fraction (0.02 = 2%). Without:
// ratio is mean_variant / mean_baseline, without interval, where the latter is above 0.
struct Comparison {
  std::size_t n = 0;                                              // seeds that finished in both
  std::optional<double> mean_variant, mean_baseline;              // over these n seeds
  std::optional<double> difference, ratio;                        // variant - baseline, variant / baseline
  std::optional<double> sd;                                       // of the paired differences
  std::optional<double> ci_low, ci_high;                          // I_D, level `confidence`
  std::optional<double> equivalence_ci_low, equivalence_ci_high;  // I_E, level 1 - 2 alpha_v
  std::optional<double> p_value;                                  // paired t, two-sided, unadjusted
  std::optional<double> equivalence_p;                            // two one-sided tests
  std::optional<double> sign_flip_p, wilcoxon_p;                  // two-sided
  std::optional<double> holm_p;                                   // filled by AdjustHolm; decides nothing
  std::optional<double> bca_low, bca_high;                        // from n = 20 on
  std::optional<double> hedges_g;                                 // g_z
  std::optional<double> smallest_detectable;  // |difference| seen with power 0.8 at alpha_v
  // Seeds for the margin at power 0.8, and the 80% range that the uncertainty of sd implies. None for a
  // margin of 0.
  std::optional<int> seeds_needed, seeds_needed_low, seeds_needed_high;
  double confidence = 0;  // 1 - alpha_v
  // I_D excludes 0 and, where the rule asks for it, the sign-flip test agrees: a difference is shown, be it
  // above or below the margin, and whatever bars a verdict.
  bool difference_shown = false;
  std::vector<std::size_t> far_out;  // cells whose difference is far out (outliers.h), from n = 8 on; a mark

  std::size_t runs_variant = 0, runs_baseline = 0;  // that ended: finished or diverged
  std::size_t diverged_variant = 0, diverged_baseline = 0;
  std::optional<double> diverged_variant_low, diverged_variant_high;  // Clopper-Pearson, level 95% each
  std::optional<double> diverged_baseline_low, diverged_baseline_high;
  std::optional<double> divergence_p;  // Fisher's exact test, where any run diverged

  Verdict verdict = Verdict::kNone;
  bool worse_by_divergence = false;  // kWorse by Fisher's test, whatever the losses say
  bool exploratory = false;          // a look that was not declared
  std::string test;                  // what decided: "paired t", "paired t and sign-flip", ...
  std::string reason;                // one clause: why there is no decision; empty where there is
};

Comparison Compare(std::span<const PairedCell> cells, const ComparisonRule& rule);

// Fills holm_p over one family (the comparisons of one metric). A comparison without p value counts in the
// family's size, as if its p were 1.
void AdjustHolm(std::span<Comparison> family);

}  // namespace normlab::stats
