// The fused LayerNorm and RMSNorm, one instruction set at a time: runs of rows, forward and backward.
//
// A row needs two sweeps: one to gather its sums, one to write its result. The first sweep of row r + 1 and
// the second of row r share one loop, so that loads and stores interleave as in a plain copy and the latency
// of reduce, root and division hides behind the next row. One row at a time: one long stream per array is
// what the hardware prefetchers like best.
//
// LayerNorm sums x - shift and its square in that one sweep, the shift being the mean of the row's first
// vector. That removes the row's offset exactly, so a mean a thousand times the spread costs no digits, and
// it leaves so little that the variance E[d^2] - E[d]^2 loses none either; only a row that begins more than a
// standard deviation off its mean needs the exact second pass (VarianceAboutMean). That pass reads the row
// out of the cache, and is kept out of line, because inlined it made the compiler spill the accumulators. The
// mean is saved relative to x[0], which backward finds again: an absolute mean would be rounded to the
// offset's digits.

#if defined(NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_
#undef NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_
#else
#define NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include <hwy/cache_control.h>

#include "normlab/kernels/cpu/inverse_root.h"
#include "normlab/kernels/cpu/norm_rows.h"
#include "normlab/kernels/cpu/norm_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

// 2 KB ahead: 1 to 4 KB measured equal, without it 5-30% slower from memory. Outputs too: the line must be
// fetched before it is overwritten, and on Intel (480 MB L3, one core, 2048x768) that alone took forward from
// 0.86 to 1.05 of the stream.
constexpr int64_t kPrefetchFloats = 512;

HWY_INLINE void PrefetchAhead(const float* from, int64_t floats) {
  constexpr int64_t kLine = 16;
  for (int64_t i = 0; i < floats; i += kLine) hwy::Prefetch(from + kPrefetchFloats + i);
}

// What turns x into (x - mean) / std or x / rms.
struct RowScale {
  float shift = 0;  // near the mean (forward) or x[0] (backward); unused by RMSNorm
  float mean = 0;   // relative to shift; unused by RMSNorm
  float inv = 0;    // inv_std or inv_rms
};

// The same in registers.
template <bool kCenter>
struct Standardizer {
  explicit HWY_INLINE Standardizer(const RowScale& s)
      : shift(Splat(s.shift)), inv(Splat(s.inv)), offset(Splat(-s.mean * s.inv)) {}
  HWY_INLINE Vec operator()(Vec x) const {
    if constexpr (kCenter) return hn::MulAdd(hn::Sub(x, shift), inv, offset);
    return hn::Mul(x, inv);
  }
  Vec shift, inv, offset;
};

template <bool kCenter, bool kResidual, bool kSum>
class FusedForward {
 public:
  FusedForward(const NormForwardRows& rows, const float* gain, const float* bias)
      : rows_(rows),
        gain_(gain),
        bias_(bias),
        inv_cols_(1.0f / static_cast<float>(rows.cols)),
        inv_first_(1.0f / static_cast<float>(std::min(rows.cols, VectorLanes()))) {}

  void Run(int64_t begin, int64_t end) const {
    if (begin == end) return;
    RowScale scale = Sweep<true, false>(begin, 0, {});
    for (int64_t r = begin; r + 1 < end; ++r) scale = Sweep<true, true>(r + 1, r, scale);
    Sweep<false, true>(0, end - 1, scale);
  }

 private:
  // First sweep of row `next` (kRead) and second sweep of row `current` (kWrite) in one loop.
  template <bool kRead, bool kWrite>
  HWY_INLINE RowScale Sweep(int64_t next, int64_t current, const RowScale& current_scale) const {
    const float* x = kRead ? rows_.x.Row(next) : nullptr;
    const float* residual = kRead && kResidual ? rows_.residual.Row(next) : nullptr;
    float* sum = kRead && kSum ? rows_.sum.Row(next) : nullptr;
    const float* done = kWrite ? (kSum ? rows_.sum.Row(current) : rows_.x.Row(current)) : nullptr;
    const float* done_residual = kWrite && kResidual && !kSum ? rows_.residual.Row(current) : nullptr;
    float* y = kWrite ? rows_.y.Row(current) : nullptr;

    RowScale next_scale;
    if constexpr (kRead && kCenter) next_scale.shift = MeanOfFirstVector(x, residual);
    const Vec shift = Splat(next_scale.shift);
    const Standardizer<kCenter> standardize(current_scale);
    Sums sums, squares;
    ForEachVector(
        rows_.cols,
        [&](int64_t c, int64_t floats) NORMLAB_INLINE_BODY {
          if constexpr (kRead) PrefetchAhead(x + c, floats);
          if constexpr (kRead && kResidual) PrefetchAhead(residual + c, floats);
          if constexpr (kRead && kSum) PrefetchAhead(sum + c, floats);
          if constexpr (kWrite) PrefetchAhead(y + c, floats);
        },
        [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
          if constexpr (kRead) {
            Vec v = Load(x + c, part);
            if constexpr (kResidual) v = hn::Add(v, Load(residual + c, part));
            if constexpr (kSum) Store(v, sum + c, part);
            if constexpr (kCenter) {
              v = InRow(hn::Sub(v, shift), part);
              sums[u] = hn::Add(sums[u], v);
            }
            squares[u] = hn::MulAdd(v, v, squares[u]);
          }
          if constexpr (kWrite) {
            Vec v = Load(done + c, part);
            if constexpr (kResidual && !kSum) v = hn::Add(v, Load(done_residual + c, part));
            v = standardize(v);
            const Vec gain = Load(gain_ + c, part);
            v = kCenter ? hn::MulAdd(v, gain, Load(bias_ + c, part)) : hn::Mul(v, gain);
            Store(v, y + c, part);
          }
        });
    if constexpr (kRead) Finish(next, sums.Total(), squares.Total(), next_scale);
    return next_scale;
  }

  // Taken about x[0], so that a row without spread has differences of exactly 0.
  HWY_INLINE float MeanOfFirstVector(const float* x, const float* residual) const {
    const float first = kResidual ? x[0] + residual[0] : x[0];
    const auto mean = [&](auto part) NORMLAB_INLINE_BODY {
      Vec v = Load(x, part);
      if constexpr (kResidual) v = hn::Add(v, Load(residual, part));
      return first + SumLanes(InRow(hn::Sub(v, Splat(first)), part)) * inv_first_;
    };
    return rows_.cols >= VectorLanes() ? mean(Whole()) : mean(Tail(rows_.cols));
  }

  HWY_INLINE void Finish(int64_t row, float sum, float square, RowScale& scale) const {
    float mean_square = square * inv_cols_;
    if constexpr (kCenter) {
      scale.mean = sum * inv_cols_;
      const float variance = mean_square - scale.mean * scale.mean;
      mean_square = variance;
      if (scale.mean * scale.mean > variance) [[unlikely]]
        mean_square = VarianceAboutMean(row, scale);
    }
    scale.inv = InverseRoot(mean_square + rows_.eps);
    if (rows_.saved == nullptr) return;
    if constexpr (kCenter) {
      float first = kSum ? rows_.sum.Row(row)[0] : rows_.x.Row(row)[0];
      if constexpr (kResidual && !kSum) first += rows_.residual.Row(row)[0];
      rows_.saved[2 * row] = (scale.shift - first) + scale.mean;
      rows_.saved[2 * row + 1] = scale.inv;
    } else {
      rows_.saved[row] = scale.inv;
    }
  }

  // The variance about the mean itself, and a mean corrected by what was left of it.
  HWY_NOINLINE __attribute__((cold)) float VarianceAboutMean(int64_t row, RowScale& scale) const {
    const float* x = kSum ? rows_.sum.Row(row) : rows_.x.Row(row);
    const float* residual = kResidual && !kSum ? rows_.residual.Row(row) : nullptr;
    const Vec shift = Splat(scale.shift), mean = Splat(scale.mean);
    Sums sums, squares;
    ForEachVector(
        rows_.cols, [](int64_t, int64_t) NORMLAB_INLINE_BODY {},
        [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
          Vec v = Load(x + c, part);
          if constexpr (kResidual && !kSum) v = hn::Add(v, Load(residual + c, part));
          v = InRow(hn::Sub(hn::Sub(v, shift), mean), part);
          sums[u] = hn::Add(sums[u], v);
          squares[u] = hn::MulAdd(v, v, squares[u]);
        });
    const float rest = sums.Total() * inv_cols_;
    scale.mean += rest;
    return std::max(0.0f, squares.Total() * inv_cols_ - rest * rest);
  }

  const NormForwardRows& rows_;
  const float *gain_, *bias_;
  float inv_cols_, inv_first_;  // 1 / width of the row, of its first vector
};

// Gradients of a run of rows. With xhat the standardized row and g = dy * gain, the first sweep gathers sum(g
// * xhat) and sum(g) and adds dy * xhat and dy to the parameter gradients: one product serves both. The
// second writes dx = inv * (g - mean(g) - xhat * mean(g * xhat)).
template <bool kCenter, bool kAccumulate>
class FusedBackward {
 public:
  FusedBackward(const NormBackwardRows& rows, const float* gain, float* dgain, float* dbias)
      : rows_(rows),
        gain_(gain),
        dgain_(dgain),
        dbias_(dbias),
        inv_cols_(1.0f / static_cast<float>(rows.cols)) {}

  void Run(int64_t begin, int64_t end) const {
    if (begin == end) return;
    RowState state = Sweep<true, false>(begin, 0, {});
    for (int64_t r = begin; r + 1 < end; ++r) state = Sweep<true, true>(r + 1, r, state);
    Sweep<false, true>(0, end - 1, state);
  }

 private:
  struct RowState {
    RowScale scale;
    float mean_g = 0, mean_gx = 0;
  };

  HWY_INLINE RowScale Saved(int64_t row) const {
    if constexpr (kCenter)
      return {.shift = rows_.x.Row(row)[0], .mean = rows_.saved[2 * row], .inv = rows_.saved[2 * row + 1]};
    return {.inv = rows_.saved[row]};
  }

  template <bool kRead, bool kWrite>
  HWY_INLINE RowState Sweep(int64_t next, int64_t current, const RowState& current_state) const {
    const float* x = kRead ? rows_.x.Row(next) : nullptr;
    const float* dy = kRead ? rows_.dy.Row(next) : nullptr;
    const float* done_x = kWrite ? rows_.x.Row(current) : nullptr;
    const float* done_dy = kWrite ? rows_.dy.Row(current) : nullptr;
    float* dx = kWrite ? rows_.dx.Row(current) : nullptr;

    RowState next_state;
    if constexpr (kRead) next_state.scale = Saved(next);
    const Standardizer<kCenter> standardize_next(next_state.scale), standardize(current_state.scale);
    const Vec mean_g = Splat(current_state.mean_g * current_state.scale.inv);
    const Vec mean_gx = Splat(current_state.mean_gx * current_state.scale.inv);
    Sums g_sums, gx_sums;
    ForEachVector(
        rows_.cols,
        [&](int64_t c, int64_t floats) NORMLAB_INLINE_BODY {
          if constexpr (kRead) {
            PrefetchAhead(x + c, floats);
            PrefetchAhead(dy + c, floats);
          }
          if constexpr (kWrite) PrefetchAhead(dx + c, floats);
        },
        [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
          const Vec gain = Load(gain_ + c, part);
          if constexpr (kRead) {
            const Vec gradient = Load(dy + c, part);
            const Vec product = hn::Mul(gradient, standardize_next(Load(x + c, part)));
            Store(hn::Add(Load(dgain_ + c, part), product), dgain_ + c, part);
            gx_sums[u] = hn::MulAdd(gain, InRow(product, part), gx_sums[u]);
            if constexpr (kCenter) {
              Store(hn::Add(Load(dbias_ + c, part), gradient), dbias_ + c, part);
              g_sums[u] = hn::MulAdd(gain, gradient, g_sums[u]);
            }
          }
          if constexpr (kWrite) {
            Vec v = hn::Mul(Load(done_dy + c, part), gain);
            v = kCenter ? hn::MulSub(v, standardize.inv, mean_g) : hn::Mul(v, standardize.inv);
            v = hn::NegMulAdd(standardize(Load(done_x + c, part)), mean_gx, v);
            if constexpr (kAccumulate) v = hn::Add(v, Load(dx + c, part));
            Store(v, dx + c, part);
          }
        });
    if constexpr (kRead) {
      next_state.mean_gx = gx_sums.Total() * inv_cols_;
      if constexpr (kCenter) next_state.mean_g = g_sums.Total() * inv_cols_;
    }
    return next_state;
  }

  const NormBackwardRows& rows_;
  const float* gain_;
  float *dgain_, *dbias_;
  float inv_cols_;
};

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
