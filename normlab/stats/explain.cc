#include "normlab/stats/explain.h"

#include <cmath>
#include <cstddef>
#include <optional>

#include <fmt/format.h>

#include "normlab/base/progress.h"

namespace normlab::stats {
namespace {

std::string Number(double value) { return fmt::format("{:.3g}", value); }

std::string Percent(double fraction) { return fmt::format("{:.3g}%", 100 * fraction); }

std::string Margin(const ComparisonRule& rule, const Words& words) {
  return rule.log_ratio ? Percent(rule.margin) : fmt::format("{} {}", Number(rule.margin), words.unit);
}

// "simultaneous 95% interval 0.00761 to 0.0284; paired by seed, n = 5"
std::string NamedInterval(double low, double high, const Comparison& comparison, const ComparisonRule& rule,
                          const Words& words) {
  return fmt::format("simultaneous {} interval {} to {}; {}, n = {}", Percent(1 - rule.alpha), Number(low),
                     Number(high), words.pairing, comparison.n);
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
    text += fmt::format("{} (ratio {}, {})", Percent(std::abs(*c.ratio - 1)), Number(*c.ratio),
                        NamedInterval(*c.ci_low, *c.ci_high, c, rule, words));
  } else {
    // The interval is that of the amount just named, so a reduction shows as a positive number.
    text += fmt::format("{} {} ({})", Number(std::abs(*c.difference)), words.unit,
                        lower ? NamedInterval(-*c.ci_high, -*c.ci_low, c, rule, words)
                              : NamedInterval(*c.ci_low, *c.ci_high, c, rule, words));
  }
  return text + fmt::format(", on {}; {} the margin of {}.", words.setup, exceeds ? "exceeds" : "may exceed",
                            Margin(rule, words));
}

std::string Equivalent(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  const double same = rule.log_ratio ? 1 : 0;
  const bool not_zero = *c.ci_low > same || *c.ci_high < same;
  const std::string interval =
      fmt::format("simultaneous {} interval, of the two one-sided tests, {} to {}",
                  Percent(1 - 2 * rule.alpha), Number(*c.equivalence_ci_low), Number(*c.equivalence_ci_high));
  const std::string text = fmt::format(
      "the difference is below the margin of {} stated beforehand ({} {}, {}; {}, n = {}), on {}; ",
      Margin(rule, words), rule.log_ratio ? "ratio" : "difference",
      Number(rule.log_ratio ? *c.ratio : *c.difference), interval, words.pairing, c.n, words.setup);
  if (not_zero) return text + fmt::format("smaller than {}, but not zero.", Margin(rule, words));
  return text + "not shown to be zero.";
}

std::string SeedsNeededText(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  // More seeds cannot lift the bar that a diverged run sets.
  if (!c.sd || *c.sd == 0 || c.diverged_variant > 0) return "";
  if (!c.seeds_needed_low) return "; more than a million seeds needed";
  const std::string low = FormatCount(*c.seeds_needed_low);
  const std::string range = !c.seeds_needed_high ? "at least " + low
                            : *c.seeds_needed_low == *c.seeds_needed_high
                                ? low
                                : low + " to " + FormatCount(*c.seeds_needed_high);
  if (c.seeds_needed_high && static_cast<std::size_t>(*c.seeds_needed_high) <= c.n) {
    return fmt::format(
        "; {} seeds would do in 80% of studies, so the difference may lie close to the margin of {}", range,
        Margin(rule, words));
  }
  return fmt::format("; {} seeds needed", range);
}

std::string UndecidedText(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  std::string text = "undecided: " + c.reason;
  const std::optional<double> estimate = rule.log_ratio ? c.ratio : c.difference;
  if (estimate) {
    text += fmt::format(" ({} {}", rule.log_ratio ? "ratio" : "difference", Number(*estimate));
    if (!rule.log_ratio) text += " " + words.unit;
    text += c.ci_low && c.ci_high ? ", " + NamedInterval(*c.ci_low, *c.ci_high, c, rule, words)
                                  : fmt::format("; {}, n = {}", words.pairing, c.n);
    text += ")";
  }
  return text + "; not evidence of sameness" + SeedsNeededText(c, rule, words) + ".";
}

std::string Core(const Comparison& c, const ComparisonRule& rule, const Words& words) {
  switch (c.verdict) {
    case Verdict::kNone:
      return c.reason + ".";
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

std::string Explain(const Comparison& comparison, const ComparisonRule& rule, const Words& words) {
  std::string text = Core(comparison, rule, words);
  if (comparison.exploratory) {
    text = fmt::format("exploratory (look {}, where {} {} declared): {}", rule.look, rule.looks,
                       rule.looks == 1 ? "was" : "were", text);
  }
  // Divergence never hides behind the mean of the runs that finished.
  const bool already_said = comparison.verdict == Verdict::kDiverged || comparison.worse_by_divergence;
  if (!already_said && comparison.diverged_variant + comparison.diverged_baseline > 0) {
    text += fmt::format(" Variant: {}. Baseline: {}. Only the {} seeds that finished in both are compared.",
                        VariantDiverged(comparison), BaselineDiverged(comparison), comparison.n);
  }
  return text;
}

}  // namespace normlab::stats
