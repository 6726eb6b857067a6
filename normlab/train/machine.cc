#include <sys/utsname.h>

#include <fstream>
#include <string>
#include <tuple>

#include "normlab/base/isa.h"
#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/train/machine.h"

namespace normlab {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "unknown";
}

}  // namespace

Machine DescribeMachine(const Device& device, int jobs) {
  return {.cpu = CpuModel(),
          .isa = CurrentIsa(),
          .bf16_products = CpuBf16Products(),
          .threads = device.threads(),
          .jobs = jobs,
          .cpus = DefaultThreads(),
          .onednn = CpuLibraryVersion(),
          .build = NORMLAB_BUILD,
          .device = std::string(device.name()),
          .thread_runtime = ThreadRuntime(),
          .wait_policy = ThreadWaitPolicy()};
}

bool SameSpeed(const Machine& a, const Machine& b) {
  const auto speed = [](const Machine& machine) {
    return std::tie(machine.cpu, machine.isa, machine.bf16_products, machine.threads, machine.jobs,
                    machine.onednn, machine.wait_policy);
  };
  return speed(a) == speed(b);
}

Json ToJson(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"isa", machine.isa},
          {"bf16_products", machine.bf16_products},
          {"threads", machine.threads},
          {"jobs", machine.jobs},
          {"cpus", machine.cpus},
          {"onednn", machine.onednn},
          {"build", machine.build},
          {"device", machine.device},
          {"thread_runtime", machine.thread_runtime},
          {"wait_policy", machine.wait_policy},
          {"flush_denormals", machine.flush_denormals}};
}

Machine MachineFromJson(const Json& json) {
  return {.cpu = json.value("cpu", ""),
          .isa = json.value("isa", ""),
          .bf16_products = json.value("bf16_products", ""),
          .threads = json.value("threads", 1),
          .jobs = json.value("jobs", 1),
          .cpus = json.value("cpus", 1),
          .onednn = json.value("onednn", ""),
          .build = json.value("build", ""),
          .device = json.value("device", ""),
          .thread_runtime = json.value("thread_runtime", ""),
          .wait_policy = json.value("wait_policy", ""),
          .flush_denormals = json.value("flush_denormals", true)};
}

}  // namespace normlab
