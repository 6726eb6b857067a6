#include "normlab/apps/run_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "normlab/apps/command.h"
#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/text.h"
#include "normlab/base/threads.h"
#include "normlab/data/windows.h"

namespace normlab::apps {
namespace {

constexpr const char* kMemoryVariable = "NORMLAB_MEMORY_MIB";

// The most threads that --threads takes: more than CPUs are useless but harmless, as long as they are few.
int64_t MostThreads(int available) { return std::max<int64_t>(64, 4 * int64_t{available}); }

// Nothing where the text is no finite number.
std::optional<double> FiniteNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string PresetNames() {
  std::string names;
  for (const Preset& preset : Presets()) names += (names.empty() ? "" : ", ") + preset.name;
  return names;
}

}  // namespace

void AddRunOptions(CLI::App& parser, RunArguments& arguments, const std::string& out_description,
                   const std::string& json_description) {
  const std::string what = "What is trained";
  parser.add_option("--data", arguments.data, "text files, read as bytes; the last tenth is held out")
      ->type_name("FILE...")
      ->required()
      ->group(what);
  parser
      .add_option("--preset", arguments.preset,
                  "a model and its schedule: " + PresetNames() + " (default tiny)")
      ->type_name("NAME")
      ->group(what);
  parser.add_option("--config", arguments.config, "a JSON file of configuration keys, on top of the preset")
      ->type_name("FILE")
      ->group(what);
  parser
      .add_option("--set", arguments.set, "sets one configuration key; may be repeated (`normlab list keys`)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(what);
  parser.add_option("--steps", arguments.steps, "updates of the weights: short for --set steps=N")
      ->type_name("N")
      ->group(what);
  parser.add_option("--batch", arguments.batch, "sequences in a step: short for --set batch=N")
      ->type_name("N")
      ->group(what);
  parser
      .add_option("--context", arguments.context, "tokens in a training sequence: short for --set window=N")
      ->type_name("N")
      ->group(what);
  parser.add_option("--dtype", arguments.dtype, "f32 or bf16: what matrix products read")
      ->type_name("TYPE")
      ->group(what);
  parser
      .add_flag("--recompute", arguments.recompute,
                "activations again in backward: less memory, more time, the same bits")
      ->group(what);

  const std::string how = "How it is run";
  parser.add_option("--out", arguments.out, out_description)->type_name("DIR")->required()->group(how);
  parser
      .add_option(
          "--threads", arguments.threads,
          "default: what the CPU affinity and the cgroup allow, at most 4 times that, or 64; changes no "
          "bit of a loss")
      ->type_name("N")
      ->group(how);
  parser
      .add_option("--inside", arguments.inside,
                  "writes what stands inside every N steps to inside.jsonl: the norms' inputs and outputs, "
                  "gradients and updates of every tensor; 0: never (default: about 30 times a run, at most "
                  "every 5 steps); "
                  "changes no bit of a loss")
      ->type_name("N")
      ->group(how);
  parser.add_flag("--json", arguments.json, json_description)->group(how);
}

std::vector<Assignment> Assignments(const RunArguments& arguments) {
  std::vector<Assignment> assignments;
  const auto add = [&](std::string key, std::string option, std::string text) {
    for (const Assignment& other : assignments)
      if (other.key == key)
        throw UsageError(
            fmt::format("{} is set twice, by {} and by {}; set it once", key, other.option, option));
    assignments.push_back({std::move(key), std::move(option), std::move(text)});
  };
  for (const std::string& text : arguments.set) add(internal::SplitAssignment(text).first, "--set", text);
  const auto add_short = [&](const char* key, const char* option, const std::optional<std::string>& value) {
    if (value) add(key, option, fmt::format("{}={}", key, *value));
  };
  add_short("steps", "--steps", arguments.steps);
  add_short("batch", "--batch", arguments.batch);
  add_short("window", "--context", arguments.context);
  add_short("dtype", "--dtype", arguments.dtype);
  if (arguments.recompute) add("recompute", "--recompute", "recompute=true");
  return assignments;
}

TrainConfig MakeConfig(const RunArguments& arguments, const std::vector<Assignment>& assignments) {
  TrainConfig config = PresetConfig(arguments.preset);
  if (arguments.config) ApplyText(config, ReadFile(*arguments.config), *arguments.config);
  for (const Assignment& assignment : assignments) Set(config, assignment.text);
  return config;
}

int Threads(const RunArguments& arguments) {
  const int available = DefaultThreads();
  if (!arguments.threads) {
    // One of them is this one; one more waits for signals.
    const int startable = StartableThreads(available);
    if (startable < available) {
      PrintNote(
          fmt::format("the system lets normlab start only {} of {} threads (`ulimit -u`, `ulimit -v` or "
                      "the cgroup); it runs with {}",
                      startable, available, std::max(1, startable)));
    }
    return std::max(1, std::min(available, startable));
  }
  const auto threads =
      static_cast<int>(WholeNumber("--threads", *arguments.threads, 1, MostThreads(available)));
  if (threads > available)
    PrintNote(
        fmt::format("--threads {} is more than the {} CPUs that this process may use: slower, and no fair "
                    "measure of time",
                    threads, available));
  if (const int startable = StartableThreads(threads); startable < threads)
    Fail(
        "--threads {}: the system lets normlab start only {} (`ulimit -u`, `ulimit -v` or the cgroup); take "
        "--threads {} or raise the limit",
        threads, startable, std::max(1, startable));
  return threads;
}

std::optional<int64_t> InsideEvery(const RunArguments& arguments) {
  if (!arguments.inside) return std::nullopt;
  return WholeNumber("--inside", *arguments.inside, 0, int64_t{1} << 40);
}

std::shared_ptr<const TokenSource> ReadData(const RunArguments& arguments) {
  const std::vector<std::filesystem::path> paths(arguments.data.begin(), arguments.data.end());
  const auto available = MemoryForRuns();
  return ReadByteTokens(paths, available ? std::optional(available->bytes) : std::nullopt);
}

std::string CheckRun(const TrainConfig& config, const TokenSource& tokens, const Device& device) {
  config.Validate();
  CheckVocabulary(tokens, config.model.vocab_size);
  SplitTokens(tokens, {.window = config.Window(),
                       .batch = config.batch,
                       .held_out_fraction = config.held_out_fraction,
                       .held_out_windows = config.held_out_windows});
  return std::string(Name(device.ResolveNorm(config.model.Norm(), config.model.emb_dim)));
}

std::optional<AvailableMemory> MemoryForRuns(uint64_t held) {
  const char* const mebibytes = std::getenv(kMemoryVariable);
  if (mebibytes == nullptr || *mebibytes == '\0') return ReadAvailableMemory();
  int64_t value = 0;
  const std::string_view text = mebibytes;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > (int64_t{1} << 40))
    Fail("{}={} is not allowed; it takes a whole number of MiB, from 1 to {}", kMemoryVariable,
         Printable(text), int64_t{1} << 40);
  const uint64_t bytes = static_cast<uint64_t>(value) << 20;
  return AvailableMemory{.bytes = bytes > held ? bytes - held : 0, .limit = kMemoryVariable};
}

MemoryPlan CheckMemory(const TrainConfig& config, const TokenSource& tokens, int threads,
                       const std::optional<AvailableMemory>& available, int runs) {
  const MemoryPlan plan = PlanMemory(
      config, {.threads = threads, .text_bytes = static_cast<size_t>(tokens.size()), .runs = runs});
  RequireMemory(plan, config, threads, available);
  return plan;
}

int64_t WholeNumber(std::string_view option, std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw UsageError(fmt::format("{} {} is not allowed; {} takes a whole number from {} to {}", option, text,
                                 option, low, high));
  return value;
}

double PositiveNumber(std::string_view option, std::string_view text) {
  const std::optional<double> value = FiniteNumber(text);
  if (!value || !(*value > 0))
    throw UsageError(fmt::format("{} {} is not allowed; {} takes a number above 0", option, text, option));
  return *value;
}

double NumberFromZero(std::string_view option, std::string_view text) {
  const std::optional<double> value = FiniteNumber(text);
  if (!value || !(*value >= 0) || std::signbit(*value))
    throw UsageError(
        fmt::format("{} {} is not allowed; {} takes a number of 0 or more", option, text, option));
  return *value;
}

double Percentage(std::string_view option, std::string_view text) {
  if (text.ends_with('%')) text.remove_suffix(1);
  return PositiveNumber(option, text) / 100;
}

double SpeedMargin(std::string_view text) {
  if (text.ends_with('%')) text.remove_suffix(1);
  return NumberFromZero("--speed-margin", text) / 100;
}

}  // namespace normlab::apps
