#pragma once
// What every command of the program is: options that it adds to the parser, and a function that runs
// afterwards. One file per command; main.cc joins them. Only here does normlab know argv, stdout, environment
// variables and exit codes.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "normlab/base/progress.h"

namespace normlab::apps {

// Exit codes that programs may rely on.
enum ExitCode {
  kExitGood = 0,
  kExitError = 1,         // also: a cell failed or is missing, a run diverged
  kExitUsage = 2,         // the command line cannot be understood
  kExitWorse = 3,         // --fail-if-worse
  kExitInterrupted = 130  // as shells report SIGINT
};

// What a command may know of its surroundings.
struct Environment {
  ProgressOptions progress;         // for stderr
  std::optional<double> busy_cpus;  // with other programs, when it started; for commands that train
};

struct Command {
  CLI::App* parser = nullptr;
  std::function<int(const Environment&)> run;  // returns an ExitCode
  bool trains = false;                         // its times matter
  bool spins = false;                          // its threads spin while they wait, on a machine that is quiet
};

Command AddList(CLI::App& program);
Command AddTrain(CLI::App& program);
Command AddCompare(CLI::App& program);
Command AddDuel(CLI::App& program);
Command AddReport(CLI::App& program);
std::vector<Command> AddBench(CLI::App& program);  // kernels, step

// Writes to standard output; throws Error where that fails (a full disk behind a redirection).
void Print(std::string_view text);

// "normlab: note: ..." on stderr.
void PrintNote(std::string_view text);

}  // namespace normlab::apps
