#include "normlab/study/comparison_notes.h"

#include <cstddef>
#include <vector>

#include <fmt/format.h>

namespace normlab {
namespace {

std::string TextIntervalNote(const MetricComparison& comparison) {
  if (!comparison.text || !comparison.text->interval) return "";
  return fmt::format(
      " With the held-out text as a sample too (two-way, {} seeds x {} blocks): simultaneous {:.3g}% "
      "interval of the "
      "difference {:.3g} to {:.3g} nats.",
      comparison.result.n, comparison.text_blocks, 100 * (1 - comparison.rule.alpha),
      comparison.text->interval->low, comparison.text->interval->high);
}

std::string FarOutNote(const MetricComparison& comparison, const StudyPlan& plan) {
  const std::vector<size_t>& far_out = comparison.result.far_out;
  if (far_out.empty()) return "";
  std::string seeds;
  for (const size_t s : far_out)
    seeds += fmt::format("{}{}", seeds.empty() ? "" : ", ", plan.Seed(comparison.variant, s));
  return fmt::format(
      " Far from the other differences (beyond Tukey's outer fences) and part of every number here: seed{} "
      "{}; look "
      "at {}.",
      far_out.size() == 1 ? "" : "s", seeds, far_out.size() == 1 ? "its runs" : "their runs");
}

}  // namespace

std::string ComparisonNotes(const MetricComparison& comparison, const StudyPlan& plan) {
  return TextIntervalNote(comparison) + FarOutNote(comparison, plan);
}

}  // namespace normlab
