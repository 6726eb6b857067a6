#pragma once
// Options that say when checkpoints are written and how many are kept; train and compare share them.

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "normlab/train/run.h"

namespace normlab::apps {

struct CheckpointArguments {
  std::optional<std::string> every, keep;
};

void AddCheckpointOptions(CLI::App& parser, CheckpointArguments& arguments);

// Throws UsageError that names the option and what is allowed.
CheckpointPolicy MakeCheckpointPolicy(const CheckpointArguments& arguments);

}  // namespace normlab::apps
