// The program: joins the commands, reads the environment, and turns what is thrown into one line and an exit
// code.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "normlab/apps/busy.h"
#include "normlab/apps/command.h"
#include "normlab/apps/help.h"
#include "normlab/base/error.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/train/machine.h"

namespace normlab::apps {
namespace {

constexpr const char* kDescription =
    "normlab trains GPT-class language models with any normalization layer, and tells\n"
    "with proper statistics which layer trains better, faster and in less memory.\n";

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab compare --data text.txt --out study\n"
    "      the default study: five norms, five seeds, a tiny model\n"
    "  normlab compare --norms fused_layernorm,fused_rmsnorm --seeds 3 --steps 60 \\\n"
    "                  --data text.txt --out study\n"
    "  normlab report study --format markdown\n"
    "  normlab train --norm fused_rmsnorm --data text.txt --out run\n"
    "  normlab duel --norms fused_layernorm,fused_rmsnorm\n"
    "  normlab list norms\n"
    "\n"
    "`normlab COMMAND --help` tells more. Exit codes: 0 good, 1 an error, 2 a command\n"
    "line that cannot be understood, 3 where `compare --fail-if-worse` or\n"
    "`--fail-if-slower` found one, 130 interrupted.";

void PrintError(std::string_view text) {
  std::fflush(stdout);
  const std::string line = fmt::format("normlab: error: {}\n", Printable(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Descriptors 0 to 2 exist from here on: a file opened as one of them would receive what is printed.
void OpenStandardDescriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);
}

// What would change results or output behind normlab's back. NORMLAB_ISA is the way to limit instructions,
// and is recorded.
void ForgetLibrarySettings() {
  for (const char* name : {"DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "DNNL_VERBOSE", "ONEDNN_VERBOSE"})
    ::unsetenv(name);
}

// NORMLAB_ISA=avx2 uses nothing wider, in every kernel.
void LimitIsaFromEnvironment() {
  const char* isa = std::getenv("NORMLAB_ISA");
  if (isa == nullptr || *isa == '\0') return;
  try {
    LimitCpuIsa(isa);
  } catch (const Error& error) {
    Fail("NORMLAB_ISA: {}", error.what());
  }
}

int Run(int argc, char** argv) {
  CLI::App program(kDescription);
  program.name("normlab");
  program.formatter(MakeHelpFormatter());
  program.footer(kFooter);
  program.require_subcommand(1);
  program.set_help_flag("-h,--help", "this text");
  program.set_version_flag(
      "--version", [] { return DescribeMachine(*MakeCpuDevice({})).build; }, "version and build");

  std::vector<Command> commands = {AddCompare(program), AddReport(program), AddTrain(program),
                                   AddDuel(program), AddList(program)};
  for (Command& command : AddBench(program)) commands.push_back(std::move(command));
  for (const Command& command : commands) command.parser->set_help_flag("-h,--help", "this text");
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return program.exit(success);
  } catch (const CLI::ParseError& error) {
    throw UsageError(UsageMessage(program, error, argc, argv));
  }

  LimitIsaFromEnvironment();
  Environment environment{.progress =
                              ProgressOptionsFor(stderr, std::getenv("NO_COLOR"), std::getenv("TERM"))};
  for (const Command& command : commands) {
    if (!command.parser->parsed()) continue;
    if (command.trains)
      environment.busy_cpus = command.spins ? AdaptToKernels(argv) : AdaptToBusyMachine(argv);
    return command.run(environment);
  }
  return kExitUsage;
}

}  // namespace

// Everything that is thrown ends here.
int Main(int argc, char** argv) {
  OpenStandardDescriptors();
  ForgetLibrarySettings();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is then an error like a full disk
  try {
    return Run(argc, argv);
  } catch (const UsageError& error) {
    PrintError(error.what());
    return kExitUsage;
  } catch (const Error& error) {
    PrintError(error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    PrintError(fmt::format("cannot use \"{}\": {}; check the path, its permissions and the disk",
                           error.path1().string(), error.code().message()));
  } catch (const std::bad_alloc&) {
    PrintError("not enough memory; take a smaller model, or a smaller micro_batch");
  } catch (const std::exception& error) {
    PrintError(fmt::format("internal: {}", error.what()));
  }
  return kExitError;
}

void Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    Fail("cannot write to standard output; is the disk full?");
}

void PrintNote(std::string_view text) {
  const std::string line = fmt::format("normlab: note: {}\n", Printable(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace normlab::apps

int main(int argc, char** argv) { return normlab::apps::Main(argc, argv); }
