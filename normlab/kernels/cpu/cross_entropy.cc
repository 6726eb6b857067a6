// Cross-entropy over rows of logits: maximum, exponentials with their sum, then one scaling pass that leaves
// the gradient in place. A row stays in the core's cache between the passes. In fp32 the exponentials wait in
// the gradient's place for their sum; in bf16 that would round them twice, so they are computed again.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/cross_entropy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/math-inl.h"
#include "normlab/kernels/cpu/ops.h"
#include "normlab/kernels/cpu/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Calls f(exp(logit - max), i, count) for the row: whole vectors, then the rest in a vector that is filled
// up with zeros, so that nothing beyond the row is touched.
template <class T, class F>
HWY_INLINE void ForExponentials(const T* logits, int64_t vocab, float max, const F& f) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF m = hn::Set(d, max);
  int64_t i = 0;
  for (; i + lanes <= vocab; i += lanes) f(FastExp(d, hn::Sub(LoadFloats(d, logits + i), m)), i, lanes);
  if (i == vocab) return;
  const int64_t rest = vocab - i;
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t j = 0; j < rest; ++j) buffer[j] = ToFloat(logits[i + j]);
  const VF e = FastExp(d, hn::Sub(hn::Load(d, buffer), m));
  f(hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(rest)), e), i, rest);
}

// to[0, count) = value's first lanes.
template <class T>
HWY_INLINE void StoreFirst(VF value, int64_t count, T* to) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (count == lanes) return StoreFloats(value, d, to);
  T buffer[HWY_MAX_BYTES / sizeof(float)];
  StoreFloats(value, d, buffer);
  for (int64_t j = 0; j < count; ++j) to[j] = buffer[j];
}

HWY_INLINE void SetGradient(float value, float* to) { *to = value; }
HWY_INLINE void SetGradient(float value, BFloat16* to) { *to = BFloat16::FromFloat(value); }

// Loss of one row; writes the gradient where `gradient` is given (it may be the logits themselves).
template <class T>
HWY_ATTR float Row(const T* logits, int64_t vocab, int32_t target, float scale, T* gradient) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF vmax = hn::Set(d, -HUGE_VALF);
  int64_t i = 0;
  for (; i + lanes <= vocab; i += lanes) vmax = hn::Max(vmax, LoadFloats(d, logits + i));
  float max = hn::GetLane(hn::MaxOfLanes(d, vmax));
  for (; i < vocab; ++i) max = ToFloat(logits[i]) > max ? ToFloat(logits[i]) : max;

  constexpr bool kKeep = std::is_same_v<T, float>;  // exponentials, in the gradient's place
  const float target_logit = ToFloat(logits[target]);
  float target_exponential = 0;
  VF sum = hn::Zero(d);
  ForExponentials(logits, vocab, max, [&](VF e, int64_t at, int64_t count) HWY_ATTR {
    sum = hn::Add(sum, e);
    if constexpr (kKeep)
      if (gradient != nullptr) StoreFirst(e, count, gradient + at);
  });
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));

  if (gradient != nullptr) {
    const VF factor = hn::Set(d, scale / total);
    if constexpr (kKeep) {
      ForColumns(vocab, [=](auto tag, int64_t c) HWY_ATTR {
        hn::StoreU(hn::Mul(hn::LoadU(tag, gradient + c), hn::Set(tag, scale / total)), tag, gradient + c);
      });
      gradient[target] -= scale;
    } else {
      ForExponentials(logits, vocab, max, [&](VF e, int64_t at, int64_t count) HWY_ATTR {
        const VF scaled = hn::Mul(e, factor);
        if (at <= target && target < at + count)
          target_exponential = hn::ExtractLane(scaled, static_cast<size_t>(target - at));
        StoreFirst(scaled, count, gradient + at);
      });
      SetGradient(target_exponential - scale, gradient + target);
    }
  }
  return std::log(total) + (max - target_logit);
}

HWY_ATTR float RowF32(const float* logits, int64_t vocab, int32_t target, float scale, float* gradient) {
  return Row(logits, vocab, target, scale, gradient);
}
HWY_ATTR float RowBf16(const BFloat16* logits, int64_t vocab, int32_t target, float scale,
                       BFloat16* gradient) {
  return Row(logits, vocab, target, scale, gradient);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {

HWY_EXPORT(RowF32);
HWY_EXPORT(RowBf16);

namespace {

float OneRow(const float* logits, int64_t vocab, int32_t target, float scale, float* gradient) {
  return HWY_DYNAMIC_DISPATCH(RowF32)(logits, vocab, target, scale, gradient);
}
float OneRow(const BFloat16* logits, int64_t vocab, int32_t target, float scale, BFloat16* gradient) {
  return HWY_DYNAMIC_DISPATCH(RowBf16)(logits, vocab, target, scale, gradient);
}

template <class T>
void CrossEntropyOf(CpuContext& context, const CrossEntropyArgs& args) {
  const int64_t rows = args.logits.rows(), vocab = args.logits.cols();
  const int32_t* const targets = args.targets.as<const int32_t>();
  float* const losses = args.losses.as<float>();
  constexpr int64_t kRowsPerChunk = 16;
  ParallelFor(context.threads(), (rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk, int) {
    for (int64_t r = chunk * kRowsPerChunk; r < std::min(rows, (chunk + 1) * kRowsPerChunk); ++r) {
      const T* const logits = args.logits.as<const T>() + r * args.logits.strides[0];
      T* const gradient = args.dlogits.empty() ? nullptr : args.dlogits.as<T>() + r * args.dlogits.strides[0];
      if (targets[r] < 0) {
        losses[r] = 0;
        if (gradient != nullptr) std::fill(gradient, gradient + vocab, T{});
        continue;
      }
      losses[r] = OneRow(logits, vocab, targets[r], static_cast<float>(args.scale), gradient);
    }
  });
}

}  // namespace

void CrossEntropy(CpuContext& context, const CrossEntropyArgs& args) {
  const int32_t* const targets = args.targets.as<const int32_t>();
  for (int64_t r = 0; r < args.logits.rows(); ++r) {  // another target would read and write beside its row
    NL_CHECK_LE(-1, targets[r]);
    NL_CHECK_LE(targets[r], args.logits.cols() - 1);
  }
  args.logits.dtype == DType::kBF16 ? CrossEntropyOf<BFloat16>(context, args)
                                    : CrossEntropyOf<float>(context, args);
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
