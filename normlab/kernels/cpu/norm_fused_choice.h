#pragma once
// The fused kernels for rows of a type, chosen when the program runs.

#include "normlab/kernels/cpu/norm_fused.h"

namespace normlab::cpu {

// `low` is the 16-bit type of the rows, or f32 where they have none.
inline FusedKernels FusedKernelsFor(DType low) {
  switch (low) {
    case DType::kBF16:
      return FusedKernelsBf16();
    case DType::kF16:
      return FusedKernelsF16();
    default:
      return FusedKernelsF32();
  }
}

}  // namespace normlab::cpu
