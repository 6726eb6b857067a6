// Rows from one storage type to another, for implementations whose arithmetic works on whole fp32 rows.

#if defined(NORMLAB_KERNELS_CPU_NORM_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_NORM_CONVERT_INL_H_
#undef NORMLAB_KERNELS_CPU_NORM_CONVERT_INL_H_
#else
#define NORMLAB_KERNELS_CPU_NORM_CONVERT_INL_H_
#endif

#include "normlab/kernels/cpu/norm_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

// to[c] = from[c], rounded to nearest even where To has fewer bits. In place where the types are the same.
template <class From, class To>
HWY_INLINE void ConvertRow(const From* from, To* to, int64_t cols) {
  ForEachVector(
      cols, [](int64_t, int64_t) NORMLAB_INLINE_BODY {},
      [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY { Store(Load(from + c, part), to + c, part); });
}

// Row r as fp32, in `to` unless it is fp32 where it stands.
inline const float* WidenRow(const AnyRows& from, int64_t r, float* to, int64_t cols) {
  if (from.dtype == DType::kF32) return from.As<float>().Row(r);
  if (from.dtype == DType::kBF16)
    ConvertRow(from.As<const BFloat16>().Row(r), to, cols);
  else
    ConvertRow(from.As<const Float16>().Row(r), to, cols);
  return to;
}

// An fp32 row into row r of 16 bits.
inline void NarrowRow(const float* from, const AnyRows& to, int64_t r, int64_t cols) {
  if (to.dtype == DType::kBF16)
    ConvertRow(from, to.As<BFloat16>().Row(r), cols);
  else
    ConvertRow(from, to.As<Float16>().Row(r), cols);
}

// row[c] as a `dtype` of 16 bits would hold it.
inline void RoundRow(DType dtype, const float* from, float* to, int64_t cols) {
  const bool bf16 = dtype == DType::kBF16;
  ForEachVector(
      cols, [](int64_t, int64_t) NORMLAB_INLINE_BODY {},
      [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        const Vec v = Load(from + c, part);
        Store(bf16 ? Rounded<BFloat16>(v) : Rounded<Float16>(v), to + c, part);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
