#include "normlab/apps/busy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace normlab::apps {
namespace {

// Seconds that all CPUs together spent in user, nice, system, irq and softirq (proc(5)).
std::optional<double> BusySeconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0;
  if (!(file >> name >> user >> nice >> system >> idle >> wait >> irq >> softirq) || name != "cpu")
    return std::nullopt;
  return (user + nice + system + irq + softirq) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

std::optional<double> BusyCpus() {
  constexpr double kSeconds = 0.25;
  const auto before = BusySeconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  const auto after = BusySeconds();
  if (!before || !after) return std::nullopt;
  return (*after - *before) / kSeconds;
}

std::optional<std::string> BusyNote(std::optional<double> busy_cpus) {
  if (!busy_cpus || *busy_cpus < 0.25) return std::nullopt;
  return fmt::format(
      "other programs keep {:.1f} CPUs busy now: times and tokens/s will be wrong, and far slower where "
      "threads have to wait for a core. Losses are not touched. Wait until they end, or leave them their "
      "cores with --threads",
      *busy_cpus);
}

}  // namespace normlab::apps
