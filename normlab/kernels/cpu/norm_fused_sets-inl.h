// The sets of storage types that the fused kernels are compiled for, per instruction set. With L a 16-bit
// type:
//   forward   f32 alone; L alone; x and y of L around an fp32 residual stream; f32 in and L out
//   backward  f32 alone; L alone; x and dx of the fp32 stream and dy of L, perhaps with a dx_low of L

#if defined(NORMLAB_KERNELS_CPU_NORM_FUSED_SETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_NORM_FUSED_SETS_INL_H_
#undef NORMLAB_KERNELS_CPU_NORM_FUSED_SETS_INL_H_
#else
#define NORMLAB_KERNELS_CPU_NORM_FUSED_SETS_INL_H_
#endif

#include <cstring>

#include "normlab/kernels/cpu/norm_fused-inl.h"
#include "normlab/kernels/cpu/norm_fused.h"
#include "normlab/kernels/cpu/norm_fused_family-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

// to = a + b (b may be null), and the same to `also` where it is given. All of it in one row of each.
template <class A, class B, class To, class Also>
void IdentityRow(const A* a, const B* b, To* to, Also* also, int64_t cols) {
  ForEachVector(
      cols,
      [&](int64_t c, int64_t columns) NORMLAB_INLINE_BODY {
        PrefetchAhead(a + c, columns);
        if (b != nullptr) PrefetchAhead(b + c, columns);
        PrefetchAhead(to + c, columns);
      },
      [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        Vec v = Load(a + c, part);
        if (b != nullptr) v = hn::Add(v, Load(b + c, part));
        Store(v, to + c, part);
        if (also != nullptr) Store(v, also + c, part);
      });
}

template <bool kCenter, class L>
void FusedForwardOf(const NormForwardRows& rows, const float* gain, const float* bias, int64_t begin,
                    int64_t end) {
  constexpr bool kAlone = std::is_same_v<L, float>;
  if (rows.residual) {
    if (rows.residual.dtype != DType::kF32 || kAlone)
      return FusedForward<kCenter, L, L, L>(rows, gain, bias).Run(begin, end);
    return FusedForward<kCenter, L, float, L>(rows, gain, bias).Run(begin, end);
  }
  if (rows.x.dtype != DType::kF32 || kAlone)
    return FusedForward<kCenter, L, void, L>(rows, gain, bias).Run(begin, end);
  return FusedForward<kCenter, float, void, L>(rows, gain, bias).Run(begin, end);
}

// What is normalized, row by row: the sum as it is stored, or x.
template <class In, class Stream, class Out>
void FamilyForwardOf(const NormForwardRows& rows, FusedKind norm, const float* gain, const float* bias,
                     int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    Out* y = rows.y.As<Out>().Row(r);
    const In* x = rows.x.As<const In>().Row(r);
    if constexpr (std::is_void_v<Stream>) {
      FamilyForwardRow(x, y, r, rows, norm, gain, bias);
    } else {
      Stream* sum = rows.sum.As<Stream>().Row(r);
      IdentityRow<In, Stream, Stream, Stream>(x, rows.residual.As<const Stream>().Row(r), sum, nullptr,
                                              rows.cols);
      FamilyForwardRow<Stream, Out>(sum, y, r, rows, norm, gain, bias);
    }
  }
}

template <class L>
void FamilyForwardSets(const NormForwardRows& rows, FusedKind norm, const float* gain, const float* bias,
                       int64_t begin, int64_t end) {
  constexpr bool kAlone = std::is_same_v<L, float>;
  if (rows.residual) {
    if (rows.residual.dtype != DType::kF32 || kAlone)
      return FamilyForwardOf<L, L, L>(rows, norm, gain, bias, begin, end);
    return FamilyForwardOf<L, float, L>(rows, norm, gain, bias, begin, end);
  }
  if (rows.x.dtype != DType::kF32 || kAlone)
    return FamilyForwardOf<L, void, L>(rows, norm, gain, bias, begin, end);
  return FamilyForwardOf<float, void, L>(rows, norm, gain, bias, begin, end);
}

template <class L>
void FusedForwardSets(const NormForwardRows& rows, FusedKind norm, const float* gain, const float* bias,
                      int64_t begin, int64_t end) {
  if (norm == FusedKind::kLayerNorm) return FusedForwardOf<true, L>(rows, gain, bias, begin, end);
  if (norm == FusedKind::kRmsNorm) return FusedForwardOf<false, L>(rows, gain, bias, begin, end);
  FamilyForwardSets<L>(rows, norm, gain, bias, begin, end);
}

// Not for fp32 rows with a dx_low of L: those are the kernels of fp32 and a conversion (norm_fused.cc).
template <bool kCenter, bool kAccumulate, class L>
void FusedBackwardOf(const NormBackwardRows& rows, const float* gain, float* dgain, float* dbias,
                     int64_t begin, int64_t end) {
  if constexpr (!std::is_same_v<L, float>) {
    if (rows.dx.dtype == DType::kF32)
      return FusedBackward<kCenter, kAccumulate, float, L, float, L>(rows, gain, dgain, dbias)
          .Run(begin, end);
  }
  FusedBackward<kCenter, kAccumulate, L, L, L, void>(rows, gain, dgain, dbias).Run(begin, end);
}

template <bool kAccumulate, class L>
void FamilyBackwardSets(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                        const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  if constexpr (!std::is_same_v<L, float>) {
    if (rows.dx.dtype == DType::kF32)
      return FamilyBackwardOf<kAccumulate, float, L, float, L>(rows, norm, gain, partials, chunk, begin, end);
  }
  FamilyBackwardOf<kAccumulate, L, L, L, L>(rows, norm, gain, partials, chunk, begin, end);
}

template <bool kAccumulate, class L>
void FusedBackwardAccumulating(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                               const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  float *dgain = partials.dgain(chunk), *dbias = partials.dbias(chunk);
  if (norm == FusedKind::kLayerNorm)
    return FusedBackwardOf<true, kAccumulate, L>(rows, gain, dgain, dbias, begin, end);
  if (norm == FusedKind::kRmsNorm)
    return FusedBackwardOf<false, kAccumulate, L>(rows, gain, dgain, dbias, begin, end);
  FamilyBackwardSets<kAccumulate, L>(rows, norm, gain, partials, chunk, begin, end);
}

template <class L>
void FusedBackwardSets(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                       const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  rows.accumulate_dx ? FusedBackwardAccumulating<true, L>(rows, norm, gain, partials, chunk, begin, end)
                     : FusedBackwardAccumulating<false, L>(rows, norm, gain, partials, chunk, begin, end);
}

// ---- The identity. Rows that nothing is added to are copied or converted.

template <class T>
void CopyRow(const T* from, T* to, int64_t cols) {
  if (from != to) std::memcpy(to, from, static_cast<size_t>(cols) * sizeof(T));
}

template <class In, class Stream, class Out>
void IdentityForwardOf(const NormForwardRows& rows, int64_t begin, int64_t end) {
  const auto x = rows.x.As<const In>();
  const auto residual = rows.residual.As<const Stream>();
  const auto sum = rows.sum.As<Stream>();
  const auto y = rows.y.As<Out>();
  for (int64_t r = begin; r < end; ++r) {
    if constexpr (std::is_same_v<In, Out>) {
      if (!residual) {
        CopyRow(x.Row(r), y.Row(r), rows.cols);
        continue;
      }
    }
    if (!y) {
      IdentityRow<In, Stream, Stream, Stream>(x.Row(r), residual.Row(r), sum.Row(r), nullptr, rows.cols);
      continue;
    }
    const bool own_sum = sum && static_cast<void*>(sum.Row(r)) != static_cast<void*>(y.Row(r));
    IdentityRow(x.Row(r), residual ? residual.Row(r) : nullptr, y.Row(r), own_sum ? sum.Row(r) : nullptr,
                rows.cols);
  }
}

template <class L>
void IdentityForwardSets(const NormForwardRows& rows, int64_t begin, int64_t end) {
  const DType stream = rows.residual ? rows.residual.dtype : rows.x.dtype;
  if (std::is_same_v<L, float> || stream != DType::kF32) return IdentityForwardOf<L, L, L>(rows, begin, end);
  if (rows.x.dtype == DType::kF32) return IdentityForwardOf<float, float, L>(rows, begin, end);
  return IdentityForwardOf<L, float, L>(rows, begin, end);
}

template <class Dy, class Dx, class Low>
void IdentityBackwardOf(const NormBackwardRows& rows, int64_t begin, int64_t end) {
  const auto dy = rows.dy.As<const Dy>();
  const auto dx = rows.dx.As<Dx>();
  const auto low = rows.dx_low.As<Low>();
  for (int64_t r = begin; r < end; ++r) {
    Low* dx_low = low ? low.Row(r) : nullptr;
    if constexpr (std::is_same_v<Dy, Dx>) {
      if (!rows.accumulate_dx && dx_low == nullptr) {
        CopyRow(dy.Row(r), dx.Row(r), rows.cols);
        continue;
      }
    }
    const Dx* before = rows.accumulate_dx ? dx.Row(r) : nullptr;
    IdentityRow(dy.Row(r), before, dx.Row(r), dx_low, rows.cols);
  }
}

template <class L>
void IdentityBackwardSets(const NormBackwardRows& rows, int64_t begin, int64_t end) {
  if (std::is_same_v<L, float> || rows.dx.dtype != DType::kF32)
    return IdentityBackwardOf<L, L, L>(rows, begin, end);
  if (rows.dy.dtype != DType::kF32) return IdentityBackwardOf<L, float, L>(rows, begin, end);
  return IdentityBackwardOf<float, float, L>(rows, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
