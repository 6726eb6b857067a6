// Per-target helpers of the norm kernels: whole vectors and the masked last one of a row, by one set of
// names.
//
// A kernel is written once against a `Part`: Whole (all lanes) or Tail (the first `count` lanes). Memory
// beyond a row is neither read nor written on any instruction set, so rows may have any width, stride and
// alignment; lanes beyond the row read as 0. Arithmetic is fp32 whatever the storage type: another type adds
// Load/Store overloads.

#if defined(NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_
#undef NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_
#else
#define NORMLAB_KERNELS_CPU_NORM_SIMD_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

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

// Clears the lanes beyond the row before they enter a sum.
HWY_INLINE Vec InRow(Vec value, Whole) { return value; }
HWY_INLINE Vec InRow(Vec value, const Tail& tail) { return hn::IfThenElseZero(tail.mask, value); }

HWY_INLINE Vec Splat(float value) { return hn::Set(F(), value); }
HWY_INLINE float SumLanes(Vec value) { return hn::GetLane(hn::SumOfLanes(F(), value)); }

// Vectors per turn of the loop, each with accumulators of its own, so that sums do not wait for each other.
constexpr int kUnroll = 4;

// Calls body(c, part, u) for the whole row: u < kUnroll names the accumulator; ahead(c, floats) runs once per
// turn.
template <class Ahead, class Body>
HWY_INLINE void ForEachVector(int64_t cols, Ahead&& ahead, Body&& body) {
  const int64_t lanes = VectorLanes();
  int64_t c = 0;
  for (; c + kUnroll * lanes <= cols; c += kUnroll * lanes) {
    ahead(c, kUnroll * lanes);
    body(c, Whole(), 0);
    body(c + lanes, Whole(), 1);
    body(c + 2 * lanes, Whole(), 2);
    body(c + 3 * lanes, Whole(), 3);
  }
  ahead(c, cols - c);
  for (; c + lanes <= cols; c += lanes) body(c, Whole(), 0);
  if (c < cols) body(c, Tail(cols - c), 1);
}

// The accumulators of one sum over a row.
struct Sums {
  HWY_INLINE Sums() {  // an implicit one would not belong to the target
    for (Vec& lane : lanes) lane = hn::Zero(F());
  }
  HWY_INLINE Vec& operator[](int u) { return lanes[u]; }
  HWY_INLINE float Total() const {
    return SumLanes(hn::Add(hn::Add(lanes[0], lanes[1]), hn::Add(lanes[2], lanes[3])));
  }
  Vec lanes[kUnroll];
};

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
