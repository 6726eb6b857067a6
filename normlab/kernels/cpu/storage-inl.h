// fp32 vectors in and out of memory of fp32 or bf16, per instruction set: Load widens, Store rounds to
// nearest even and keeps NaN a NaN (Highway's own conversion to bf16 truncates). Unaligned; D says how many
// lanes.

#if defined(NORMLAB_KERNELS_CPU_STORAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_STORAGE_INL_H_
#undef NORMLAB_KERNELS_CPU_STORAGE_INL_H_
#else
#define NORMLAB_KERNELS_CPU_STORAGE_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "normlab/base/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> value, D d, float* to) {
  hn::StoreU(value, d, to);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> wide;
  const hn::Rebind<uint16_t, D> narrow;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, &from->bits))));
}
template <class D>
HWY_INLINE void StoreFloats(hn::Vec<D> value, D, BFloat16* to) {
  const hn::RebindToUnsigned<D> wide;
  const hn::Rebind<uint16_t, D> narrow;
  const auto bits = hn::BitCast(wide, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(wide, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(wide, 0x400000));
  const auto is_nan = hn::RebindMask(wide, hn::Ne(value, value));
  const auto chosen = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(chosen)), narrow, &to->bits);
}

inline float ToFloat(float value) { return value; }
inline float ToFloat(BFloat16 value) { return value.ToFloat(); }

// Calls f(d, i) for all columns: whole vectors, then single lanes for the rest.
template <class F>
HWY_INLINE void ForColumns(int64_t cols, const F& f) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= cols; i += lanes) f(d, i);
  for (; i < cols; ++i) f(one, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
