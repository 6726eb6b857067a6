#include "normlab/base/interference.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>

namespace normlab {
namespace {

namespace fs = std::filesystem;

// Mean of what was added; nothing where nothing was.
class Average {
 public:
  void Add(double value) { sum_ += value, ++count_; }
  std::optional<double> value() const {
    if (count_ == 0) return std::nullopt;
    return sum_ / count_;
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

std::optional<double> FromCpufreq(const fs::path& system) {
  Average mhz;
  for (int cpu = 0;; ++cpu) {
    const fs::path folder = system / ("cpu" + std::to_string(cpu));
    std::error_code ignored;
    if (!fs::exists(folder, ignored)) return mhz.value();
    std::ifstream file(folder / "cpufreq/scaling_cur_freq");
    if (double khz = 0; file >> khz && khz > 0) mhz.Add(khz / 1000);
  }
}

std::optional<double> FromCpuinfo(const fs::path& proc) {
  std::ifstream file(proc / "cpuinfo");
  Average mhz;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (const double value = std::strtod(line.c_str() + colon + 1, nullptr); value > 0) mhz.Add(value);
  }
  return mhz.value();
}

}  // namespace

int64_t InvoluntarySwitches() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

std::optional<double> StolenSeconds(const fs::path& proc) {
  std::ifstream file(proc / "stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
  if (!(file >> name >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal) || name != "cpu")
    return std::nullopt;
  return steal / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::optional<double> ProcessorMhz(const fs::path& system, const fs::path& proc) {
  if (const auto mhz = FromCpufreq(system)) return mhz;
  return FromCpuinfo(proc);
}

}  // namespace normlab
