#pragma once
// What a run takes, known before it takes anything: the model is built and taken through one step on a device
// that only counts (kernels/cpu/planning_device.h), so the figures are those of the layouts that allocate.

#include <cstddef>
#include <optional>
#include <string>

#include "normlab/base/available_memory.h"
#include "normlab/train/config.h"

namespace normlab {

struct MemoryPlan {
  // Of the device: together they are the run record's peak_bytes.
  size_t weights = 0, gradients = 0, moments = 0, activations = 0, scratch = 0;
  size_t operand_weights = 0;  // copies of the weights in the type of the products' operands
  // Beside the device, at the most at one time: the largest tensor while it is initialized, or the operands
  // of the products that are timed alone. (Checkpoints and weights are written piece by piece.)
  size_t temporary = 0;
  size_t text = 0;     // the training text, in memory already when the run starts
  size_t program = 0;  // code, libraries and what they keep; an allowance, measured
  int runs = 1;        // at the same time; all other numbers are of all of them together
  bool exact = true;   // false: so large that only its order of magnitude was computed

  size_t device_bytes() const {
    return weights + gradients + moments + operand_weights + activations + scratch;
  }
  size_t total() const { return device_bytes() + temporary + text + program; }
};

struct MemoryPlanRequest {
  int threads = 1;  // of each run
  size_t text_bytes = 0;
  int runs = 1;  // of this configuration, at the same time in one process
};

// The configuration must be valid.
MemoryPlan PlanMemory(const TrainConfig& config, const MemoryPlanRequest& request);

// Throws Error where the plan does not fit: what is needed, what there is and who limits it, what takes most,
// and which keys make it smaller. `threads`: of each run. `available` is what was left when the text had been
// read.
void RequireMemory(const MemoryPlan& plan, const TrainConfig& config, int threads,
                   const std::optional<AvailableMemory>& available);

// "needs about 218 MiB of 15.2 GiB available", the text counted on both sides.
std::string MemorySentence(const MemoryPlan& plan, const std::optional<AvailableMemory>& available);

}  // namespace normlab
