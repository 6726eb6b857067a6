// The fused kernels of the other norms, one row at a time and per instruction set: partial RMSNorm, whose
// statistic needs a part of the row only, re-centring, and DyT, which has no statistic. What two steps of a
// row share stays in the first cache, so nothing is gained by interleaving rows as norm_fused-inl.h does.

#if defined(NORMLAB_KERNELS_CPU_NORM_FUSED_FAMILY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_NORM_FUSED_FAMILY_INL_H_
#undef NORMLAB_KERNELS_CPU_NORM_FUSED_FAMILY_INL_H_
#else
#define NORMLAB_KERNELS_CPU_NORM_FUSED_FAMILY_INL_H_
#endif

#include "normlab/kernels/cpu/norm_fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

// tanh(v) within 3 units in the last place, odd, never beyond 1; NaN stays NaN. Below 0.625 an odd polynomial
// (Moshier's Cephes library, tanhf), above 1 - 2 / (e^2|v| + 1), whose exponential is e^r 2^n with |r| <=
// ln(2)/2. The same formulas as in norm_generic_row.h.
HWY_INLINE Vec Tanh(Vec v) {
  const auto set = [](float value) NORMLAB_INLINE_BODY { return Splat(value); };
  const hn::RebindToSigned<F> i32;
  const Vec a = hn::Abs(v), z = hn::Mul(v, v);
  Vec p = hn::MulAdd(z, set(-5.70498872745e-3f), set(2.06390887954e-2f));
  p = hn::MulAdd(p, z, set(-5.37397155531e-2f));
  p = hn::MulAdd(p, z, set(1.33314422036e-1f));
  p = hn::MulAdd(p, z, set(-3.33332819422e-1f));
  const Vec small = hn::MulAdd(hn::Mul(v, z), p, v);

  // tanh(10) rounds to 1. Min gives its second argument for a NaN.
  const Vec twice = hn::Min(hn::Add(a, a), set(20.0f));
  const auto n = hn::ConvertTo(i32, hn::MulAdd(twice, set(1.44269504f), set(0.5f)));
  const Vec n_float = hn::ConvertTo(F(), n);
  Vec r = hn::NegMulAdd(n_float, set(0.693145752f), twice);
  r = hn::NegMulAdd(n_float, set(1.42860677e-6f), r);
  Vec e = hn::MulAdd(r, set(1.38888889e-3f), set(8.33333333e-3f));
  e = hn::MulAdd(e, r, set(4.16666667e-2f));
  e = hn::MulAdd(e, r, set(1.66666667e-1f));
  e = hn::MulAdd(e, r, set(0.5f));
  e = hn::MulAdd(hn::Mul(r, r), e, hn::Add(r, set(1.0f)));
  const Vec two_n = hn::BitCast(F(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(i32, 127))));
  const Vec one = set(1.0f);
  const Vec large = hn::Sub(one, hn::Div(set(2.0f), hn::MulAdd(e, two_n, one)));
  const Vec value = hn::IfThenElse(hn::Lt(a, set(0.625f)), small, hn::CopySign(large, v));
  return hn::IfThenElse(hn::Eq(v, v), value, v);
}

// body(c, part, u) for all columns, which are asked for ahead of time in `matrices`, and end_of_block() now
// and then and at the end. Vector by vector: the rows' other loops are unrolled for sums that wait for each
// other, but here an element's own work hides that, and code that is four times as long takes as much longer
// to compile.
template <class Body, class EndOfBlock, class... T>
HWY_INLINE void ForEachVectorOf(int64_t cols, Body&& body, EndOfBlock&& end_of_block, const T*... matrices) {
  constexpr int64_t kBlock = 1024;
  const int64_t lanes = VectorLanes();
  int64_t c = 0;
  while (c + lanes <= cols) {
    for (const int64_t end = std::min(c + kBlock, cols); c + lanes <= end; c += lanes) {
      (hwy::Prefetch(matrices + c + 2048 / sizeof(T)), ...);
      body(c, Whole(), 0);
    }
    end_of_block();
  }
  if (c < cols) body(c, Tail(cols - c), 0);
}

// ---- Forward: what a row's input gives, and what becomes of an element.

// inv_rms of the first columns.
template <class Input>
HWY_INLINE RowScale PartialScale(const Input* x, const NormForwardRows& rows) {
  Sums squares;
  ForEachVectorOf(
      rows.partial_cols,
      [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
        const Vec v = Load(x + c, part);
        squares[u] = hn::MulAdd(v, v, squares[u]);
      },
      [&]() NORMLAB_INLINE_BODY { squares.EndBlock(); }, x);
  return {.inv = InverseRoot(squares.Total() / static_cast<float>(rows.partial_cols) + rows.eps)};
}

// The mean as x[0] and what the others are beside it; and once more beside that, since a row may begin far
// off its mean and sums of such differences would lose digits.
template <class Input>
HWY_INLINE RowScale Centre(const Input* x, int64_t cols) {
  RowScale scale{.shift = ToFloat(x[0])};
  for (int round = 0; round < 2; ++round) {
    const Vec shift = Splat(scale.shift), mean = Splat(scale.mean);
    Sums sums;
    ForEachVectorOf(
        cols,
        [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
          const Vec v = hn::Sub(hn::Sub(Load(x + c, part), shift), mean);
          sums[u] = hn::Add(sums[u], InRow(v, part));
        },
        [&]() NORMLAB_INLINE_BODY { sums.EndBlock(); }, x);
    scale.mean += sums.Total() / static_cast<float>(cols);
  }
  return scale;
}

// y[c] = normalize(x[c]) * gain[c] + bias[c], rounded before the gain where the spec says so.
template <bool kGain, bool kBias, class Input, class Out, class Normalize>
HWY_INLINE void WriteRow(const Input* x, Out* y, const NormForwardRows& rows, const float* gain,
                         const float* bias, Normalize&& normalize) {
  const bool rounds = rows.rounds_before_gain;
  ForEachVectorOf(
      rows.cols,
      [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        Vec v = normalize(Load(x + c, part));
        if (kGain && rounds) v = Rounded<Out>(v);
        if constexpr (kGain && kBias)
          v = hn::MulAdd(v, Load(gain + c, part), Load(bias + c, part));
        else if constexpr (kGain)
          v = hn::Mul(v, Load(gain + c, part));
        Store(v, y + c, part);
      },
      []() NORMLAB_INLINE_BODY {}, x, y);
}

template <class Input, class Out>
void FamilyForwardRow(const Input* x, Out* y, int64_t r, const NormForwardRows& rows, FusedKind norm,
                      const float* gain, const float* bias) {
  if (norm == FusedKind::kPartialRmsNorm) {
    const RowScale scale = PartialScale(x, rows);
    if (rows.saved != nullptr) rows.saved[r] = scale.inv;
    const Standardizer<false> standardize(scale);
    return WriteRow<true, false>(x, y, rows, gain, bias,
                                 [&](Vec v) NORMLAB_INLINE_BODY { return standardize(v); });
  }
  if (norm == FusedKind::kRecenter) {
    const RowScale scale = Centre(x, rows.cols);
    const Vec shift = Splat(scale.shift), mean = Splat(scale.mean);
    return WriteRow<false, false>(
        x, y, rows, gain, bias, [&](Vec v) NORMLAB_INLINE_BODY { return hn::Sub(hn::Sub(v, shift), mean); });
  }
  const Vec alpha = Splat(rows.alpha);
  WriteRow<true, true>(x, y, rows, gain, bias,
                       [&](Vec v) NORMLAB_INLINE_BODY { return Tanh(hn::Mul(alpha, v)); });
}

// ---- Backward.

// Writes an element of dx, and of dx_low.
template <bool kAccumulate, class Dx, class Low, class Part>
HWY_INLINE void StoreGradient(Vec v, Dx* dx, Low* dx_low, int64_t c, const Part& part) {
  if constexpr (kAccumulate) v = hn::Add(v, Load(dx + c, part));
  Store(v, dx + c, part);
  if (dx_low != nullptr) Store(v, dx_low + c, part);
}

// One row of pointers.
template <class X, class Dy, class Dx, class Low>
struct GradientRow {
  const X* x;
  const Dy* dy;
  Dx* dx;
  Low* dx_low;
  const float* gain;
  float *dgain, *dbias, *dalpha;
};

template <bool kAccumulate, class Row>
HWY_INLINE void PartialBackwardRow(const Row& row, float inv_rms, const NormBackwardRows& rows) {
  using Dy = std::remove_cvref_t<decltype(*row.dy)>;
  const bool rounds = rows.rounds_before_gain;
  const Vec inv = Splat(inv_rms);
  Sums sums;
  ForEachVectorOf(
      rows.cols,
      [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
        const Vec dy = Load(row.dy + c, part), xhat = hn::Mul(Load(row.x + c, part), inv);
        const Vec product = hn::Mul(dy, xhat);
        const Vec dgain = rounds ? hn::Mul(dy, Rounded<Dy>(xhat)) : product;
        Store(hn::Add(Load(row.dgain + c, part), dgain), row.dgain + c, part);
        sums[u] = hn::MulAdd(Load(row.gain + c, part), product, sums[u]);
      },
      [&]() NORMLAB_INLINE_BODY { sums.EndBlock(); }, row.x, row.dy, row.dx);
  const float mean_gx = sums.Total() / static_cast<float>(rows.partial_cols);
  // The columns that gave the statistic, then the others, whose x plays no part: 0 times its infinity would.
  const Vec projection = Splat(mean_gx * inv_rms);
  const auto scaled = [&](int64_t c, auto part) NORMLAB_INLINE_BODY {
    return hn::Mul(hn::Mul(Load(row.dy + c, part), Load(row.gain + c, part)), inv);
  };
  ForEachVectorOf(
      rows.partial_cols,
      [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        const Vec xhat = hn::Mul(Load(row.x + c, part), inv);
        StoreGradient<kAccumulate>(hn::NegMulAdd(xhat, projection, scaled(c, part)), row.dx, row.dx_low, c,
                                   part);
      },
      []() NORMLAB_INLINE_BODY {});
  ForEachVectorOf(
      rows.cols - rows.partial_cols,
      [&](int64_t offset, auto part, int) NORMLAB_INLINE_BODY {
        const int64_t c = rows.partial_cols + offset;
        StoreGradient<kAccumulate>(scaled(c, part), row.dx, row.dx_low, c, part);
      },
      []() NORMLAB_INLINE_BODY {});
}

template <bool kAccumulate, class Row>
HWY_INLINE void RecenterBackwardRow(const Row& row, int64_t cols) {
  Sums sums;
  ForEachVectorOf(
      cols,
      [&](int64_t c, auto part, int u)
          NORMLAB_INLINE_BODY { sums[u] = hn::Add(sums[u], Load(row.dy + c, part)); },
      [&]() NORMLAB_INLINE_BODY { sums.EndBlock(); }, row.dy, row.dx);
  const Vec mean = Splat(sums.Total() / static_cast<float>(cols));
  ForEachVectorOf(
      cols,
      [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        StoreGradient<kAccumulate>(hn::Sub(Load(row.dy + c, part), mean), row.dx, row.dx_low, c, part);
      },
      []() NORMLAB_INLINE_BODY {});
}

template <bool kAccumulate, class Row>
HWY_INLINE void DytBackwardRow(const Row& row, const NormBackwardRows& rows) {
  using Dy = std::remove_cvref_t<decltype(*row.dy)>;
  const bool rounds = rows.rounds_before_gain;
  const Vec alpha = Splat(rows.alpha), one = Splat(1.0f);
  Sums sums;
  ForEachVectorOf(
      rows.cols,
      [&](int64_t c, auto part, int u) NORMLAB_INLINE_BODY {
        const Vec dy = Load(row.dy + c, part), x = Load(row.x + c, part), t = Tanh(hn::Mul(alpha, x));
        const Vec met = rounds ? Rounded<Dy>(t) : t;
        Store(hn::MulAdd(dy, met, Load(row.dgain + c, part)), row.dgain + c, part);
        Store(hn::Add(Load(row.dbias + c, part), dy), row.dbias + c, part);
        const Vec slope = hn::Mul(hn::Sub(one, t), hn::Add(one, t));
        const Vec g = InRow(hn::Mul(hn::Mul(dy, Load(row.gain + c, part)), slope), part);
        sums[u] = hn::MulAdd(g, x, sums[u]);
        StoreGradient<kAccumulate>(hn::Mul(alpha, g), row.dx, row.dx_low, c, part);
      },
      [&]() NORMLAB_INLINE_BODY { sums.EndBlock(); }, row.x, row.dy, row.dx);
  *row.dalpha += sums.Total();
}

template <bool kAccumulate, class X, class Dy, class Dx, class Low>
void FamilyBackwardOf(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                      const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const GradientRow<X, Dy, Dx, Low> row{.x = rows.x.As<const X>().Row(r),
                                          .dy = rows.dy.As<const Dy>().Row(r),
                                          .dx = rows.dx.As<Dx>().Row(r),
                                          .dx_low = rows.dx_low ? rows.dx_low.As<Low>().Row(r) : nullptr,
                                          .gain = gain,
                                          .dgain = partials.dgain(chunk),
                                          .dbias = partials.dbias(chunk),
                                          .dalpha = partials.dalpha(chunk)};
    if (norm == FusedKind::kPartialRmsNorm)
      PartialBackwardRow<kAccumulate>(row, rows.saved[r], rows);
    else if (norm == FusedKind::kRecenter)
      RecenterBackwardRow<kAccumulate>(row, rows.cols);
    else
      DytBackwardRow<kAccumulate>(row, rows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
