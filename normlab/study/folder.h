#pragma once
// The folder of a study: study.json, results.json, results.csv and runs/<variant>/seed-<n>/. Cells are known
// by their folders alone: what has a finished record stays, everything else runs (again).

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/study/plan.h"
#include "normlab/train/run.h"

namespace normlab {

// A variant's name as a folder: letters, digits and . _ - = + , stay, every other byte is %XX; a name that
// would be too long for a file system ends in its hash.
std::string FolderName(std::string_view variant);
std::filesystem::path CellFolder(std::string_view variant, uint64_t seed);  // inside the study's folder

enum class CellStatus {
  kMissing,  // not run, or not to its end
  kDone,
  kDiverged,  // an outcome, not a fault
  kFailed,
};
std::string_view Name(CellStatus status);
inline bool IsFinished(CellStatus status) {
  return status == CellStatus::kDone || status == CellStatus::kDiverged;
}

struct Cell {
  size_t variant = 0, seed = 0;  // indices into the plan
  CellStatus status = CellStatus::kMissing;
  std::optional<RunRecord> record;  // of a finished cell, or of an attempt
  std::string reason;               // of one that is not done: "diverged: loss became nan at step 12"

  // Of one that is not finished and has checkpoints: the latest, what it says, and what was passed over.
  std::optional<std::filesystem::path> resume_from;
  std::optional<RunRecord> resumable;
  std::vector<std::string> notes;
};

// study.json of a folder. Throws Error where the folder holds no study, or the file cannot be read.
StudyPlan ReadPlan(const std::filesystem::path& folder);

// Sets status and reason from a record.
void TakeRecord(Cell& cell, RunRecord record);

// Every cell of the plan in its order of running, with what its folder holds. Throws Error where a record
// cannot be read. For whoever holds the folder's lock.
std::vector<Cell> ReadCells(const std::filesystem::path& folder, const StudyPlan& plan);

// The same for who only looks, while somebody may be at work: by the records alone, for checkpoints come and
// go. What failed before it could leave a record is known from results.json; a cell whose record cannot be
// read or is of another study counts as failed.
std::vector<Cell> CellsAsTheyStand(const std::filesystem::path& folder, const StudyPlan& plan);

// Throws Error where a cell that is finished, or would go on from a checkpoint, was not made with the plan's
// configuration and data. With `machine`, its build (major.minor), instruction set, device, resolved norm
// must be those of cells that are still to run; the number of threads and the processor may differ (no bit of
// a loss depends on the former; times are then not compared).
void RequireComparable(const Cell& cell, const StudyPlan& plan, const Machine* machine,
                       std::string_view folder);

// "normlab 0.1" of "normlab 0.1.0, GNU 12.2.0, Release".
std::string MajorMinor(std::string_view build);

// Throws Error where `folder` holds something that is not a study: a run, or other files.
void RequireStudyOrNew(const std::filesystem::path& folder);

// Throws Error where writing results.json would lose what it tells: one of a newer normlab, or one with
// finished cells while none is left among the folders (`any_finished`), so that the study would be declared
// anew.
void RequireNoLostResults(const std::filesystem::path& folder, bool any_finished);

}  // namespace normlab
