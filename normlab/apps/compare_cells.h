#pragma once
// The phase of `normlab compare` that trains the cells, and what it shows meanwhile.

#include <memory>

#include "normlab/apps/command.h"
#include "normlab/apps/compare_options.h"
#include "normlab/apps/compare_request.h"
#include "normlab/data/tokens.h"
#include "normlab/study/runner.h"
#include "normlab/train/run.h"

namespace normlab::apps {

// Throws UsageError.
int Retries(const CompareArguments& arguments);

// Runs what is to run; returns false where a signal ended it.
bool RunCells(Study& study, const CompareArguments& arguments, std::shared_ptr<const TokenSource> tokens,
              CellShare share, const CheckpointPolicy& checkpoints, const Environment& environment);

}  // namespace normlab::apps
