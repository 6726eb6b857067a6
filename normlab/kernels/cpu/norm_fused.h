#pragma once
// The fused kernels by the 16-bit type of their rows: one translation unit each, because a kernel is compiled
// for every set of types and every instruction set. norm_fused.cc drives them.

#include <cstdint>

#include <hwy/targets.h>

#include "normlab/kernels/cpu/norm_rows.h"

namespace normlab::cpu {

// Which kernel. RMSNorm's is re-scaling's too, the gain being 1.
enum class FusedKind { kLayerNorm, kRmsNorm, kPartialRmsNorm, kRecenter, kDyt };

struct FusedKernels {
  // Rows [begin, end). With a residual `sum` is always there (stride 0: one row that nobody wants).
  void (*forward)(const NormForwardRows& rows, FusedKind norm, const float* gain, const float* bias,
                  int64_t begin, int64_t end);
  // Adds to the chunk's partial sums; only those of parameters that the norm has.
  void (*backward)(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                   const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end);
  // The identity: y = x, or y = sum = x + residual, or the sum alone where y is null; dx = dy, or dx += dy.
  void (*identity_forward)(const NormForwardRows& rows, int64_t begin, int64_t end);
  void (*identity_backward)(const NormBackwardRows& rows, int64_t begin, int64_t end);
};

FusedKernels FusedKernelsF32();   // norm_fused_f32.cc
FusedKernels FusedKernelsBf16();  // norm_fused_bf16.cc: all sets that have a bf16 type
FusedKernels FusedKernelsF16();   // norm_fused_f16.cc

}  // namespace normlab::cpu
