#pragma once
// The operations of device.h on the CPU, one function each. Arguments are checked by the device before.

#include <cstdint>

#include "normlab/kernels/cpu/cpu_context.h"
#include "normlab/kernels/device.h"

namespace normlab::cpu {

void MatMul(CpuContext& context, const MatMulArgs& args);                                    // matmul.cc
void MatMulBf16(CpuContext& context, const MatMulArgs& args);                                // matmul_bf16.cc
void BiasGradient(CpuContext& context, const View& dy, const View& dbias, bool accumulate);  // matmul.cc
void AttentionForward(CpuContext& context, const AttentionForwardArgs& args);                // attention.cc
void AttentionBackward(CpuContext& context, const AttentionBackwardArgs& args);
void AttentionForwardBf16(CpuContext& context, const AttentionForwardArgs& args);  // attention_bf16.cc
void AttentionBackwardBf16(CpuContext& context, const AttentionBackwardArgs& args);
int64_t AttentionForwardBf16Floats(CpuContext& context, const AttentionForwardArgs& args);
int64_t AttentionBackwardBf16Floats(CpuContext& context, const AttentionBackwardArgs& args);
void EmbeddingForward(CpuContext& context, const EmbeddingForwardArgs& args);  // embedding.cc
void EmbeddingBackward(CpuContext& context, const EmbeddingBackwardArgs& args);
void CrossEntropy(CpuContext& context, const CrossEntropyArgs& args);    // cross_entropy.cc
void AdamW(CpuContext& context, const AdamWArgs& args);                  // optimizer.cc
void NarrowFlat(CpuContext& context, const View& from, const View& to);  // optimizer.cc; dense f32 to bf16
double SumSquares(CpuContext& context, const View& x);                   // optimizer.cc

// Floats of scratch memory that these ask for; the others ask for none.
int64_t MatMulFloats(CpuContext& context, const MatMulArgs& args);
int64_t BiasGradientFloats(int64_t rows, int64_t cols);
int64_t AttentionForwardFloats(CpuContext& context, const AttentionForwardArgs& args);
int64_t AttentionBackwardFloats(CpuContext& context, const AttentionBackwardArgs& args);

}  // namespace normlab::cpu
