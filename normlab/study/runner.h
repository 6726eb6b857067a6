#pragma once
// Runs what a study's folder lacks, cell by cell, and keeps results.json and results.csv true after each. One
// that fails does not stop the others; one that is stopped leaves the finished ones as they are. What
// computes a cell is a function that is given, so tests need no training. Prints nothing: the caller gets
// calls.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "normlab/base/folder_lock.h"
#include "normlab/study/comparison.h"
#include "normlab/study/folder.h"
#include "normlab/study/plan.h"
#include "normlab/study/report/page.h"
#include "normlab/train/run.h"

namespace normlab {

// What a cell is run with.
struct CellRun {
  TrainConfig config;                                // with its seed
  std::filesystem::path folder;                      // where run.json and metrics.jsonl go
  std::optional<std::filesystem::path> resume_from;  // a checkpoint of the cell
  std::optional<double> products_bound_s;            // known from a cell with equal matrix products
  std::function<void(const RunProgress&)> on_progress;
  const std::atomic<bool>* stop = nullptr;
};

// Leaves run.json in the folder and returns it. Throws where the run fails.
using CellRunner = std::function<RunRecord(const CellRun&)>;

struct StudyProgress {
  size_t cell = 0, cells = 0;  // cell, from 1, of all that the study has
  std::string variant;
  uint64_t seed = 0;
  RunProgress run;
  std::optional<double> remaining_s;  // of the whole study
};

struct StudyCallbacks {
  std::function<void(const StudyProgress&)> on_progress;
  std::function<void(const Cell&, const StudyPlan&)> on_cell_end;
  std::function<void(const std::string&)> on_note;
  std::function<double()> now_s;  // a clock that never goes back; unset: the steady clock
};

class Study {
 public:
  // Everything is checked before anything is written: what the folder holds against the request first (one
  // that is not a study is refused), then the folder is made and locked and study.json is written. A study of
  // which nothing has finished yet is declared anew. Where cells are to run, `before_writing` is called when
  // all else is found good, and refuses by throwing: whether there is memory for them, say. Throws Error.
  Study(std::filesystem::path folder, const StudyRequest& request,
        const std::function<void()>& before_writing = {});

  const StudyPlan& plan() const { return plan_; }
  const std::vector<Cell>& cells() const { return cells_; }
  const Machine& machine() const { return machine_; }  // of this start
  size_t ToRun() const;                                // cells that are not finished

  // Runs them. Returns false where `stop` was set before all were tried. Results are written in either case.
  bool Run(const CellRunner& runner, const StudyCallbacks& callbacks,
           const std::atomic<bool>* stop = nullptr);

  StudyResults Results() const { return Evaluate(plan_, cells_); }
  void WriteResults() const;

 private:
  void RunCell(Cell& cell, const CellRunner& runner, const std::function<void(const RunProgress&)>& report,
               const StudyCallbacks& callbacks, const std::atomic<bool>* stop);
  std::optional<double> KnownBound(const TrainConfig& config) const;

  std::filesystem::path folder_;
  std::unique_ptr<FolderLock> lock_;
  StudyPlan plan_;
  std::vector<Cell> cells_;
  Machine machine_;
  std::vector<size_t> waiting_;  // cells to run, in order; the first is next
};

// The files of a study's results: results.json, results.csv, report.html. `live`: cells are still running.
void WriteResults(const StudyResults& results, const std::filesystem::path& folder,
                  const std::optional<Live>& live = {});

}  // namespace normlab
