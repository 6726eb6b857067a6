// Per-target helpers of the norm kernels: whole vectors and the masked last one of a row, by one set of
// names.
//
// A kernel is written once against a `Part`: Whole (all lanes) or Tail (the first `count` lanes). Memory
// beyond a row is neither read nor written on any instruction set, so rows may have any width, stride and
// alignment; lanes beyond the row read as 0. Arithmetic is fp32 whatever the storage type: Load widens, Store
// rounds to nearest even, Rounded<T> gives what Store would leave in memory.

#if defined(NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_
#undef NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_
#else
#define NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

#include "normlab/base/bfloat16.h"
#include "normlab/base/float16.h"
#include "normlab/kernels/cpu/norm_rows.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// For the bodies of loops: a call per vector would keep every accumulator in memory.
#ifndef NORMLAB_INLINE_BODY
#define NORMLAB_INLINE_BODY HWY_ATTR __attribute__((always_inline))
#endif

using F = hn::ScalableTag<float>;
using Vec = hn::Vec<F>;

HWY_INLINE int64_t VectorLanes() { return static_cast<int64_t>(hn::Lanes(F())); }

struct Whole {};
struct Tail {
  explicit HWY_INLINE Tail(int64_t n) : count(static_cast<size_t>(n)), mask(hn::FirstN(F(), count)) {}
  size_t count;
  hn::Mask<F> mask;
};

HWY_INLINE Vec Load(const float* from, Whole) { return hn::LoadU(F(), from); }
HWY_INLINE void Store(Vec value, float* to, Whole) { hn::StoreU(value, F(), to); }

#if HWY_TARGET <= HWY_AVX2  // the masked instructions do not touch masked-off memory
HWY_INLINE Vec Load(const float* from, const Tail& tail) { return hn::MaskedLoad(tail.mask, F(), from); }
HWY_INLINE void Store(Vec value, float* to, const Tail& tail) { hn::BlendedStore(value, tail.mask, F(), to); }
#else
HWY_INLINE Vec Load(const float* from, const Tail& tail) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (size_t i = 0; i < tail.count; ++i) lanes[i] = from[i];
  return hn::Load(F(), lanes);
}
HWY_INLINE void Store(Vec value, float* to, const Tail& tail) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(value, F(), lanes);
  for (size_t i = 0; i < tail.count; ++i) to[i] = lanes[i];
}
#endif

// ---- 16-bit rows.

using U32 = hn::RebindToUnsigned<F>;
using U16 = hn::Rebind<uint16_t, F>;  // as many lanes as F
using Bits = hn::Vec<U16>;

#if HWY_TARGET <= HWY_AVX3
HWY_INLINE Bits LoadBits(const uint16_t* from, const Tail& tail) {
  return hn::MaskedLoad(hn::FirstN(U16(), tail.count), U16(), from);
}
HWY_INLINE void StoreBits(Bits bits, uint16_t* to, const Tail& tail) {
  hn::BlendedStore(bits, hn::FirstN(U16(), tail.count), U16(), to);
}
#else
HWY_INLINE Bits LoadBits(const uint16_t* from, const Tail& tail) {
  HWY_ALIGN uint16_t lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (size_t i = 0; i < tail.count; ++i) lanes[i] = from[i];
  return hn::Load(U16(), lanes);
}
HWY_INLINE void StoreBits(Bits bits, uint16_t* to, const Tail& tail) {
  HWY_ALIGN uint16_t lanes[HWY_MAX_BYTES / sizeof(float)] = {};  // g++ 12 cannot see that all are written
  hn::Store(bits, U16(), lanes);
  for (size_t i = 0; i < tail.count; ++i) to[i] = lanes[i];
}
#endif
HWY_INLINE Bits LoadBits(const uint16_t* from, Whole) { return hn::LoadU(U16(), from); }
HWY_INLINE void StoreBits(Bits bits, uint16_t* to, Whole) { hn::StoreU(bits, U16(), to); }

// Conversions of whole vectors; the type of the second argument says which format.
HWY_INLINE Vec Widen(Bits bits, BFloat16) {
  return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}
HWY_INLINE Bits Narrow(Vec value, BFloat16) {
  const auto bits = hn::BitCast(U32(), value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(U32(), 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(U32(), 0x400000));
  const auto is_nan = hn::RebindMask(U32(), hn::Ne(value, value));
  return hn::TruncateTo(U16(), hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded)));
}

#if HWY_TARGET <= HWY_AVX3_DL
// AVX-512-BF16's own rounding: the same but for denormals, which it flushes as all arithmetic of the kernels
// does. In assembly because Highway's target does not name the extension; norm_fused_bf16.cc asks the
// processor.
HWY_INLINE Vec Widen(Bits bits, NativeBFloat16) { return Widen(bits, BFloat16()); }
HWY_INLINE Bits Narrow(Vec value, NativeBFloat16) {
  __m256i bits;
  __asm__("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(value.raw));
  return Bits{bits};
}
#endif

#if HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
using F16 = hn::Rebind<hwy::float16_t, F>;
HWY_INLINE Vec Widen(Bits bits, Float16) { return hn::PromoteTo(F(), hn::BitCast(F16(), bits)); }
HWY_INLINE Bits Narrow(Vec value, Float16) { return hn::BitCast(U16(), hn::DemoteTo(F16(), value)); }
#else
HWY_INLINE Vec Widen(Bits bits, Float16) {  // Float16::ToFloat
  const auto wide = hn::PromoteTo(U32(), bits);
  const auto magnitude = hn::And(wide, hn::Set(U32(), 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::Sub(wide, magnitude));
  const hn::RebindToSigned<F> i32;
  const auto signed_magnitude = hn::BitCast(i32, magnitude);
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(U32(), 0x38000000));
  const auto special = hn::Or(shifted, hn::Set(U32(), 0x7f800000));
  const auto subnormal =
      hn::BitCast(U32(), hn::Mul(hn::ConvertTo(F(), signed_magnitude), hn::Set(F(), 0x1p-24f)));
  const auto is_special = hn::RebindMask(U32(), hn::Gt(signed_magnitude, hn::Set(i32, 0x7bff)));
  const auto is_subnormal = hn::RebindMask(U32(), hn::Lt(signed_magnitude, hn::Set(i32, 0x400)));
  const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
  return hn::BitCast(F(), hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
}
HWY_INLINE Bits Narrow(Vec value, Float16) {  // Float16::FromFloat; signed comparisons of magnitudes
  const hn::RebindToSigned<F> i32;
  const auto above = [&](auto bits, int32_t limit) NORMLAB_INLINE_BODY {
    return hn::RebindMask(U32(), hn::Gt(hn::BitCast(i32, bits), hn::Set(i32, limit)));
  };
  const auto magnitude = hn::BitCast(U32(), hn::Abs(value));
  const auto sign = hn::Xor(hn::BitCast(U32(), value), magnitude);
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(U32(), 1));
  const auto rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(U32(), 0xfff)));
  const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(U32(), 0x38000000)));
  // 0.5 + m has m's multiple of 2^-24 in its last bits.
  const auto subnormal =
      hn::Sub(hn::BitCast(U32(), hn::Add(hn::Abs(value), hn::Set(F(), 0.5f))), hn::Set(U32(), 0x3f000000));
  auto half = hn::IfThenElse(above(magnitude, 0x387fffff), normal, subnormal);
  half = hn::IfThenElse(above(rounded, 0x477fffff), hn::Set(U32(), 0x7c00), half);
  const auto nan =
      hn::And(hn::ShiftRight<13>(hn::Or(magnitude, hn::Set(U32(), 0x400000))), hn::Set(U32(), 0x7fff));
  const auto is_nan = hn::RebindMask(U32(), hn::Ne(value, value));
  half = hn::IfThenElse(is_nan, nan, half);
  return hn::TruncateTo(U16(), hn::Or(hn::ShiftRight<16>(sign), half));
}
#endif

template <class T, class Part>
HWY_INLINE Vec Load(const T* from, const Part& part) {
  return Widen(LoadBits(&from->bits, part), T());
}
template <class T, class Part>
HWY_INLINE void Store(Vec value, T* to, const Part& part) {
  StoreBits(Narrow(value, T()), &to->bits, part);
}

HWY_INLINE float ToFloat(float value) { return value; }
template <class T>
HWY_INLINE float ToFloat(T value) {
  return value.ToFloat();
}

// What a T holds of the value.
template <class T>
HWY_INLINE Vec Rounded(Vec value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return Widen(Narrow(value, T()), T());
}

// Clears the lanes beyond the row before they enter a sum.
HWY_INLINE Vec InRow(Vec value, Whole) { return value; }
HWY_INLINE Vec InRow(Vec value, const Tail& tail) { return hn::IfThenElseZero(tail.mask, value); }

HWY_INLINE Vec Splat(float value) { return hn::Set(F(), value); }
HWY_INLINE float SumLanes(Vec value) { return hn::GetLane(hn::SumOfLanes(F(), value)); }

// Vectors per turn of the loop, each with accumulators of its own, so that sums do not wait for each other.
constexpr int kUnroll = 4;

// Columns that are summed for themselves before they join the sum of the row: added to one growing sum, terms
// that are nearly equal are all rounded the same way, and a row of 131,072 loses digits. A multiple of every
// turn.
constexpr int64_t kSumBlock = 4096;

// Calls body(c, part, u) for the whole row: u < kUnroll names the accumulator; ahead(c, columns) runs once
// per turn, end_of_block() after each kSumBlock columns or fewer, but not after the rest of less than a turn.
template <class Ahead, class Body, class EndOfBlock>
HWY_INLINE void ForEachVector(int64_t cols, Ahead&& ahead, Body&& body, EndOfBlock&& end_of_block) {
  const int64_t lanes = VectorLanes(), turn = kUnroll * lanes;
  int64_t c = 0;
  while (c + turn <= cols) {
    const int64_t end = std::min(c + kSumBlock, cols);
    for (; c + turn <= end; c += turn) {
      ahead(c, turn);
      body(c, Whole(), 0);
      body(c + lanes, Whole(), 1);
      body(c + 2 * lanes, Whole(), 2);
      body(c + 3 * lanes, Whole(), 3);
    }
    end_of_block();
  }
  ahead(c, cols - c);
  for (; c + lanes <= cols; c += lanes) body(c, Whole(), 0);
  if (c < cols) body(c, Tail(cols - c), 1);
}
template <class Ahead, class Body>
HWY_INLINE void ForEachVector(int64_t cols, Ahead&& ahead, Body&& body) {
  ForEachVector(cols, ahead, body, []() NORMLAB_INLINE_BODY {});
}

// The accumulators of one sum over a row.
struct Sums {
  HWY_INLINE Sums() : blocks(hn::Zero(F())) { Clear(); }  // implicit ones would not belong to the target
  HWY_INLINE Vec& operator[](int u) { return lanes[u]; }
  HWY_INLINE void EndBlock() {
    blocks = hn::Add(blocks, InLanes());
    Clear();
  }
  HWY_INLINE float Total() const { return SumLanes(hn::Add(blocks, InLanes())); }

 private:
  HWY_INLINE Vec InLanes() const { return hn::Add(hn::Add(lanes[0], lanes[1]), hn::Add(lanes[2], lanes[3])); }
  HWY_INLINE void Clear() {
    for (Vec& lane : lanes) lane = hn::Zero(F());
  }
  Vec lanes[kUnroll];
  Vec blocks;
};

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
