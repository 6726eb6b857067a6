#pragma once
// The fused kernels by the 16-bit type of their rows: one translation unit each, because a kernel is compiled
// for every set of types and every instruction set. norm_fused.cc drives them.

#include <cstdint>

#include <hwy/targets.h>

#include "normlab/kernels/cpu/norm_rows.h"

namespace normlab::cpu {

// Which kernel: LayerNorm, or RMSNorm with or without gain.
struct FusedKernels {
  // Rows [begin, end). With a residual `sum` is always there (stride 0: one row that nobody wants).
  void (*forward)(const NormForwardRows& rows, bool center, const float* gain, const float* bias,
                  int64_t begin, int64_t end);
  // Adds to dgain and dbias; dbias is only touched where `center` is set.
  void (*backward)(const NormBackwardRows& rows, bool center, const float* gain, float* dgain, float* dbias,
                   int64_t begin, int64_t end);
  // The identity: y = x, or y = sum = x + residual; dx = dy, or dx += dy.
  void (*identity_forward)(const NormForwardRows& rows, int64_t begin, int64_t end);
  void (*identity_backward)(const NormBackwardRows& rows, int64_t begin, int64_t end);
};

FusedKernels FusedKernelsF32();   // norm_fused_f32.cc
FusedKernels FusedKernelsBf16();  // norm_fused_bf16.cc: all sets that have a bf16 type
FusedKernels FusedKernelsF16();   // norm_fused_f16.cc

}  // namespace normlab::cpu
