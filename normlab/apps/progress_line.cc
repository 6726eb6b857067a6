#include "normlab/apps/progress_line.h"

#include <fmt/format.h>

#include "normlab/base/progress.h"
#include "normlab/base/text.h"

namespace normlab::apps {
namespace {

std::string Line(const RunProgress& progress, const std::optional<double>& remaining_s) {
  std::string text;
  switch (progress.phase) {
    case RunProgress::Phase::kPreparing:
      text = "preparing, and timing the matrix products alone";
      break;
    case RunProgress::Phase::kTraining:
      text = fmt::format("step {}/{}", progress.steps_done, progress.steps);
      break;
    case RunProgress::Phase::kSaving:
      text = fmt::format("step {}/{}, writing a checkpoint", progress.steps_done, progress.steps);
      break;
    case RunProgress::Phase::kEvaluating:
      text = fmt::format("testing {:.0f}%", 100 * progress.phase_share);
      break;
  }
  if (remaining_s) text += fmt::format("  {} left", FormatDuration(*remaining_s));
  if (progress.steps_done == 0) return text;
  text += fmt::format("  {} tokens/s", Rounded(progress.tokens_per_s));
  if (progress.bound_share) text += fmt::format("  bound {:.0f}%", 100 * *progress.bound_share);
  if (progress.products_share) text += fmt::format("  products {:.0f}%", 100 * *progress.products_share);
  return text + fmt::format("  loss {:.4f}", progress.loss);
}

}  // namespace

std::string ProgressLine(const RunProgress& progress) { return Line(progress, progress.remaining_s); }

std::string ProgressLine(const StudyProgress& progress) {
  return fmt::format("cell {}/{} {}, seed {}  {}", progress.cell, progress.cells, progress.variant,
                     progress.seed, Line(progress.run, progress.remaining_s));
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
