#pragma once
// What the command line of `normlab compare` says.

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "normlab/apps/checkpoint_options.h"
#include "normlab/apps/run_options.h"

namespace normlab::apps {

struct CompareArguments {
  RunArguments run;
  CheckpointArguments checkpoints;
  std::optional<std::string> norms, seeds, seed_list, baseline, within, margin, speed_margin, looks, duel;
  std::optional<std::string> jobs, retries, status;
  std::vector<std::string> vary;
  bool aa = false, fail_if_worse = false, fail_if_slower = false, save_models = false, profile = false;
};

void AddCompareOptions(CLI::App& parser, CompareArguments& arguments);

// What no later step would notice. Throws UsageError.
void CheckCompareOptions(const CLI::App& parser, const CompareArguments& arguments);

}  // namespace normlab::apps
