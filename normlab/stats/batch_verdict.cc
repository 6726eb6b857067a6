#include "normlab/stats/batch_verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/equivalence.h"
#include "normlab/stats/multiplicity.h"
#include "normlab/stats/paired_t.h"

namespace normlab::stats {
namespace {

// Four digits: one of a thousand is what duels are about.
std::string Number(double value) { return fmt::format("{:.4g}", value); }

std::string Percent(double fraction) { return fmt::format("{:.3g}%", 100 * fraction); }

std::string Level(double error, const ComparisonRule& rule) {
  return fmt::format("{}{} interval", rule.variants * rule.looks > 1 ? "simultaneous " : "",
                     Percent(1 - error));
}

std::string Batches(const Comparison& c, const BatchWords& words) {
  return fmt::format("{} batch{} of {} round{} in turns", c.n, c.n == 1 ? "" : "es", words.rounds_per_batch,
                     words.rounds_per_batch == 1 ? "" : "s");
}

// "(ratio 0.968, 95% interval 0.9612 to 0.9749; 20 batches of 12 rounds in turns)"
std::string Evidence(const Comparison& c, const ComparisonRule& rule, const BatchWords& words) {
  std::string text = "(";
  if (c.ratio) text += fmt::format("ratio {}", Number(*c.ratio));
  if (c.ci_low && c.ci_high)
    text += fmt::format(", {} {} to {}", Level(rule.alpha, rule), Number(*c.ci_low), Number(*c.ci_high));
  return text + fmt::format("{}{})", c.ratio ? "; " : "", Batches(c, words));
}

std::string Decided(const Comparison& c, const ComparisonRule& rule, const BatchWords& words) {
  const bool exceeds = *c.ci_low > 1 + rule.margin || *c.ci_high < 1 / (1 + rule.margin);
  return fmt::format("{} {} {}; {} the margin of {}.", Percent(std::abs(*c.ratio - 1)),
                     *c.ratio < 1 ? words.less : words.more, Evidence(c, rule, words),
                     exceeds ? "exceeds" : "may lie within", Percent(rule.margin));
}

std::string Equivalent(const Comparison& c, const ComparisonRule& rule, const BatchWords& words) {
  const bool not_zero = *c.ci_low > 1 || *c.ci_high < 1;
  return fmt::format(
      "equivalent within {}: the difference in {} is below the margin stated beforehand (ratio {}, {}, of "
      "the two one-sided tests, {} to {}; {}); {}.",
      Percent(rule.margin), words.quantity, Number(*c.ratio), Level(2 * rule.alpha, rule),
      Number(*c.equivalence_ci_low), Number(*c.equivalence_ci_high), Batches(c, words),
      not_zero ? fmt::format("smaller than {}, but not zero", Percent(rule.margin))
               : std::string("not shown to be zero"));
}

std::string Core(const Comparison& comparison, const ComparisonRule& rule, const BatchWords& words) {
  switch (comparison.verdict) {
    case Verdict::kBetter:
    case Verdict::kWorse:
      return Decided(comparison, rule, words);
    case Verdict::kEquivalent:
      return Equivalent(comparison, rule, words);
    case Verdict::kIdentical:
      return fmt::format("identical: both took the same time in all {}; no interval.",
                         Batches(comparison, words));
    case Verdict::kNone:
    case Verdict::kDiverged:  // a duel that diverges has no result
      return fmt::format("no verdict on speed: {} {}.", comparison.reason, Evidence(comparison, rule, words));
    case Verdict::kUndecided:
      return fmt::format("undecided: {}{} {}; not evidence of sameness.", comparison.reason,
                         comparison.ci_low ? " of " + Percent(rule.margin) : "",
                         Evidence(comparison, rule, words));
  }
  return "";
}

// As in comparison.cc: equal numbers that were rounded are no spread.
bool SpreadIsNoise(std::span<const double> medians) {
  const auto [least, most] = std::minmax_element(medians.begin(), medians.end());
  return *most - *least <= 4 * std::numeric_limits<double>::epsilon() * std::max(1.0, std::abs(*most));
}

void Judge(std::span<const double> medians, const Equivalence& equivalence, const ComparisonRule& rule,
           Comparison& result) {
  const auto undecided = [&](const char* reason) {
    result.verdict = Verdict::kUndecided;
    result.reason = reason;
  };
  if (medians.size() < kFewestJudgedBatches) {
    result.verdict = Verdict::kNone;
    result.reason = fmt::format("{} batch{} complete, and a verdict needs {}", medians.size(),
                                medians.size() == 1 ? " is" : "es are", kFewestJudgedBatches);
  } else if (std::all_of(medians.begin(), medians.end(), [](double m) { return m == 0; })) {
    result.verdict = Verdict::kIdentical;
  } else if (!result.ci_low) {
    undecided("all batches give the same number, so their spread, and with it chance, is unknown");
  } else if (equivalence.equivalent) {
    result.verdict = Verdict::kEquivalent;
  } else if (*result.ci_low <= 1 && *result.ci_high >= 1) {
    undecided("the interval holds 1 and reaches beyond the margin");
  } else {
    const bool lower = *result.ratio < 1;
    result.verdict = lower != rule.higher_is_better ? Verdict::kBetter : Verdict::kWorse;
  }
}

}  // namespace

Comparison CompareBatches(std::span<const double> medians, const ComparisonRule& rule) {
  if (!rule.log_ratio) Fail("CompareBatches: batches hold logs of ratios; set log_ratio");
  RequireNotNegative("CompareBatches", "margin", rule.margin);
  const double alpha = AlphaPerVerdict(rule.alpha, rule.variants, rule.looks);
  Comparison result{.n = medians.size(), .confidence = 1 - alpha};
  result.exploratory = rule.look > rule.looks;
  result.test = "duel";
  Equivalence equivalence;
  if (!medians.empty()) result.ratio = std::exp(Mean(medians));
  if (medians.size() > 1) {
    const PairedT t = PairedTTest(medians);
    result.sd = SpreadIsNoise(medians) ? 0 : t.sd;
    if (*result.sd > 0) {
      const Interval interval = *MeanInterval(t, alpha);
      equivalence = TestEquivalence(t, std::log1p(rule.margin), alpha);
      result.ci_low = std::exp(interval.low);
      result.ci_high = std::exp(interval.high);
      result.equivalence_ci_low = std::exp(equivalence.interval->low);
      result.equivalence_ci_high = std::exp(equivalence.interval->high);
      result.p_value = t.p_value;
      result.equivalence_p = equivalence.p_value;
    }
  }
  Judge(medians, equivalence, rule, result);
  return result;
}

std::string ExplainBatches(const Comparison& comparison, const ComparisonRule& rule,
                           const BatchWords& words) {
  const std::string text = Core(comparison, rule, words);
  if (!comparison.exploratory) return text;
  return fmt::format("exploratory (look {}, where {} {} declared): {}", rule.look, rule.looks,
                     rule.looks == 1 ? "was" : "were", text);
}

}  // namespace normlab::stats
