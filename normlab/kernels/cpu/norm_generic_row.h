#pragma once
// The Row of norms/row.h over fp32 rows in memory. Everything here is baseline code that must be inlined into
// the per-target driver in norm_generic.cc, whose instruction set the plain loops then use.
//
// Sum keeps 16 partial sums, column c in lane c % 16, and adds them as a tree: it vectorizes without
// fast-math and has one order of addition on every instruction set.

#include <cmath>
#include <cstdint>

#include "normlab/norms/row.h"

namespace normlab::cpu {

// What a row body may touch. Gain and bias are always there (ones and zeros where the norm has none), and so
// are the sums of their gradients.
struct GenericRowMemory {
  int64_t cols = 0;
  const float* x = nullptr;
  const float *gain = nullptr, *bias = nullptr;
  float* y = nullptr;         // forward
  float* saved = nullptr;     // written by forward, read by backward; null in a forward that saves nothing
  const float* dy = nullptr;  // backward
  float *dx = nullptr, *dgain = nullptr, *dbias = nullptr;
};

template <bool kAccumulateDx>
class GenericRow {
 public:
  using Scalar = float;

  explicit NL_INLINE GenericRow(const GenericRowMemory& memory) : m_(memory) {}

  NL_INLINE int64_t cols() const { return m_.cols; }
  NL_INLINE float x(int64_t c) const { return m_.x[c]; }
  NL_INLINE float gain(int64_t c) const { return m_.gain[c]; }
  NL_INLINE float bias(int64_t c) const { return m_.bias[c]; }
  NL_INLINE float dy(int64_t c) const { return m_.dy[c]; }
  NL_INLINE float Saved(int slot) const { return m_.saved[slot]; }
  NL_INLINE void Save(int slot, float value) const {
    if (m_.saved != nullptr) m_.saved[slot] = value;
  }
  NL_INLINE void SetY(int64_t c, float value) const { m_.y[c] = value; }
  NL_INLINE void SetDx(int64_t c, float value) const { m_.dx[c] = kAccumulateDx ? m_.dx[c] + value : value; }
  NL_INLINE void AddDgain(int64_t c, float value) const { m_.dgain[c] += value; }
  NL_INLINE void AddDbias(int64_t c, float value) const { m_.dbias[c] += value; }

  // 0 for 0: with eps = 0 a row without spread gives 0, not 0 * infinity.
  NL_INLINE float Rsqrt(float v) const { return v == 0.0f ? 0.0f : 1.0f / std::sqrt(v); }

  template <class Term>
  NL_INLINE float Sum(Term&& term) const {
    constexpr int kLanes = 16;
    float lanes[kLanes] = {};
    int64_t c = 0;
    for (; c + kLanes <= m_.cols; c += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(c + lane);
    for (int lane = 0; c < m_.cols; ++c, ++lane) lanes[lane] += term(c);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    return lanes[0];
  }

  // Columns are independent: a body reads a column before it sets it, so in place is fine too.
  template <class Body>
  NL_INLINE void ForEach(Body&& body) const {
#pragma GCC ivdep
    for (int64_t c = 0; c < m_.cols; ++c) body(c);
  }

 private:
  GenericRowMemory m_;
};

}  // namespace normlab::cpu
