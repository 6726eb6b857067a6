#pragma once
// Options that train and compare share: what is trained, on what, where, and with how many threads.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "normlab/base/available_memory.h"
#include "normlab/base/json.h"
#include "normlab/data/tokens.h"
#include "normlab/kernels/device.h"
#include "normlab/train/config.h"
#include "normlab/train/memory_plan.h"

namespace normlab::apps {

struct RunArguments {
  std::vector<std::string> data, set;
  std::string out;
  std::string preset = "tiny";
  std::optional<std::string> config, steps, batch, context, dtype, threads, inside;
  bool recompute = false, json = false;
};

void AddRunOptions(CLI::App& parser, RunArguments& arguments, const std::string& out_description,
                   const std::string& json_description);

// Keys set on the command line: --set and its short forms. Throws UsageError where a key is set twice.
struct Assignment {
  std::string key;
  std::string option;  // that set it: "--steps"
  std::string text;    // "steps=60"
};
std::vector<Assignment> Assignments(const RunArguments& arguments);

// Preset, then file, then assignments; not validated.
TrainConfig MakeConfig(const RunArguments& arguments, const std::vector<Assignment>& assignments);

// --threads, or what the process may use; says so where it is more than that. Throws UsageError for a number
// that makes no sense here, and Error where the system refuses to start so many.
int Threads(const RunArguments& arguments);

// --inside; nothing where it is not given.
std::optional<int64_t> InsideEvery(const RunArguments& arguments);

// The files of --data as tokens.
std::shared_ptr<const TokenSource> ReadData(const RunArguments& arguments);

// Everything that would stop a run of this configuration, found before anything is written. Returns what its
// norm resolves to on this device. Throws Error.
std::string CheckRun(const TrainConfig& config, const TokenSource& tokens, const Device& device);

// What a run may still take when `held` bytes of text are in memory: NORMLAB_MEMORY_MIB without them where it
// is set, else what system, cgroup and ulimit leave.
std::optional<AvailableMemory> MemoryForRuns(uint64_t held = 0);

// What `runs` runs of this configuration take at the same time, with so many threads each; throws Error where
// they do not fit into what is available.
MemoryPlan CheckMemory(const TrainConfig& config, const TokenSource& tokens, int threads,
                       const std::optional<AvailableMemory>& available, int runs = 1);

// Numbers of options that are no configuration keys. Throw UsageError that names the option, the text and
// what is allowed.
int64_t WholeNumber(std::string_view option, std::string_view text, int64_t low, int64_t high);
double PositiveNumber(std::string_view option, std::string_view text);
double NumberFromZero(std::string_view option, std::string_view text);
double Percentage(std::string_view option, std::string_view text);  // "0.5" or "0.5%" is 0.005; above 0
double SpeedMargin(std::string_view text);                          // the same of --speed-margin, or 0

}  // namespace normlab::apps
