#pragma once
// Where and with what a run was computed: part of every record, so that a reader (and `compare`) can tell
// which runs may stand side by side.

#include <string>

#include "normlab/base/json.h"
#include "normlab/kernels/device.h"

namespace normlab {

struct Machine {
  std::string cpu;             // model name
  std::string isa;             // widest instruction set in use
  std::string bf16_products;   // what computes them: "AMX", "AVX-512-BF16", "emulated"
  int threads = 1;             // of the run
  int jobs = 1;                // runs at the same time, as many threads each; the most, where that changed
  int cpus = 1;                // that the process may use
  std::string onednn;          // version
  std::string build;           // "normlab 0.1.0, GNU 12.2.0, Release"
  std::string device;          // "cpu"
  std::string thread_runtime;  // "OpenMP libgomp.so.1"
  std::string wait_policy;     // of the runtime's threads: "default", "passive"
  bool flush_denormals = true;
};

Machine DescribeMachine(const Device& device, int jobs = 1);

// Whether times of the two may stand side by side.
bool SameSpeed(const Machine& a, const Machine& b);

Json ToJson(const Machine& machine);
Machine MachineFromJson(const Json& json);

}  // namespace normlab
