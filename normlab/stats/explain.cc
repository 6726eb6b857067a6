#include "normlab/stats/explain.h"

#include <cmath>
#include <cstddef>
#include <optional>

#include <fmt/format.h>

#include "normlab/base/progress.h"

namespace normlab::stats {
namespace {

std::string Number(double value) { return fmt::format("{:.3g}", value); }

// Ratios lie near 1, where three digits would show a margin's worth of difference as none.
std::string Number(double value, const ComparisonRule& rule) {
  return rule.log_ratio ? fmt::format("{:.4g}", value) : Number(value);
}

std::string Percent(double fraction) { return fmt::format("{:.3g}%", 100 * fraction); }

std::string Margin(const ComparisonRule& rule, const Words& words) {
  return rule.log_ratio ? Percent(rule.margin) : fmt::format("{} {}", Number(rule.margin), words.unit);
}

// "simultaneous 95% interval 0.00761 to 0.0284; paired by seed, n = 5"
std::string NamedInterval(double low, double high, const Comparison& comparison, const ComparisonRule& rule,
                          const Words& words) {
  return fmt::format("simultaneous {} interval {} to {}; {}, n = {}", Percent(1 - rule.alpha),
                     Number(low, rule), Number(high, rule), words.pairing, comparison.n);
}

// "6 of 8 runs diverged (95% interval 35% to 97%)"
std::string DivergedRate(std::size_t diverged, std::size_t runs, std::optional<double> low,
                         std::optional<double> high) {
  std::string text = fmt::format("{} of {} runs diverged", diverged, runs);
  if (low && high) text += fmt::format(" (95% interval {:.0f}% to {:.0f}%)", 100 * *low, 100 * *high);
  return text;
}

std::string VariantDiverged(const Comparison& c) {
  return DivergedRate(c.diverged_variant, c.runs_variant, c.diverged_variant_low, c.diverged_variant_high);
}

std::string BaselineDiverged(const Comparison& c) {
  return DivergedRate(c.diverged_baseline, c.runs_baseline, c.diverged_baseline_low,
                      c.diverged_baseline_high);
}

// "lower loss by 0.018 nats (...), on this text and set-up; may exceed the margin of 0.01 nats."
std::string Decided(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  const double margin_low = rule.log_ratio ? 1 / (1 + rule.margin) : -rule.margin;
  const double margin_high = rule.log_ratio ? 1 + rule.margin : rule.margin;
  const bool exceeds = *c.ci_low > margin_high || *c.ci_high < margin_low;
  const bool lower = rule.log_ratio ? *c.ratio < 1 : *c.difference < 0;

  std::string text = fmt::format("{} {} by ", lower ? "lower" : "higher", words.metric);
  if (rule.log_ratio) {
    text += fmt::format("{} (ratio {}, {})", Percent(std::abs(*c.ratio - 1)), Number(*c.ratio, rule),
                        NamedInterval(*c.ci_low, *c.ci_high, c, rule, words));
  } else {
    // The interval is that of the amount just named, so a reduction shows as a positive number.
    text += fmt::format("{} {} ({})", Number(std::abs(*c.difference)), words.unit,
                        lower ? NamedInterval(-*c.ci_high, -*c.ci_low, c, rule, words)
                              : NamedInterval(*c.ci_low, *c.ci_high, c, rule, words));
  }
  text += ", on " + words.setup;
  if (rule.margin == 0) return text + ".";
  return text +
         fmt::format("; {} the margin of {}.", exceeds ? "exceeds" : "may exceed", Margin(rule, words));
}

std::string Equivalent(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  const std::string interval = fmt::format("simultaneous {} interval, of the two one-sided tests, {} to {}",
                                           Percent(1 - 2 * rule.alpha), Number(*c.equivalence_ci_low, rule),
                                           Number(*c.equivalence_ci_high, rule));
  const std::string text = fmt::format(
      "the difference is below the margin of {} stated beforehand ({} {}, {}; {}, n = {}), on {}; ",
      Margin(rule, words), rule.log_ratio ? "ratio" : "difference",
      Number(rule.log_ratio ? *c.ratio : *c.difference, rule), interval, words.pairing, c.n, words.setup);
  if (c.difference_shown) return text + fmt::format("smaller than {}, but not zero.", Margin(rule, words));
  return text + "not shown to be zero.";
}

// What would decide it: every undecided comparison has a next step.
std::string NextStep(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  if (c.diverged_variant + c.diverged_baseline > 0) {
    return "more seeds do not change that: find out why the run diverged";
  }
  if (c.sd && *c.sd == 0)
    return "see that the seed reaches what is compared: its runs should differ a little";
  if (rule.margin == 0) return "no margin was stated, so no number of seeds can show sameness";
  const std::string seeds = SeedsThatDecide(c, rule);
  // A plan that the study has already met: the truth is then likely to be what no plan is made for.
  if (c.seeds_needed_high && static_cast<std::size_t>(*c.seeds_needed_high) <= c.n) {
    return fmt::format("{} would do in 80% of studies, so the difference may lie close to the margin of {}",
                       seeds, Margin(rule, words));
  }
  return fmt::format("{} would decide in 80% of studies", seeds);
}

// "these 5 see 0.0226 nats": the difference that is found with power 0.8.
std::string Seen(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  if (!c.smallest_detectable) return "";
  return fmt::format(" (these {} see a difference of {} as often)", c.n,
                     rule.log_ratio ? Percent(*c.smallest_detectable)
                                    : fmt::format("{} {}", Number(*c.smallest_detectable), words.unit));
}

std::string UndecidedText(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  std::string text = "undecided: " + c.reason;
  const std::optional<double> estimate = rule.log_ratio ? c.ratio : c.difference;
  if (estimate) {
    text += fmt::format(" ({} {}", rule.log_ratio ? "ratio" : "difference", Number(*estimate, rule));
    if (!rule.log_ratio) text += " " + words.unit;
    text += c.ci_low && c.ci_high ? ", " + NamedInterval(*c.ci_low, *c.ci_high, c, rule, words)
                                  : fmt::format("; {}, n = {}", words.pairing, c.n);
    text += ")";
  }
  text += "; not evidence of sameness; " + NextStep(c, rule, words);
  if (!SeedsThatDecide(c, rule).empty()) text += Seen(c, rule, words);
  return text + ".";
}

std::string Core(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  switch (c.verdict) {
    case Verdict::kNone:
      return c.n == 1 ? c.reason + "; a verdict needs 3 or more." : c.reason + ".";
    case Verdict::kBetter:
      return Decided(c, rule, words);
    case Verdict::kWorse:
      if (!c.worse_by_divergence) return Decided(c, rule, words);
      return fmt::format(
          "diverges more often: {}, against {} of the baseline (Fisher's exact test, p = {:.2g}).",
          VariantDiverged(c), BaselineDiverged(c), *c.divergence_p);
    case Verdict::kEquivalent:
      return Equivalent(c, rule, words);
    case Verdict::kIdentical:
      return fmt::format("identical: the {} is the same number in all {} pairs of runs; no interval.",
                         words.metric, c.n);
    case Verdict::kDiverged:
      return fmt::format("{}; no {} comparison.", VariantDiverged(c), words.metric);
    case Verdict::kUndecided:
      return UndecidedText(c, rule, words);
  }
  return "";
}

}  // namespace

std::string SeedsThatDecide(const Comparison& c, const ComparisonRule& rule) {
  if (!c.sd || *c.sd == 0 || rule.margin == 0 || c.diverged_variant + c.diverged_baseline > 0) return "";
  if (!c.seeds_needed_low) return "more than a million seeds";
  const std::string low = FormatCount(*c.seeds_needed_low);
  if (!c.seeds_needed_high) return fmt::format("at least {} seeds", low);
  if (*c.seeds_needed_low == *c.seeds_needed_high) return low + " seeds";
  return fmt::format("{} to {} seeds", low, FormatCount(*c.seeds_needed_high));
}

std::string Explain(const Comparison& comparison, const ComparisonRule& rule, const Words& words) {
  std::string text = Core(comparison, rule, words);
  if (comparison.exploratory) {
    text = fmt::format("exploratory (look {}, where {} {} declared): {}", rule.look, rule.looks,
                       rule.looks == 1 ? "was" : "were", text);
  }
  // Divergence never hides behind the mean of the runs that finished.
  const bool already_said = comparison.verdict == Verdict::kDiverged || comparison.worse_by_divergence;
  if (!already_said && comparison.diverged_variant + comparison.diverged_baseline > 0) {
    text +=
        fmt::format(" Variant: {}. Baseline: {}. Only the {} that finished in both {} compared.",
                    VariantDiverged(comparison), BaselineDiverged(comparison),
                    comparison.n == 1 ? "seed" : FormatCount(static_cast<int64_t>(comparison.n)) + " seeds",
                    comparison.n == 1 ? "is" : "are");
  }
  return text;
}

}  // namespace normlab::stats
