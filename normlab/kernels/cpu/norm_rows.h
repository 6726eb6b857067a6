#pragma once
// What the norm implementations of the CPU share: the arguments as plain pointers and strides (the device has
// checked them), the cut of the work into chunks, and the fixed partial sums of the parameter gradients.
//
// Rows are independent of each other, so everything per row may be cut as the threads fall. Sums over rows
// are not: they go through NormPartials(rows, cols) partial sums, a number that depends on the shape alone,
// added in order; so every number of threads gives the same bits.

#include <algorithm>
#include <cstdint>

#include "normlab/base/bfloat16.h"
#include "normlab/base/float16.h"
#include "normlab/kernels/device.h"

namespace normlab::cpu {

// bf16 rounded by AVX-512-BF16: the same in memory, but kernels are compiled for it.
struct NativeBFloat16 : BFloat16 {};

// A matrix as the kernels see it. Null data: absent.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  T* Row(int64_t r) const { return data + r * stride; }
  explicit operator bool() const { return data != nullptr; }
};

// The same before the element type is known.
struct AnyRows {
  void* data = nullptr;
  int64_t stride = 0;
  DType dtype = DType::kF32;

  template <class T>
  Rows<T> As() const {
    return {static_cast<T*>(data), stride};
  }
  explicit operator bool() const { return data != nullptr; }
};

struct NormForwardRows {
  int64_t rows = 0, cols = 0;
  AnyRows x, residual, sum, y;
  float* saved = nullptr;
  const float* weight = nullptr;  // null: the gain is 1
  const float* bias = nullptr;    // null: 0
  float alpha = 0;                // where the norm has one
  float eps = 0, weight_offset = 0;
  int64_t partial_cols = 1;         // that give the statistic, where the norm takes it from a part
  bool rounds_before_gain = false;  // the normalized value to y's type, which is then 16 bits
};

struct NormBackwardRows {
  int64_t rows = 0, cols = 0;
  AnyRows x, dy, dx, dx_low;
  const float* saved = nullptr;
  const float* weight = nullptr;
  float* dweight = nullptr;  // null: not wanted
  float* dbias = nullptr;
  float* dalpha = nullptr;
  float alpha = 0;
  float eps = 0, weight_offset = 0;
  int64_t partial_cols = 1;
  bool rounds_before_gain = false;  // to dy's type, which is y's
  bool accumulate_dx = false, accumulate_dparams = false;
};

// The 16-bit type of a call, of which there is one at the most; else f32.
inline DType LowType(const NormForwardRows& rows) {
  return rows.y.dtype;  // y is of it wherever anything is
}
inline DType LowType(const NormBackwardRows& rows) {
  return rows.dy.dtype != DType::kF32 || !rows.dx_low ? rows.dy.dtype : rows.dx_low.dtype;
}

NormForwardRows RowsOf(const NormForwardArgs& args);  // norm_rows.cc
NormBackwardRows RowsOf(const NormBackwardArgs& args);

// Work below this many elements is done by the caller alone: waking a thread costs about as long as norming
// them.
inline constexpr int64_t kElementsWorthAThread = 16 * 1024;

// Chunks for work whose rows are independent: one per thread, or one in all where there is little to do.
inline int64_t RowChunks(int threads, int64_t rows, int64_t cols) {
  if (rows * cols < kElementsWorthAThread) return 1;
  return std::min<int64_t>(threads, rows);
}

// Partial sums over rows. At least 64 rows each, so that writing and adding them stays near 1% of the
// traffic, and at most 64, which bounds the scratch memory.
inline int64_t NormPartials(int64_t rows, int64_t cols) {
  if (rows * cols < kElementsWorthAThread) return 1;
  return std::clamp<int64_t>(rows / 64, 1, 64);
}

// First row of a chunk; chunk == chunks gives the end of the last.
inline int64_t ChunkBegin(int64_t rows, int64_t chunks, int64_t chunk) { return rows * chunk / chunks; }

// Floats from one row of partial sums to the next: whole cache lines, so that chunks share none.
inline int64_t PaddedCols(int64_t cols) { return (cols + 15) / 16 * 16; }

// The gain as the kernels read it, weight + offset or 1; copied to `own` only where it is not stored like
// that.
inline bool NeedsOwnGain(const float* weight, float offset) { return weight == nullptr || offset != 0.0f; }
const float* EffectiveGain(const float* weight, float offset, int64_t cols, float* own);  // norm_rows.cc
// The bias, or zeros in `own`.
const float* EffectiveBias(const float* bias, int64_t cols, float* own);

// The partial sums of dgain, dbias and dalpha, chunk by chunk, in memory of Floats(chunks, cols) floats.
class ParameterPartials {
 public:
  ParameterPartials(float* memory, int64_t chunks, int64_t cols)
      : memory_(memory), chunks_(chunks), cols_(cols), padded_(PaddedCols(cols)) {}

  static int64_t Floats(int64_t chunks, int64_t cols) { return chunks * ChunkFloats(PaddedCols(cols)); }

  float* dgain(int64_t chunk) const { return memory_ + chunk * ChunkFloats(padded_); }
  float* dbias(int64_t chunk) const { return dgain(chunk) + padded_; }
  float* dalpha(int64_t chunk) const { return dbias(chunk) + padded_; }
  void Clear(int64_t chunk) const { std::fill_n(dgain(chunk), ChunkFloats(padded_), 0.0f); }

  // dweight, dbias, dalpha = or += the chunks' sums, added in order; an absent one is left out.
  // [norm_rows.cc]
  void AddTo(int threads, const NormBackwardRows& rows) const;

 private:
  // dgain, dbias, and a cache line for dalpha.
  static int64_t ChunkFloats(int64_t padded) { return 2 * padded + 16; }

  float* memory_;
  int64_t chunks_, cols_, padded_;
};

// Scratch of a backward pass that needs no more than a gain of its own and the partial sums.
inline int64_t GainAndPartialsFloats(int64_t rows, int64_t cols) {
  return PaddedCols(cols) + ParameterPartials::Floats(NormPartials(rows, cols), cols);
}

}  // namespace normlab::cpu
