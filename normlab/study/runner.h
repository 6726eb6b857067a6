#pragma once
// Runs what a study's folder lacks, one cell after another or several at a time, and keeps results.json and
// results.csv true after each. One that fails does not stop the others; one that is stopped leaves the
// finished ones as they are. What computes a cell is a function that is given, so tests need no training.
// Prints nothing: the caller gets calls.
//
// Cells that run at the same time share a process, each in a thread of its own with its own team of workers:
// the text is in memory once, one signal stops all with a checkpoint, one line can tell of all. A kill ends
// all, and each goes on from its last checkpoint.

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
#include "normlab/study/study_duel.h"
#include "normlab/train/run.h"

namespace normlab {

// What a cell is run with.
struct CellRun {
  TrainConfig config;                                   // with its seed
  std::filesystem::path folder;                         // where run.json and metrics.jsonl go
  std::optional<std::filesystem::path> resume_from;     // a checkpoint of the cell
  std::optional<double> products_bound_s;               // known from a cell with equal matrix products
  std::function<void(const RunProgress&)> on_progress;  // this one and on_note may be called by any thread
  std::function<void(const std::string&)> on_note;
  const std::atomic<bool>* stop = nullptr;
};

// Leaves run.json in the folder and returns it. Throws where the run fails. With jobs it is called by several
// threads at the same time.
using CellRunner = std::function<RunRecord(const CellRun&)>;

struct CellProgress {
  size_t cell = 0;  // from 1, of all that the study has
  std::string variant;
  uint64_t seed = 0;
  RunProgress run;
};

struct StudyProgress {
  size_t cells = 0;                   // that the study has
  CellProgress latest;                // the cell that something new is told of
  std::vector<CellProgress> running;  // all at work, in the order of their start
  std::optional<double> remaining_s;  // of the whole study
};

// One start of a cell.
struct CellAttempt {
  size_t cell = 0, cells = 0;  // as above
  int attempt = 1;             // of this start of the study
  bool again = false;          // at its end: it failed, and will be tried once more
};

struct StudyRunSettings {
  size_t jobs = 1;  // cells at the same time
  int retries = 0;  // of each cell that fails, when all others have been tried
  const std::atomic<bool>* stop = nullptr;
};

// Called one at a time, by whichever thread runs the cell.
struct StudyCallbacks {
  std::function<void(const StudyProgress&)> on_progress;
  std::function<void(const Cell&, const StudyPlan&, const CellAttempt&)> on_cell_start, on_cell_end;
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
  bool Run(const CellRunner& runner, const StudyCallbacks& callbacks, const StudyRunSettings& settings = {});

  StudyResults Results() const { return Evaluate(plan_, cells_, duel_ ? &*duel_ : nullptr); }
  // Throws Error where the tables cannot be written. Where the page alone cannot, `page_problem` says why.
  void WriteResults();
  const std::string& page_problem() const { return page_problem_; }

  // The duel of the folder, whether or not it is of the study as it stands (study_duel.h); nothing where
  // there is none, or none that can be read: then the problem says why.
  const std::optional<DuelRecord>& duel() const { return duel_; }
  const std::string& duel_problem() const { return duel_problem_; }
  void TakeDuel(DuelRecord duel);  // writes it; the results are written with the next WriteResults

 private:
  class Session;  // one call of Run
  std::optional<double> KnownBound(const TrainConfig& config) const;

  std::filesystem::path folder_;
  std::unique_ptr<FolderLock> lock_;
  StudyPlan plan_;
  std::vector<Cell> cells_;
  Machine machine_;
  std::optional<DuelRecord> duel_;
  std::string duel_problem_, page_problem_;
  std::vector<size_t> waiting_;  // cells to run, in order; the first is next
};

// results.json and results.csv.
void WriteTables(const StudyResults& results, const std::filesystem::path& folder);

}  // namespace normlab
