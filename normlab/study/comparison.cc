#include "normlab/study/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/multiplicity.h"
#include "normlab/stats/paired_t.h"
#include "normlab/study/comparison_notes.h"
#include "normlab/study/study_duel.h"

namespace normlab {
namespace {

constexpr Metric kMetrics[] = {Metric::kTestLoss, Metric::kTime, Metric::kTokensPerSecond,
                               Metric::kPeakBytes};

bool IsSpeed(Metric metric) { return metric == Metric::kTime || metric == Metric::kTokensPerSecond; }

// Cells by variant and seed.
class CellTable {
 public:
  CellTable(const StudyPlan& plan, const std::vector<Cell>& cells)
      : seeds_(plan.seeds.size()), table_(plan.cells(), nullptr) {
    for (const Cell& cell : cells) table_[cell.variant * seeds_ + cell.seed] = &cell;
    for (const Cell* cell : table_) NL_CHECK(cell != nullptr);
  }
  const Cell& at(size_t variant, size_t seed) const { return *table_[variant * seeds_ + seed]; }
  size_t seeds() const { return seeds_; }

 private:
  size_t seeds_;
  std::vector<const Cell*> table_;
};

void Count(Counts& counts, CellStatus status) {
  ++counts.planned;
  counts.done += status == CellStatus::kDone;
  counts.diverged += status == CellStatus::kDiverged;
  counts.failed += status == CellStatus::kFailed;
  counts.missing += status == CellStatus::kMissing;
}

std::optional<double> MeanOf(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return stats::Mean(values);
}

VariantSummary Summarize(const StudyPlan& plan, const CellTable& table, size_t variant) {
  VariantSummary summary{.name = plan.variants[variant].variant.name};
  const auto values = [&](auto&& value_of) {
    std::vector<double> all;
    for (size_t s = 0; s < table.seeds(); ++s)
      if (const std::optional<double> value = value_of(table.at(variant, s))) all.push_back(*value);
    return all;
  };
  const auto metric = [&](Metric m) { return values([m](const Cell& cell) { return Value(m, cell); }); };
  for (size_t s = 0; s < table.seeds(); ++s) Count(summary.counts, table.at(variant, s).status);
  const std::vector<double> losses = metric(Metric::kTestLoss);
  summary.test_loss = MeanOf(losses);
  if (losses.size() > 1) {
    summary.test_loss_sd = stats::SampleSd(losses);
    summary.test_loss_interval = stats::MeanInterval(stats::PairedTTest(losses), 0.05);
  }
  summary.time_s = MeanOf(metric(Metric::kTime));
  const std::optional<double> tokens = MeanOf(values([](const Cell& cell) -> std::optional<double> {
    if (!Value(Metric::kTime, cell)) return std::nullopt;
    return static_cast<double>(cell.record->tokens);
  }));
  if (tokens && summary.time_s) summary.tokens_per_s = *tokens / *summary.time_s;
  summary.peak_bytes = MeanOf(metric(Metric::kPeakBytes));
  summary.products_share = MeanOf(values([](const Cell& cell) -> std::optional<double> {
    if (cell.status != CellStatus::kDone) return std::nullopt;
    return cell.record->products_share;
  }));
  return summary;
}

// Pairs of one metric, seed by seed.
std::vector<stats::PairedCell> Pairs(const CellTable& table, size_t variant, size_t baseline, Metric metric,
                                     size_t& left_out) {
  std::vector<stats::PairedCell> pairs;
  for (size_t s = 0; s < table.seeds(); ++s) {
    const Cell &mine = table.at(variant, s), &theirs = table.at(baseline, s);
    stats::PairedCell pair{.variant = Value(metric, mine),
                           .baseline = Value(metric, theirs),
                           .variant_ran = IsFinished(mine.status),
                           .baseline_ran = IsFinished(theirs.status)};
    // Times of different machines say nothing about the variants, nor does memory with other numbers of
    // threads.
    if (metric != Metric::kTestLoss && pair.variant && pair.baseline &&
        !SameSpeed(mine.record->machine, theirs.record->machine)) {
      ++left_out;
      pair = {.variant_ran = false, .baseline_ran = false};
    }
    pairs.push_back(pair);
  }
  return pairs;
}

// Memory does not vary by chance: means and their difference, no test.
stats::Comparison CountBytes(const std::vector<stats::PairedCell>& pairs) {
  std::vector<double> variant, baseline;
  for (const stats::PairedCell& pair : pairs) {
    if (!pair.variant || !pair.baseline) continue;
    variant.push_back(*pair.variant);
    baseline.push_back(*pair.baseline);
  }
  stats::Comparison result{
      .n = variant.size(), .mean_variant = MeanOf(variant), .mean_baseline = MeanOf(baseline)};
  if (result.n == 0) return result;
  result.difference = *result.mean_variant - *result.mean_baseline;
  if (*result.mean_baseline > 0) result.ratio = *result.mean_variant / *result.mean_baseline;
  return result;
}

// Differences of losses, seed by seed and block by block of the held-out text; nothing where there is no
// table.
void AddText(MetricComparison& comparison, const CellTable& table, size_t baseline, double alpha) {
  std::vector<double> differences;
  size_t seeds = 0, blocks = 0;
  for (size_t s = 0; s < table.seeds(); ++s) {
    const Cell &mine = table.at(comparison.variant, s), &theirs = table.at(baseline, s);
    if (mine.status != CellStatus::kDone || theirs.status != CellStatus::kDone) continue;
    const std::vector<double>&a = mine.record->test_block_losses, &b = theirs.record->test_block_losses;
    if (seeds++ == 0) blocks = a.size();
    if (a.size() != blocks || b.size() != blocks) return;  // variants with other windows
    for (size_t i = 0; i < blocks; ++i) differences.push_back(a[i] - b[i]);
  }
  if (seeds < 2 || blocks < 2) return;
  comparison.text = stats::TwoWayInterval(differences, seeds, blocks, alpha);
  comparison.text_blocks = blocks;
}

stats::ComparisonRule RuleFor(const StudyPlan& plan, Metric metric) {
  stats::ComparisonRule rule = SpeedRule(plan);
  if (!IsSpeed(metric)) rule.margin = plan.margin_nats, rule.log_ratio = false;
  rule.higher_is_better = metric == Metric::kTokensPerSecond;
  return rule;
}

// What the cells took, which decides nothing: one ran after another, and the machine's speed drifts.
void WithoutDuel(const std::vector<stats::PairedCell>& pairs, MetricComparison& comparison) {
  const stats::Comparison whole = stats::Compare(pairs, comparison.rule);
  comparison.result = {.n = whole.n,
                       .mean_variant = whole.mean_variant,
                       .mean_baseline = whole.mean_baseline,
                       .ratio = whole.ratio,
                       .confidence = whole.confidence,
                       .reason = "no duel"};
  comparison.explanation = "no duel: ";
  if (whole.ratio)
    comparison.explanation += fmt::format(
        "whole runs had a ratio of {:.4g} in {} (mean over {} pairs of runs, one after another), "
        "which decides nothing.",
        *whole.ratio, comparison.metric == Metric::kTime ? "training time" : "tokens/s", whole.n);
  else
    comparison.explanation += "speed is not judged.";
}

void TakeDuel(const DuelSummary& duel, const StudyPlan& plan, MetricComparison& comparison) {
  const auto find = [&](size_t v) -> const DuelVariant& {
    return *std::ranges::find(duel.variants, plan.variants[v].variant.name, &DuelVariant::name);
  };
  const DuelVariant &mine = find(comparison.variant), &baseline = find(comparison.baseline);
  const bool is_time = comparison.metric == Metric::kTime;
  comparison.result = is_time ? *mine.time : *mine.tokens_rate;
  comparison.interim = false;  // it does not wait for cells
  comparison.explanation = is_time ? mine.explanation
                                   : stats::ExplainBatches(comparison.result, comparison.rule,
                                                           {.less = "fewer tokens/s",
                                                            .more = "more tokens/s",
                                                            .quantity = "tokens/s",
                                                            .rounds_per_batch = duel.rounds_per_batch});
  if (!mine.step_s || !baseline.step_s) return;
  comparison.result.mean_variant = is_time ? mine.step_s->median : mine.tokens_per_s;
  comparison.result.mean_baseline = is_time ? baseline.step_s->median : baseline.tokens_per_s;
}

std::string ExplainInterim(const StudyPlan& plan, const MetricComparison& comparison) {
  stats::Words words;
  if (plan.aa) words.pairing = "paired by position, with different seeds";
  std::string text = IsSpeed(comparison.metric) ? comparison.explanation
                                                : stats::Explain(comparison.result, comparison.rule, words);
  const stats::Verdict verdict = comparison.result.verdict;
  if (plan.aa && (verdict == stats::Verdict::kBetter || verdict == stats::Verdict::kWorse))
    text += fmt::format(
        " Both sides of this A/A study run the same code, so this verdict is false: {}, which the rule lets "
        "through in at most {:g}% of studies.",
        IsSpeed(comparison.metric) ? "the machine's drift, or chance" : "chance", 100 * plan.alpha);
  if (comparison.interim && !IsSpeed(comparison.metric)) text = "interim, as cells are still to run: " + text;
  const bool of_cells = comparison.result.test != "duel";
  if (comparison.left_out > 0 && of_cells)
    text += fmt::format(
        " {} left out: the two runs had different machines, numbers of threads, --jobs or wait policies "
        "(OMP_WAIT_POLICY).",
        comparison.left_out == 1 ? "One pair is" : fmt::format("{} pairs are", comparison.left_out));
  return text + ComparisonNotes(comparison, plan);
}

void CompareAll(StudyResults& results, const CellTable& table) {
  const StudyPlan& plan = results.plan;
  for (const Metric metric : kMetrics) {
    std::vector<MetricComparison> family;
    std::vector<stats::Comparison> for_holm;
    const stats::ComparisonRule rule = RuleFor(plan, metric);
    for (size_t v = 0; v < plan.variants.size(); ++v) {
      const size_t baseline = plan.BaselineOf(v);
      if (v == baseline) continue;
      MetricComparison comparison{.variant = v,
                                  .baseline = baseline,
                                  .metric = metric,
                                  .rule = rule,
                                  .judged = metric != Metric::kPeakBytes,
                                  .interim = !results.counts.complete()};
      const std::vector<stats::PairedCell> pairs = Pairs(table, v, baseline, metric, comparison.left_out);
      if (!comparison.judged)
        comparison.result = CountBytes(pairs);
      else if (!IsSpeed(metric))
        comparison.result = stats::Compare(pairs, comparison.rule);
      else if (results.duel)
        TakeDuel(*results.duel, plan, comparison);
      else
        WithoutDuel(pairs, comparison);
      if (metric == Metric::kTestLoss) {
        const double alpha = stats::AlphaPerVerdict(plan.alpha, comparison.rule.variants, plan.looks);
        AddText(comparison, table, baseline, alpha);
      }
      for_holm.push_back(comparison.result);
      family.push_back(std::move(comparison));
    }
    stats::AdjustHolm(for_holm);
    for (size_t i = 0; i < family.size(); ++i) {
      if (family[i].judged) {
        family[i].result = for_holm[i];
        family[i].explanation = ExplainInterim(plan, family[i]);
      }
      results.comparisons.push_back(std::move(family[i]));
    }
  }
}

}  // namespace

std::string_view Name(Metric metric) {
  switch (metric) {
    case Metric::kTestLoss:
      return "test_loss";
    case Metric::kTime:
      return "time";
    case Metric::kTokensPerSecond:
      return "tokens_per_s";
    case Metric::kPeakBytes:
      return "peak_bytes";
  }
  return "?";
}

std::optional<double> Value(Metric metric, const Cell& cell) {
  if (cell.status != CellStatus::kDone) return std::nullopt;
  const RunRecord& record = *cell.record;
  switch (metric) {
    case Metric::kTestLoss:
      return record.test_loss;
    case Metric::kTime:
      return record.time_s > 0 ? std::optional(record.time_s) : std::nullopt;
    case Metric::kTokensPerSecond:
      return record.tokens_per_s;
    case Metric::kPeakBytes:
      return static_cast<double>(record.peak_bytes);
  }
  return std::nullopt;
}

Counts CountCells(const std::vector<Cell>& cells) {
  Counts counts;
  for (const Cell& cell : cells) Count(counts, cell.status);
  return counts;
}

const MetricComparison* StudyResults::Find(size_t variant, Metric metric) const {
  for (const MetricComparison& comparison : comparisons)
    if (comparison.variant == variant && comparison.metric == metric) return &comparison;
  return nullptr;
}

std::vector<size_t> StudyResults::VariantsWhere(
    const std::function<bool(const MetricComparison&)>& holds) const {
  std::vector<size_t> found;
  for (const MetricComparison& comparison : comparisons)
    if (holds(comparison)) found.push_back(comparison.variant);
  return found;
}

std::vector<size_t> StudyResults::Worse() const {
  return VariantsWhere([](const MetricComparison& comparison) {
    const stats::Verdict verdict = comparison.result.verdict;
    // A gate must not pass a variant that diverged more often than the baseline, though so few seeds
    // give no verdict.
    const bool diverged_more = comparison.result.diverged_variant > comparison.result.diverged_baseline;
    return comparison.metric == Metric::kTestLoss &&
           (verdict == stats::Verdict::kWorse || verdict == stats::Verdict::kDiverged || diverged_more);
  });
}

std::vector<size_t> StudyResults::Slower() const {
  return VariantsWhere([](const MetricComparison& comparison) {
    return comparison.metric == Metric::kTime && comparison.result.verdict == stats::Verdict::kWorse &&
           !comparison.result.worse_by_divergence;
  });
}

std::vector<size_t> StudyResults::Unjudged(Metric metric) const {
  return VariantsWhere([&](const MetricComparison& comparison) {
    return comparison.metric == metric && comparison.result.verdict == stats::Verdict::kNone;
  });
}

StudyResults Evaluate(const StudyPlan& plan, const std::vector<Cell>& cells, const DuelRecord* duel) {
  StudyResults results{.plan = plan, .cells = cells};
  if (duel != nullptr && Covers(*duel, plan)) results.duel = Summarize(*duel);
  std::ranges::sort(results.cells, {}, [](const Cell& cell) { return std::pair(cell.variant, cell.seed); });
  const CellTable table(plan, cells);
  results.counts = CountCells(results.cells);
  for (const Cell& cell : results.cells) {
    if (!IsFinished(cell.status)) continue;
    if (!results.machine) results.machine = cell.record->machine;
    results.machines_differ |= !SameSpeed(*results.machine, cell.record->machine);
  }
  for (size_t v = 0; v < plan.variants.size(); ++v) results.variants.push_back(Summarize(plan, table, v));
  if (plan.variants.size() > 1) CompareAll(results, table);
  return results;
}

bool LookTaken(const StudyPlan& plan, const std::vector<Cell>& cells) {
  const CellTable table(plan, cells);
  const Look* before = plan.history.size() > 1 ? &plan.history[plan.history.size() - 2] : nullptr;
  const auto is_new = [&](size_t variant, size_t seed) {
    return before == nullptr ||
           std::ranges::count(before->variants, plan.variants[variant].variant.name) == 0 ||
           std::ranges::count(before->seeds, plan.seeds[seed]) == 0;
  };
  for (size_t v = 0; v < plan.variants.size(); ++v) {
    const size_t baseline = plan.BaselineOf(v);
    size_t pairs = 0;
    bool any_new = false;
    for (size_t s = 0; s < table.seeds(); ++s) {
      if (v == baseline || !IsFinished(table.at(v, s).status) || !IsFinished(table.at(baseline, s).status))
        continue;
      ++pairs;
      any_new |= is_new(v, s);
    }
    if (pairs >= 2 && any_new) return true;
  }
  return false;
}

}  // namespace normlab
