#include "normlab/apps/progress_line.h"

#include <fmt/format.h>

#include "normlab/base/progress.h"
#include "normlab/base/text.h"

namespace normlab::apps {
namespace {

std::string Phase(const RunProgress& progress) {
  switch (progress.phase) {
    case RunProgress::Phase::kPreparing:
      return "preparing, and timing the matrix products alone";
    case RunProgress::Phase::kTraining:
      return fmt::format("step {}/{}", progress.steps_done, progress.steps);
    case RunProgress::Phase::kSaving:
      return fmt::format("step {}/{}, writing a checkpoint", progress.steps_done, progress.steps);
    case RunProgress::Phase::kEvaluating:
      return fmt::format("testing {:.0f}%", 100 * progress.phase_share);
  }
  return "";
}

std::string Left(const std::optional<double>& remaining_s) {
  return remaining_s ? fmt::format("  {} left", FormatDuration(*remaining_s)) : "";
}

std::string Line(const RunProgress& progress, const std::optional<double>& remaining_s) {
  std::string text = Phase(progress) + Left(remaining_s);
  if (progress.steps_done == 0) return text;
  text += fmt::format("  {} tokens/s", Rounded(progress.tokens_per_s));
  if (progress.bound_share) text += fmt::format("  bound {:.0f}%", 100 * *progress.bound_share);
  if (progress.products_share) text += fmt::format("  products {:.0f}%", 100 * *progress.products_share);
  return text + fmt::format("  loss {:.4f}", progress.loss);
}

}  // namespace

std::string ProgressLine(const RunProgress& progress) { return Line(progress, progress.remaining_s); }

std::string ProgressLine(const StudyProgress& progress) {
  if (progress.running.size() < 2) {
    const CellProgress& cell = progress.latest;
    return fmt::format("cell {}/{} {}, seed {}  {}", cell.cell, progress.cells, cell.variant, cell.seed,
                       Line(cell.run, progress.remaining_s));
  }
  std::string numbers, phases;
  double tokens_per_s = 0;
  for (const CellProgress& cell : progress.running) {
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", cell.cell);
    phases += fmt::format("{}{}, seed {}: {}", phases.empty() ? "" : "; ", cell.variant, cell.seed,
                          cell.run.phase == RunProgress::Phase::kPreparing ? "preparing" : Phase(cell.run));
    tokens_per_s += cell.run.tokens_per_s;
  }
  return fmt::format("cells {} of {}{}  {} tokens/s  {}", numbers, progress.cells, Left(progress.remaining_s),
                     Rounded(tokens_per_s), phases);
}

void LossWatch::See(const RunProgress& progress) {
  if (progress.phase == RunProgress::Phase::kPreparing) first_.reset();
  // A resumed run does not show its first step.
  if (progress.phase == RunProgress::Phase::kTraining && progress.steps_done == 1) first_ = progress.loss;
}

std::optional<std::string> LossWatch::Advice(const RunRecord& record) const {
  if (!first_ || !record.train_loss || record.steps_done < 2 || !(*record.train_loss > *first_))
    return std::nullopt;
  return fmt::format(
      "the training loss ended at {:.4f}, above the {:.4f} of its first step: the run did not learn; a "
      "smaller learning_rate or a longer warmup_fraction may help",
      *record.train_loss, *first_);
}

}  // namespace normlab::apps
