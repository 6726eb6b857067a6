#include "normlab/apps/compare_cells.h"

#include <map>
#include <string>

#include "normlab/apps/interrupt.h"
#include "normlab/apps/progress_line.h"
#include "normlab/base/text.h"

namespace normlab::apps {
namespace {

constexpr int64_t kMostRetries = 1000;

std::string CellName(const Cell& cell, const StudyPlan& plan, const CellAttempt& attempt) {
  return fmt::format("cell {}/{} {}, seed {}", attempt.cell, attempt.cells,
                     Printable(plan.variants[cell.variant].variant.name), plan.Seed(cell.variant, cell.seed));
}

std::string HowItEnded(const Cell& cell, const CellAttempt& attempt) {
  if (cell.status != CellStatus::kDone)
    return fmt::format("{}: {}{}", Name(cell.status), cell.reason,
                       attempt.again ? "; it will be tried again after the others" : "");
  return fmt::format("test loss {:.4f}, {} of training, {} tokens/s", *cell.record->test_loss,
                     FormatDuration(cell.record->time_s), Rounded(cell.record->tokens_per_s.value_or(0)));
}

}  // namespace

int Retries(const CompareArguments& arguments) {
  if (!arguments.retries) return 0;
  return static_cast<int>(WholeNumber("--retries", *arguments.retries, 0, kMostRetries));
}

bool RunCells(Study& study, const CompareArguments& arguments, std::shared_ptr<const TokenSource> tokens,
              CellShare share, const CheckpointPolicy& checkpoints, const Environment& environment) {
  Progress progress(environment.progress);
  InterruptGuard interrupt;
  std::map<size_t, LossWatch> watches;  // by cell
  const std::optional<int64_t> inside_every = InsideEvery(arguments.run);
  const CellRunner runner = [&](const CellRun& run) {
    return RunTraining(run.config, tokens,
                       {.folder = run.folder,
                        .threads = share.threads,
                        .jobs = share.jobs,
                        .save_model = arguments.save_models,
                        .checkpoints = checkpoints,
                        .resume_from = run.resume_from,
                        .products_bound_s = run.products_bound_s,
                        .profile = arguments.profile,
                        .inside_every = inside_every,
                        .on_progress = run.on_progress,
                        .on_note = run.on_note,
                        .stop = run.stop});
  };
  const StudyCallbacks callbacks{
      .on_progress =
          [&](const StudyProgress& now) {
            watches[now.latest.cell].See(now.latest.run);
            progress.Update(ProgressLine(now));
          },
      .on_cell_start =
          [&](const Cell& cell, const StudyPlan& plan, const CellAttempt& attempt) {
            if (cell.resume_from)
              progress.Message(fmt::format("{}: goes on from {}", CellName(cell, plan, attempt),
                                           cell.resume_from->filename().string()));
          },
      .on_cell_end =
          [&](const Cell& cell, const StudyPlan& plan, const CellAttempt& attempt) {
            progress.Clear();
            progress.Message(fmt::format("{}: {}", CellName(cell, plan, attempt), HowItEnded(cell, attempt)));
            const auto watch = watches.extract(attempt.cell);
            if (cell.status != CellStatus::kDone || watch.empty()) return;
            if (const auto advice = watch.mapped().Advice(*cell.record))
              progress.Message("  note: " + *advice);
          },
      .on_note = [&](const std::string& text) { progress.Message("normlab: note: " + text); }};
  return study.Run(
      runner, callbacks,
      {.jobs = static_cast<size_t>(share.jobs), .retries = Retries(arguments), .stop = interrupt.stop()});
}

}  // namespace normlab::apps
