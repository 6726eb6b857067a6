#pragma once
// What `normlab duel` and `normlab bench step` share: which variants take turns, on what tokens, for how
// long, and how that is told.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "normlab/apps/command.h"
#include "normlab/apps/run_options.h"
#include "normlab/study/duel.h"
#include "normlab/study/grid.h"
#include "normlab/study/step_duel.h"
#include "normlab/train/machine.h"

namespace normlab::apps {

struct DuelArguments {
  RunArguments run;
  std::optional<std::string> norms, seconds, precision;
  std::vector<std::string> vary;
};

inline constexpr const char* kDuelNorms =
    "handrolled_layernorm,fused_layernorm,handrolled_rmsnorm,fused_rmsnorm";

// Adds their options, and those of a run but for --out, --json and --steps.
void AddDuelOptions(CLI::App& parser, DuelArguments& arguments);

// The variants; prints the grid's notes. `default_norms` vary where neither --norms nor --vary nor norm_type
// says what.
Grid MakeDuelGrid(const DuelArguments& arguments, const char* default_norms);

// --seconds (default 60), and --precision (default `precision`, a fraction; 0: 1%).
DuelSettings MakeDuelSettings(const DuelArguments& arguments, double precision);

// The text of --data, or random ids that suit every variant.
std::shared_ptr<const TokenSource> DuelTokens(const DuelArguments& arguments, const Grid& grid);

// Machine, step and memory, each on a line of its own.
std::string DuelHeader(const Machine& machine, const StepDuel& duel, size_t bytes, bool random);

// "round 12/400  45s left"
std::string ProgressLine(const DuelProgress& progress);

}  // namespace normlab::apps
