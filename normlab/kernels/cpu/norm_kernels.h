#pragma once
// The norm implementations of the CPU, and the ordered list that picks one. Every implementation computes
// NormForwardArgs / NormBackwardArgs exactly as device.h says, for every set of storage types; arithmetic is
// fp32.

#include <optional>
#include <span>
#include <string>

#include "normlab/kernels/cpu/cpu_context.h"
#include "normlab/kernels/device.h"

namespace normlab::cpu {

struct NormImplementationEntry {
  NormImplementation implementation;
  // Nothing where it takes the work, else why not ("rows must be dense").
  std::optional<std::string> (*refuses)(const NormSpec& spec, int64_t cols);
  int64_t (*saved_elements)(const NormSpec& spec, int64_t rows, int64_t cols);
  void (*forward)(CpuContext& context, const NormForwardArgs& args);
  void (*backward)(CpuContext& context, const NormBackwardArgs& args);
  // Floats of scratch memory that such a call asks for, from shapes and types alone.
  int64_t (*forward_floats)(const NormForwardArgs& args, int threads);
  int64_t (*backward_floats)(const NormBackwardArgs& args, int threads);
};

const NormImplementationEntry& GenericNorm();  // norm_generic.cc: the body of norms/, row by row
const NormImplementationEntry& FusedNorm();    // norm_fused.cc: one pass, Highway
const NormImplementationEntry& LibraryNorm();  // norm_library.cc: oneDNN's
const NormImplementationEntry&
HandrolledNorm();  // norm_handrolled.cc: one operation at a time, as eager frameworks

// In the order in which kFastest tries them; the hand-rolled and the library's only run when named.
// [norm_dispatch.cc]
std::span<const NormImplementationEntry* const> NormImplementationOrder();

// What NORMLAB_FORCE_NORM asks for, or kFastest where it asks for none. Throws Error for an unknown name.
NormImplementation ForcedImplementation();

// The entry that runs for the spec. Throws Error where a named implementation refuses. Honours
// NORMLAB_FORCE_NORM=fused|library|generic|handrolled, which replaces kFastest only.
const NormImplementationEntry& ResolveNorm(const NormSpec& spec, int64_t cols);

}  // namespace normlab::cpu
