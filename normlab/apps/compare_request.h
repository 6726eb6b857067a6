#pragma once
// From the command line of `normlab compare` to what a study is asked for, checked before anything is
// written.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "normlab/apps/cell_share.h"
#include "normlab/apps/compare_options.h"
#include "normlab/base/available_memory.h"
#include "normlab/kernels/device.h"
#include "normlab/study/plan.h"
#include "normlab/train/memory_plan.h"

namespace normlab::apps {

// --jobs, with the threads of the program divided; a rest is noted. Throws UsageError.
CellShare ShareOf(const CompareArguments& arguments, int threads);

// Every variant that is asked for; notes on what was dropped are printed. Throws Error where nothing would be
// compared.
Grid MakeCompareGrid(const CompareArguments& arguments);

StudyRequest MakeRequest(const CompareArguments& arguments, const TokenSource& tokens, Grid grid,
                         const Device& device, int jobs);

// Which variant takes most memory, and what as many of it as run at a time take. Throws Error where that does
// not fit.
std::pair<std::string, MemoryPlan> CheckMemoryOf(const Grid& grid, const TokenSource& tokens, CellShare share,
                                                 const std::optional<AvailableMemory>& available);

// Tells of variants that differ in nothing that runs: two names of one norm, or an option that the norm does
// not read.
void NoteSameCode(const StudyRequest& request);

}  // namespace normlab::apps
