#pragma once
// What the callers of a Device must hold to: shapes, strides, dtypes and overlap, one function per operation,
// so that every device refuses the same mistakes in the same words. A refusal is std::logic_error (a bug of
// the caller) that names the operation, the field, what it is and what it must be; only a bad number of a
// NormSpec, which comes from a configuration, is Error. The checks read no element: ids and targets are
// checked where they are read. Cost: tens of comparisons per operation, nothing allocated unless something is
// refused.

#include <cstdint>

#include "normlab/kernels/device.h"

namespace normlab {

// Floating-point views of one call have one dtype, but for norms; that the device computes in it, View::as
// checks.
void CheckMatMul(const MatMulArgs& args);
void CheckBiasGradient(const View& dy, const View& dbias);

// Whether `saved` is large enough depends on the implementation, which checks it.
// Norms have sets of storage types (device.h); the parameters' type follows from x's.
// A row may lie anywhere (any row stride), its columns are adjacent. Two fields that may alias are either the
// same view or share no element; a partial overlap is refused. Width 0 is refused, zero rows are fine.
void CheckNormForward(const NormForwardArgs& args);
void CheckNormBackward(const NormBackwardArgs& args);

void CheckAttentionForward(const AttentionForwardArgs& args);
void CheckAttentionBackward(const AttentionBackwardArgs& args);
void CheckEmbeddingForward(const EmbeddingForwardArgs& args);
void CheckEmbeddingBackward(const EmbeddingBackwardArgs& args);
void CheckCrossEntropy(const CrossEntropyArgs& args);
void CheckAdamW(const AdamWArgs& args);
void CheckSumSquares(const View& x, const View& to);
void CheckCopy(const View& from, const View& to);

// Whether fp32 holds the number, rounded: a number of a spec that becomes infinite makes every result NaN.
bool IsFloat(double value);

// Two views of the same elements in the same order.
bool SameView(const View& a, const View& b);

// Whether two views share an element. Exact for matrices of one row stride whose columns are adjacent (thirds
// of one matrix share nothing); for other pairs it compares address ranges and may say yes where rows
// interleave.
bool Overlaps(const View& a, const View& b);

}  // namespace normlab
