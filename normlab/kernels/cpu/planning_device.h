#pragma once
// A CPU that computes nothing and takes no memory: it answers every question about norms and types as the
// real one does, and counts the bytes that the real one would take for the same calls. A model that is built
// on it and taken through one step has told its memory to the byte, with the very code that will run.
//
// Addresses that Allocate returns are never null and must not be followed. ReadBack gives zeros.

#include <memory>

#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/device.h"

namespace normlab {

class PlanningDevice : public Device {
 public:
  // Of the operations called so far: peak_bytes() is the arenas and this.
  virtual size_t scratch_bytes() const = 0;
  // The most that one FastestProductSeconds takes, beside everything else.
  virtual size_t timing_bytes() const = 0;
};

std::unique_ptr<PlanningDevice> MakeCpuPlanningDevice(const CpuOptions& options);

}  // namespace normlab
