#pragma once
// The Row of norms/row.h over fp32 rows in memory. Everything here is baseline code that must be inlined into
// the per-target driver in norm_generic.cc, whose instruction set the plain loops then use.
//
// Sum keeps 16 partial sums, column c in lane c % 16, and adds them as a tree: it vectorizes without
// fast-math and has one order of addition on every instruction set. Each 1,024 columns are summed for
// themselves first: added to one growing sum, terms that are nearly equal are all rounded the same way.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "normlab/base/bfloat16.h"
#include "normlab/base/dtype.h"
#include "normlab/base/float16.h"
#include "normlab/kernels/cpu/inverse_root.h"
#include "normlab/norms/row.h"

namespace normlab::cpu {

// What a row body may touch. Gain and bias are always there (ones and zeros where the norm has none), and so
// are the sums of their gradients.
struct GenericRowMemory {
  int64_t cols = 0;
  const float* x = nullptr;
  const float *gain = nullptr, *bias = nullptr;
  float alpha = 0;
  float* y = nullptr;         // forward
  float* saved = nullptr;     // written by forward, read by backward; null in a forward that saves nothing
  const float* dy = nullptr;  // backward
  float *dx = nullptr, *dgain = nullptr, *dbias = nullptr, *dalpha = nullptr;
  DType stored = DType::kF32;  // what y is stored in, where kRounds
};

// kRounds: y is of 16 bits, and the body rounds to them itself (NormCast::kBeforeGain).
template <bool kAccumulateDx, bool kRounds>
class GenericRow {
 public:
  using Scalar = float;

  explicit NL_INLINE GenericRow(const GenericRowMemory& memory) : m_(memory) {}

  NL_INLINE int64_t cols() const { return m_.cols; }
  NL_INLINE float x(int64_t c) const { return m_.x[c]; }
  NL_INLINE float gain(int64_t c) const { return m_.gain[c]; }
  NL_INLINE float bias(int64_t c) const { return m_.bias[c]; }
  NL_INLINE float alpha() const { return m_.alpha; }
  NL_INLINE float dy(int64_t c) const { return m_.dy[c]; }
  NL_INLINE float Saved(int slot) const { return m_.saved[slot]; }
  NL_INLINE void Save(int slot, float value) const {
    if (m_.saved != nullptr) m_.saved[slot] = value;
  }
  NL_INLINE void SetY(int64_t c, float value) const { m_.y[c] = value; }
  NL_INLINE void SetDx(int64_t c, float value) const { m_.dx[c] = kAccumulateDx ? m_.dx[c] + value : value; }
  NL_INLINE void AddDgain(int64_t c, float value) const { m_.dgain[c] += value; }
  NL_INLINE void AddDbias(int64_t c, float value) const { m_.dbias[c] += value; }
  NL_INLINE void AddDalpha(float value) const { *m_.dalpha += value; }

  NL_INLINE float Stored(float value) const {
    if (!kRounds) return value;
    return m_.stored == DType::kBF16 ? BFloat16::FromFloat(value).ToFloat() : RoundToFloat16(value);
  }

  NL_INLINE float Rsqrt(float v) const { return InverseRoot(v); }

  // tanh(v) without a branch, so that the loops around it vectorize. Below 0.625 an odd polynomial (the one
  // of Moshier's Cephes library, tanhf), above 1 - 2 / (e^2|v| + 1), whose exponential is e^r 2^n with |r| <=
  // ln(2)/2. Within 3 units in the last place, and never beyond 1; NaN stays NaN.
  NL_INLINE float Tanh(float v) const {
    const float a = std::fabs(v);
    const float z = v * v;
    const float p =
        (((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z + 1.33314422036e-1f) * z -
        3.33332819422e-1f;
    const float small = v + v * z * p;

    const float twice = a < 10.0f ? 2.0f * a : 20.0f;  // tanh(10) rounds to 1; NaN is put back below
    const float n = static_cast<float>(static_cast<int32_t>(twice * 1.44269504f + 0.5f));  // twice >= 0
    const float r = twice - n * 0.693145752f - n * 1.42860677e-6f;  // ln(2) in two parts (Cody and Waite)
    const float e_r =
        1.0f + r +
        r * r *
            (0.5f + r * (1.66666667e-1f + r * (4.16666667e-2f + r * (8.33333333e-3f + r * 1.38888889e-3f))));
    const float two_n = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
    const float large = std::copysign(1.0f - 2.0f / (e_r * two_n + 1.0f), v);
    const float value = a < 0.625f ? small : large;
    return v == v ? value : v;
  }

  template <class Term>
  NL_INLINE float Sum(Term&& term) const {
    return SumFirst(m_.cols, term);
  }
  template <class Term>
  NL_INLINE float SumFirst(int64_t count, Term&& term) const {
    constexpr int kLanes = 16;
    constexpr int64_t kBlock = 1024;
    float lanes[kLanes] = {};
    int64_t c = 0;
    for (const int64_t whole = count / kLanes * kLanes; c < whole;) {
      float block[kLanes] = {};
      for (const int64_t end = std::min(c + kBlock, whole); c < end; c += kLanes)
        for (int lane = 0; lane < kLanes; ++lane) block[lane] += term(c + lane);
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += block[lane];
    }
    for (int lane = 0; c < count; ++c, ++lane) lanes[lane] += term(c);
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
