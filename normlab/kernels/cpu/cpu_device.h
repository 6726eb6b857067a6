#pragma once
// The CPU: fp32, OpenMP threads, Highway SIMD with runtime dispatch, oneDNN for matrix products. Its memory
// is that of the host: a View may point into any fp32 array of the caller (kernels/host_view.h), aligned or
// not. A device serves one call at a time; several devices may work at the same time, each with its own
// scratch memory.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "normlab/kernels/device.h"

namespace normlab {

struct CpuOptions {
  int threads = 1;  // at least 1; DefaultThreads() of base/threads.h says how many this process may use
};

// Throws Error for a number of threads below 1.
std::unique_ptr<Device> MakeCpuDevice(const CpuOptions& options);

// Limits SIMD kernels and oneDNN to an instruction set (base/isa.h names them; "" lifts the limit of the SIMD
// kernels). Call before the first operation: returns false where oneDNN had already started.
bool LimitCpuIsa(std::string_view isa);

// What NORMLAB_FORCE_NORM makes of a norm without a prefix; nothing where it is not set. Throws Error for a
// name that is none.
std::optional<NormImplementation> ForcedCpuNorm();

// What computes products of bf16 operands under the current limit: "AMX", "AVX-512-BF16" or, where the
// processor has neither, "emulated": operands widened to fp32 panel by panel and multiplied in fp32.
std::string CpuBf16Products();

// Version of the library that computes the products, for records: "2.6.3" (oneDNN).
std::string CpuLibraryVersion();

}  // namespace normlab
