#include "normlab/study/runner.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/study/export.h"
#include "normlab/study/remaining.h"
#include "normlab/study/report/refresh.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

double SteadyNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// True where two configurations have the same matrix products in a step.
bool SameProducts(const Json& a, const Json& b) {
  constexpr const char* kKeys[] = {"vocab_size", "emb_dim",     "n_heads", "n_layers",
                                   "batch",      "micro_batch", "window"};
  return std::ranges::all_of(kKeys,
                             [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); });
}

double Work(const Variant& variant) {
  return static_cast<double>(variant.config.steps) * static_cast<double>(variant.config.TokensPerStep()) *
         static_cast<double>(variant.parameters);
}

bool AnyFinished(const std::vector<Cell>& cells) {
  return std::ranges::any_of(cells, [](const Cell& cell) { return IsFinished(cell.status); });
}

}  // namespace

Study::Study(fs::path folder, const StudyRequest& request, const std::function<void()>& before_writing)
    : folder_(std::move(folder)), plan_(MakePlan(request)), machine_(request.machine) {
  const fs::path path = folder_ / "study.json";
  RequireStudyOrNew(folder_);
  bool asked = !before_writing;
  const auto ask = [&] {
    if (!std::exchange(asked, true)) before_writing();
  };
  if (KindOf(path) == PathKind::kNothing) ask();  // all of a new study is to run
  CreateDirectories(folder_);
  lock_ = std::make_unique<FolderLock>(folder_);
  RequireStudyOrNew(folder_);  // again: another start may have ended in between

  const std::string name = folder_.string();
  bool is_new = true;
  if (KindOf(path) != PathKind::kNothing) {
    const StudyPlan recorded =
        StudyPlanFromJson(ParseJson(ReadFile(path), path.string(), JsonComments::kRefuse), path.string());
    const std::vector<Cell> before = ReadCells(folder_, recorded);
    RequireNoLostResults(folder_, AnyFinished(before));
    if (AnyFinished(before)) {
      plan_ = ExtendPlan(recorded, request, LookTaken(recorded, before), name);
      is_new = plan_.cells() != recorded.cells();
    }
  }
  cells_ = ReadCells(folder_, plan_);
  for (size_t i = 0; i < cells_.size(); ++i)
    if (!IsFinished(cells_[i].status)) waiting_.push_back(i);
  for (const Cell& cell : cells_)
    RequireComparable(cell, plan_, waiting_.empty() ? nullptr : &machine_, name);

  if (!waiting_.empty()) ask();

  RemoveTemporaries(folder_);
  if (is_new) WriteFileAtomic(path, DumpJson(ToJson(plan_), 2) + "\n");
}

size_t Study::ToRun() const {
  return static_cast<size_t>(
      std::ranges::count_if(cells_, [](const Cell& cell) { return !IsFinished(cell.status); }));
}

bool Study::Run(const CellRunner& runner, const StudyCallbacks& callbacks, const std::atomic<bool>* stop) {
  const auto stopped = [&] { return stop != nullptr && *stop; };
  const std::function<double()> now = callbacks.now_s ? callbacks.now_s : SteadyNow;
  std::vector<double> work;
  for (const PlannedVariant& planned : plan_.variants) work.push_back(Work(planned.variant));
  RemainingTime remaining(std::move(work));
  ReportRefresher page(folder_, now);

  for (size_t i = 0; i < waiting_.size() && !stopped(); ++i) {
    Cell& cell = cells_[waiting_[i]];
    std::vector<size_t> after;
    for (size_t j = i + 1; j < waiting_.size(); ++j) after.push_back(cells_[waiting_[j]].variant);

    const double start = now();
    StudyProgress progress{.cell = cells_.size() - waiting_.size() + i + 1,
                           .cells = cells_.size(),
                           .variant = plan_.variants[cell.variant].variant.name,
                           .seed = plan_.seeds[cell.seed]};
    const auto report = [&](const RunProgress& run) {
      if (!callbacks.on_progress) return;
      progress.run = run;
      progress.remaining_s = remaining.Total(cell.variant, now() - start, run.remaining_s, after);
      callbacks.on_progress(progress);
      page.Update(progress, [this] { return Results(); });
    };
    report({.steps = plan_.variants[cell.variant].variant.config.steps});
    RunCell(cell, runner, report, callbacks, stop);
    if (IsFinished(cell.status) && !cell.resume_from) remaining.Add(cell.variant, now() - start);
    if (callbacks.on_cell_end) callbacks.on_cell_end(cell, plan_);
    try {
      normlab::WriteResults(Results(), folder_, page.StateOf(progress));
    } catch (const Error& error) {
      if (callbacks.on_note) callbacks.on_note(error.what());  // the cells themselves are safe
    }
  }
  WriteResults();
  return !stopped() || ToRun() == 0;
}

void Study::RunCell(Cell& cell, const CellRunner& runner,
                    const std::function<void(const RunProgress&)>& report, const StudyCallbacks& callbacks,
                    const std::atomic<bool>* stop) {
  const PlannedVariant& planned = plan_.variants[cell.variant];
  const uint64_t seed = plan_.seeds[cell.seed];
  CellRun run{.config = CellConfig(planned.variant, seed),
              .folder = folder_ / CellFolder(planned.variant.name, seed),
              .resume_from = cell.resume_from,
              .on_progress = report,
              .stop = stop};
  run.products_bound_s = KnownBound(run.config);
  if (callbacks.on_note)
    for (const std::string& note : cell.notes) callbacks.on_note(note);
  cell.record.reset();
  try {
    CreateDirectories(run.folder);
    RemoveTemporaries(run.folder);
    // Of an attempt that did not finish, only what it can go on with stays.
    if (!cell.resume_from)
      for (const char* file : {kRecordFile, kMetricsFile, kModelFile}) fs::remove(run.folder / file);
    TakeRecord(cell, runner(run));
  } catch (const std::bad_alloc&) {
    cell.status = CellStatus::kFailed;
    cell.reason = "not enough memory";
  } catch (const std::exception& error) {
    cell.status = CellStatus::kFailed;
    cell.reason = error.what();
  }
}

std::optional<double> Study::KnownBound(const TrainConfig& config) const {
  const Json wanted = ToJson(config);
  for (const Cell& cell : cells_) {
    if (!cell.record || !cell.record->products_bound_s || !SameProducts(cell.record->config, wanted))
      continue;
    if (SameSpeed(cell.record->machine, machine_)) return cell.record->products_bound_s;
  }
  return std::nullopt;
}

void Study::WriteResults() const { normlab::WriteResults(Results(), folder_); }

void WriteResults(const StudyResults& results, const fs::path& folder, const std::optional<Live>& live) {
  WriteFileAtomic(folder / "results.json", DumpJson(ResultsJson(results), 2) + "\n");
  WriteFileAtomic(folder / "results.csv", ResultsCsv(results));
  WriteReport(results, folder, live);
}

}  // namespace normlab
