#include "normlab/apps/busy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace normlab::apps {
namespace {

constexpr double kBusy = 0.25;  // CPUs

std::optional<double> BusySeconds() {
  std::ifstream file("/proc/stat");
  const auto ticks = BusyTicks(file);
  if (!ticks) return std::nullopt;
  return *ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

bool WaitingIsChosen() {
  return std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

}  // namespace

std::optional<double> BusyTicks(std::istream& stat) {
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0;
  if (!(stat >> name >> user >> nice >> system >> idle >> wait >> irq >> softirq) || name != "cpu")
    return std::nullopt;
  return user + nice + system + irq + softirq;
}

std::optional<double> BusyCpus() {
  constexpr double kSeconds = 0.15;
  const auto before = BusySeconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  const auto after = BusySeconds();
  if (!before || !after) return std::nullopt;
  return (*after - *before) / kSeconds;
}

std::optional<double> AdaptToBusyMachine(char** argv) {
  const auto busy = BusyCpus();
  if (!busy || *busy < kBusy || WaitingIsChosen()) return busy;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv("/proc/self/exe", argv);
  return busy;  // it could not be started again: on as it is
}

std::optional<double> AdaptToKernels(char** argv) {
  const auto busy = AdaptToBusyMachine(argv);
  if (WaitingIsChosen()) return busy;
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  ::setenv("GOMP_SPINCOUNT", "infinite", 1);
  ::execv("/proc/self/exe", argv);
  return busy;
}

std::optional<std::string> BusyNote(std::optional<double> busy_cpus) {
  if (!busy_cpus || *busy_cpus < kBusy) return std::nullopt;
  return fmt::format(
      "other programs keep {:.1f} CPUs busy now: times and tokens/s say little while they run. Losses are "
      "not "
      "touched",
      *busy_cpus);
}

}  // namespace normlab::apps
