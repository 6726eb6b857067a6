#include "normlab/study/runner.h"

#include <algorithm>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/study/export.h"
#include "normlab/study/report/refresh.h"
#include "normlab/study/session.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

// True where two configurations have the same matrix products in a step.
bool SameProducts(const Json& a, const Json& b) {
  constexpr const char* kKeys[] = {"vocab_size", "context_length", "emb_dim",     "n_heads",
                                   "n_layers",   "batch",          "micro_batch", "window",
                                   "dtype",      "residual_dtype", "recompute"};
  return std::ranges::all_of(kKeys,
                             [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); });
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
  lock_ = std::make_unique<FolderLock>(folder_, "normlab compare");
  RequireStudyOrNew(folder_);  // again: another start may have ended in between

  const std::string name = folder_.string();
  bool is_new = true;
  if (KindOf(path) != PathKind::kNothing) {
    const StudyPlan recorded = ReadPlan(folder_);
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
  try {
    duel_ = ReadDuel(folder_);
  } catch (const NewerDuel&) {
    throw;
  } catch (const Error& error) {
    duel_problem_ = error.what();  // it can be run again
  }

  RemoveTemporaries(folder_);
  if (is_new) WriteFileAtomic(path, DumpJson(ToJson(plan_), 2) + "\n");
}

size_t Study::ToRun() const {
  return static_cast<size_t>(
      std::ranges::count_if(cells_, [](const Cell& cell) { return !IsFinished(cell.status); }));
}

bool Study::Run(const CellRunner& runner, const StudyCallbacks& callbacks, const StudyRunSettings& settings) {
  Session(*this, runner, callbacks, settings).Run();
  WriteResults();
  const bool stopped = settings.stop != nullptr && *settings.stop;
  return !stopped || ToRun() == 0;
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

void Study::TakeDuel(DuelRecord duel) {
  WriteDuel(duel, folder_);
  duel_ = std::move(duel);
}

void Study::WriteResults() {
  const StudyResults results = Results();
  WriteTables(results, folder_);
  page_problem_.clear();
  try {
    WriteReport(results, folder_);
  } catch (const Error& error) {  // it can be made again from the rest
    page_problem_ = error.what();
  }
}

void WriteTables(const StudyResults& results, const fs::path& folder) {
  WriteFileAtomic(folder / "results.json", DumpJson(ResultsJson(results), 2) + "\n");
  WriteFileAtomic(folder / "results.csv", ResultsCsv(results));
}

}  // namespace normlab
