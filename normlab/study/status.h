#pragma once
// How far a study is, read from its folder while a program works in it or after it ended. Takes no lock and
// writes nothing.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "normlab/base/folder_lock.h"
#include "normlab/base/json.h"
#include "normlab/study/comparison.h"
#include "normlab/study/folder.h"
#include "normlab/study/plan.h"

namespace normlab {

// A cell that somebody computes now; it still counts as missing.
struct CellAtWork {
  size_t cell = 0;  // index into the cells
  int64_t steps_done = 0, steps = 0;
  double elapsed_s = 0;               // in steps
  std::optional<double> remaining_s;  // of this cell, evaluation included
};

struct StudyStatus {
  std::filesystem::path folder;
  StudyPlan plan;
  std::vector<Cell> cells;  // in their order of running
  Counts counts;
  bool has_duel = false;          // what speed is judged by
  std::optional<LockState> lock;  // who works in it, or was killed in it
  std::vector<CellAtWork> at_work;
  int jobs = 1;                       // cells at the same time
  std::optional<double> remaining_s;  // of the whole study; nothing where nobody works, or nothing is known

  bool AnyoneAtWork() const { return lock && lock->state != OwnerState::kDead; }
};

// Throws Error where the folder holds no study, or records that cannot be read.
StudyStatus ReadStatus(const std::filesystem::path& folder);

Json StatusJson(const StudyStatus& status);
std::string StatusText(const StudyStatus& status, size_t columns = 80);

}  // namespace normlab
