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
//
// Rows of any storage type, one kernel per set of types: In and Stream are added, what is left of the sum in
// Stream is normalized, Out is written. That a spec may round to 16 bits before the gain is a branch of the
// loop, which the processor foresees: as a template it would double what is compiled.

#if defined(NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_
#undef NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_
#else
#define NORMLAB_KERNELS_CPU_NORM_FUSED_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>

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
template <class T>
HWY_INLINE void PrefetchAhead(const T* from, int64_t elements) {
  constexpr int64_t kLine = 64 / sizeof(T), kAhead = 2048 / sizeof(T);
  for (int64_t i = 0; i < elements; i += kLine) hwy::Prefetch(from + kAhead + i);
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

// Rows of In, to which rows of Stream are added unless that is void; then the sum is always written, into one
// row of scratch (stride 0) where nobody wants it.
template <bool kCenter, class In, class Stream, class Out>
class FusedForward {
  static constexpr bool kResidual = !std::is_void_v<Stream>;
  static constexpr bool kNarrow = !std::is_same_v<Out, float>;
  using Input = std::conditional_t<kResidual, Stream, In>;  // what is normalized

 public:
  FusedForward(const NormForwardRows& rows, const float* gain, const float* bias)
      : rows_(rows),
        x_(rows.x.As<const In>()),
        residual_(rows.residual.As<const Input>()),
        sum_(rows.sum.As<Input>()),
        y_(rows.y.As<Out>()),
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
  HWY_INLINE const Input* InputRow(int64_t row) const {
    if constexpr (kResidual)
      return sum_.Row(row);
    else
      return x_.Row(row);
  }

  // First sweep of row `next` (kRead) and second sweep of row `current` (kWrite) in one loop. The second goes
  // first, so that both may have their sum in the same place.
  template <bool kRead, bool kWrite>
  HWY_INLINE RowScale Sweep(int64_t next, int64_t current, const RowScale& current_scale) const {
    const In* x = kRead ? x_.Row(next) : nullptr;
    const Input* residual = kRead && kResidual ? residual_.Row(next) : nullptr;
    Input* sum = kRead && kResidual ? sum_.Row(next) : nullptr;
    const Input* done = kWrite ? InputRow(current) : nullptr;
    Out* y = kWrite ? y_.Row(current) : nullptr;

    RowScale next_scale;
    if constexpr (kRead && kCenter) next_scale.shift = MeanOfFirstVector(x, residual);
    const Vec shift = Splat(next_scale.shift);
    const Standardizer<kCenter> standardize(current_scale);
    const bool rounds = rows_.rounds_before_gain;
    Sums sums, squares;
    ForEachVector(
        rows_.cols,
        [&](int64_t c, int64_t columns) NORMLAB_INLINE_BODY {
          if constexpr (kRead) PrefetchAhead(x + c, columns);
          if constexpr (kRead && kResidual) PrefetchAhead(residual + c, columns);
          if constexpr (kRead && kResidual) PrefetchAhead(sum + c, columns);
          if constexpr (kWrite) PrefetchAhead(y + c, columns);
        },
        [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
          if constexpr (kWrite) {
            Vec v = standardize(Load(done + c, part));
            if constexpr (kNarrow) {
              if (rounds) [[unlikely]]
                v = Rounded<Out>(v);
            }
            const Vec gain = Load(gain_ + c, part);
            v = kCenter ? hn::MulAdd(v, gain, Load(bias_ + c, part)) : hn::Mul(v, gain);
            Store(v, y + c, part);
          }
          if constexpr (kRead) {
            Vec v = Load(x + c, part);
            if constexpr (kResidual) {
              v = hn::Add(v, Load(residual + c, part));
              Store(v, sum + c, part);
              v = Rounded<Input>(v);
            }
            if constexpr (kCenter) {
              v = InRow(hn::Sub(v, shift), part);
              sums[u] = hn::Add(sums[u], v);
            }
            squares[u] = hn::MulAdd(v, v, squares[u]);
          }
        },
        [&]() NORMLAB_INLINE_BODY {
          if constexpr (kRead && kCenter) sums.EndBlock();
          if constexpr (kRead) squares.EndBlock();
        });
    if constexpr (kRead) Finish(next, sums.Total(), squares.Total(), next_scale);
    return next_scale;
  }

  // Taken about x[0], so that a row without spread has differences of exactly 0.
  HWY_INLINE float MeanOfFirstVector(const In* x, const Input* residual) const {
    const auto mean = [&](auto part) NORMLAB_INLINE_BODY {
      Vec v = Load(x, part);
      if constexpr (kResidual) v = Rounded<Input>(hn::Add(v, Load(residual, part)));
      const float first = hn::GetLane(v);
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
      rows_.saved[2 * row] = (scale.shift - ToFloat(InputRow(row)[0])) + scale.mean;
      rows_.saved[2 * row + 1] = scale.inv;
    } else {
      rows_.saved[row] = scale.inv;
    }
  }

  // The variance about the mean itself, and a mean corrected by what was left of it.
  HWY_NOINLINE __attribute__((cold)) float VarianceAboutMean(int64_t row, RowScale& scale) const {
    const Input* x = InputRow(row);
    const Vec shift = Splat(scale.shift), mean = Splat(scale.mean);
    Sums sums, squares;
    ForEachVector(
        rows_.cols, [](int64_t, int64_t) NORMLAB_INLINE_BODY {},
        [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
          const Vec v = InRow(hn::Sub(hn::Sub(Load(x + c, part), shift), mean), part);
          sums[u] = hn::Add(sums[u], v);
          squares[u] = hn::MulAdd(v, v, squares[u]);
        },
        [&]() NORMLAB_INLINE_BODY {
          sums.EndBlock();
          squares.EndBlock();
        });
    const float rest = sums.Total() * inv_cols_;
    scale.mean += rest;
    return std::max(0.0f, squares.Total() * inv_cols_ - rest * rest);
  }

  const NormForwardRows& rows_;
  Rows<const In> x_;
  Rows<const Input> residual_;
  Rows<Input> sum_;
  Rows<Out> y_;
  const float *gain_, *bias_;
  float inv_cols_, inv_first_;  // 1 / width of the row, of its first vector
};

// Gradients of a run of rows. With xhat the standardized row and g = dy * gain, the first sweep gathers sum(g
// * xhat) and sum(g) and adds dy * xhat and dy to the parameter gradients: one product serves both. The
// second writes dx = inv * (g - mean(g) - xhat * mean(g * xhat)).
// Low, unless void, is the type of a second copy of dx.
template <bool kCenter, bool kAccumulate, class X, class Dy, class Dx, class Low>
class FusedBackward {
  static constexpr bool kLow = !std::is_void_v<Low>;
  using LowOrFloat = std::conditional_t<kLow, Low, float>;

 public:
  FusedBackward(const NormBackwardRows& rows, const float* gain, float* dgain, float* dbias)
      : rows_(rows),
        x_(rows.x.As<const X>()),
        dy_(rows.dy.As<const Dy>()),
        dx_(rows.dx.As<Dx>()),
        dx_low_(rows.dx_low.As<LowOrFloat>()),
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
      return {
          .shift = ToFloat(x_.Row(row)[0]), .mean = rows_.saved[2 * row], .inv = rows_.saved[2 * row + 1]};
    return {.inv = rows_.saved[row]};
  }

  template <bool kRead, bool kWrite>
  HWY_INLINE RowState Sweep(int64_t next, int64_t current, const RowState& current_state) const {
    const X* x = kRead ? x_.Row(next) : nullptr;
    const Dy* dy = kRead ? dy_.Row(next) : nullptr;
    const X* done_x = kWrite ? x_.Row(current) : nullptr;
    const Dy* done_dy = kWrite ? dy_.Row(current) : nullptr;
    Dx* dx = kWrite ? dx_.Row(current) : nullptr;
    LowOrFloat* dx_low = kWrite && kLow && dx_low_ ? dx_low_.Row(current) : nullptr;

    RowState next_state;
    if constexpr (kRead) next_state.scale = Saved(next);
    const Standardizer<kCenter> standardize_next(next_state.scale), standardize(current_state.scale);
    const Vec mean_g = Splat(current_state.mean_g * current_state.scale.inv);
    const Vec mean_gx = Splat(current_state.mean_gx * current_state.scale.inv);
    const bool rounds = rows_.rounds_before_gain;
    Sums g_sums, gx_sums;
    ForEachVector(
        rows_.cols,
        [&](int64_t c, int64_t columns) NORMLAB_INLINE_BODY {
          if constexpr (kRead) {
            PrefetchAhead(x + c, columns);
            PrefetchAhead(dy + c, columns);
          }
          if constexpr (kWrite) {
            PrefetchAhead(dx + c, columns);
            if constexpr (kLow) {
              if (dx_low != nullptr) PrefetchAhead(dx_low + c, columns);
            }
          }
        },
        [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
          const Vec gain = Load(gain_ + c, part);
          if constexpr (kRead) {
            const Vec gradient = Load(dy + c, part);
            const Vec xhat = standardize_next(Load(x + c, part));
            const Vec product = hn::Mul(gradient, xhat);
            Vec dgain = product;
            if constexpr (!std::is_same_v<Dy, float>) {
              if (rounds) [[unlikely]]  // xhat as it met the gain
                dgain = hn::Mul(gradient, Rounded<Dy>(xhat));
            }
            Store(hn::Add(Load(dgain_ + c, part), dgain), dgain_ + c, part);
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
            if constexpr (kLow) {
              if (dx_low != nullptr) Store(v, dx_low + c, part);
            }
          }
        },
        [&]() NORMLAB_INLINE_BODY {
          if constexpr (kRead) gx_sums.EndBlock();
          if constexpr (kRead && kCenter) g_sums.EndBlock();
        });
    if constexpr (kRead) {
      next_state.mean_gx = gx_sums.Total() * inv_cols_;
      if constexpr (kCenter) next_state.mean_g = g_sums.Total() * inv_cols_;
    }
    return next_state;
  }

  const NormBackwardRows& rows_;
  Rows<const X> x_;
  Rows<const Dy> dy_;
  Rows<Dx> dx_;
  Rows<LowOrFloat> dx_low_;
  const float* gain_;
  float *dgain_, *dbias_;
  float inv_cols_;
};

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
