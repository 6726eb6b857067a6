// AdamW in one pass over flat memory (read g, w, m, v; write w, m, v: 28 bytes an element, and 2 more where
// the products want the weights in bf16), and the sum of squares that clipping needs. Chunks of fixed size
// make both independent of the number of threads.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/optimizer.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/elementwise.h"
#include "normlab/kernels/cpu/ops.h"
#include "normlab/kernels/cpu/storage-inl.h"

#ifndef NORMLAB_KERNELS_CPU_OPTIMIZER_NUMBERS_
#define NORMLAB_KERNELS_CPU_OPTIMIZER_NUMBERS_
namespace normlab::cpu {
namespace {

// The step's numbers in the form in which the loop uses them:
// w = keep * w - rate * m / (sqrt(v) * inv_root_correction2 + eps)
struct AdamNumbers {
  float gradient_scale, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float rate;                  // learning_rate / (1 - beta1^t)
  float inv_root_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float keep;  // 1 - learning_rate * weight_decay, or 1
};

constexpr int64_t kChunk = 1 << 16;

}  // namespace
}  // namespace normlab::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <bool kLow, class D>
HWY_INLINE void AdamVector(D d, const AdamNumbers& n, const float* g, float* w, float* m, float* v,
                           BFloat16* low) {
  const auto grad = hn::Mul(hn::LoadU(d, g), hn::Set(d, n.gradient_scale));
  const auto m_new =
      hn::MulAdd(hn::Set(d, n.beta1), hn::LoadU(d, m), hn::Mul(hn::Set(d, n.one_minus_beta1), grad));
  const auto v_new = hn::MulAdd(hn::Set(d, n.beta2), hn::LoadU(d, v),
                                hn::Mul(hn::Set(d, n.one_minus_beta2), hn::Mul(grad, grad)));
  const auto denominator = hn::MulAdd(hn::Sqrt(v_new), hn::Set(d, n.inv_root_correction2), hn::Set(d, n.eps));
  const auto update = hn::Div(hn::Mul(hn::Set(d, n.rate), m_new), denominator);
  hn::StoreU(m_new, d, m);
  hn::StoreU(v_new, d, v);
  const auto w_new = hn::MulSub(hn::Set(d, n.keep), hn::LoadU(d, w), update);
  hn::StoreU(w_new, d, w);
  if constexpr (kLow) StoreFloats(w_new, d, low);
}

// `low` may be null.
HWY_ATTR void AdamChunk(int64_t count, const AdamNumbers& n, const float* g, float* w, float* m, float* v,
                        BFloat16* low) {
  if (low == nullptr)
    ForColumns(count, [&](auto d, int64_t i)
                          HWY_ATTR { AdamVector<false>(d, n, g + i, w + i, m + i, v + i, nullptr); });
  else
    ForColumns(count, [&](auto d, int64_t i)
                          HWY_ATTR { AdamVector<true>(d, n, g + i, w + i, m + i, v + i, low + i); });
}

// 16 float64 lanes on every instruction set, so that the order of addition is one.
HWY_ATTR double SquaresChunk(int64_t count, const float* x) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(d)), kVectors = 16 / kLanes;
  hn::Vec<decltype(d)> partial[kVectors];
  for (auto& sum : partial) sum = hn::Zero(d);
  const int64_t whole = count / 16 * 16;
  for (int64_t i = 0; i < whole; i += 16) {
    for (int64_t j = 0; j < kVectors; ++j) {
      const auto v = hn::PromoteTo(d, hn::LoadU(df, x + i + j * kLanes));
      partial[j] = hn::MulAdd(v, v, partial[j]);
    }
  }
  HWY_ALIGN double sums[16];
  for (int64_t j = 0; j < kVectors; ++j) hn::Store(partial[j], d, sums + j * kLanes);
  for (int64_t i = whole; i < count; ++i) sums[i - whole] += static_cast<double>(x[i]) * x[i];
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {

HWY_EXPORT(AdamChunk);
HWY_EXPORT(SquaresChunk);

void AdamW(CpuContext& context, const AdamWArgs& args) {
  const double t = static_cast<double>(args.step);
  AdamNumbers numbers{
      .gradient_scale = static_cast<float>(args.gradient_scale),
      .beta1 = static_cast<float>(args.beta1),
      .beta2 = static_cast<float>(args.beta2),
      .one_minus_beta1 = static_cast<float>(1 - args.beta1),
      .one_minus_beta2 = static_cast<float>(1 - args.beta2),
      .rate = static_cast<float>(args.learning_rate / (1 - std::pow(args.beta1, t))),
      .inv_root_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(args.beta2, t))),
      .eps = static_cast<float>(args.eps),
      .keep = 1,
  };
  const float keep = static_cast<float>(1 - args.learning_rate * args.weight_decay);
  const int64_t count = args.weight.elements();
  BFloat16* const low = args.low.empty() ? nullptr : args.low.as<BFloat16>();
  const int64_t low_end = args.low_begin + (args.low.empty() ? 0 : args.low.elements());
  ParallelFor(context.threads(), (count + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t begin = chunk * kChunk, end = std::min(count, begin + kChunk);
    // Where an element's treatment changes, inside of the chunk or at its ends.
    std::array<int64_t, 5> cuts = {begin, end, args.decayed, args.low_begin, low_end};
    for (int64_t& cut : cuts) cut = std::clamp(cut, begin, end);
    std::ranges::sort(cuts);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t from = cuts[i], to = cuts[i + 1];
      if (from == to) continue;
      AdamNumbers n = numbers;
      n.keep = from < args.decayed ? keep : 1.0f;
      const bool wanted = low != nullptr && args.low_begin <= from && from < low_end;
      HWY_DYNAMIC_DISPATCH(AdamChunk)
      (to - from, n, args.gradient.as<const float>() + from, args.weight.as<float>() + from,
       args.m.as<float>() + from, args.v.as<float>() + from,
       wanted ? low + (from - args.low_begin) : nullptr);
    }
  });
}

void NarrowFlat(CpuContext& context, const View& from, const View& to) {
  const int64_t count = from.elements();
  ParallelFor(context.threads(), (count + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t begin = chunk * kChunk, cols = std::min(kChunk, count - begin);
    Narrow(1, cols, {from.as<const float>() + begin, cols}, {to.as<BFloat16>() + begin, cols});
  });
}

double SumSquares(CpuContext& context, const View& x) {
  const int64_t count = x.elements();
  std::vector<double> partial(static_cast<size_t>((count + kChunk - 1) / kChunk));
  ParallelFor(context.threads(), static_cast<int64_t>(partial.size()), [&](int64_t chunk, int) {
    const int64_t begin = chunk * kChunk;
    partial[static_cast<size_t>(chunk)] =
        HWY_DYNAMIC_DISPATCH(SquaresChunk)(std::min(kChunk, count - begin), x.as<const float>() + begin);
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
