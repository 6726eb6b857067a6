// Cross-entropy over rows of logits: maximum, exponentials with their sum, then one scaling pass that leaves
// the gradient in place. A row stays in the core's cache between the passes.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/cross_entropy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/math-inl.h"
#include "normlab/kernels/cpu/ops.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Loss of one row; writes the gradient where `gradient` is given (it may be the logits themselves).
HWY_ATTR float Row(const float* logits, int64_t vocab, int32_t target, float scale, float* gradient) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = vocab / lanes * lanes;
  const size_t rest = static_cast<size_t>(vocab - whole);
  const auto tail = hn::FirstN(d, rest);

  VF vmax = hn::Set(d, -HUGE_VALF);
  for (int64_t i = 0; i < whole; i += lanes) vmax = hn::Max(vmax, hn::LoadU(d, logits + i));
  float max = hn::GetLane(hn::MaxOfLanes(d, vmax));
  for (int64_t i = whole; i < vocab; ++i) max = logits[i] > max ? logits[i] : max;

  const float target_logit = logits[target];
  const VF m = hn::Set(d, max);
  VF sum = hn::Zero(d);
  for (int64_t i = 0; i < whole; i += lanes) {
    const VF e = FastExp(d, hn::Sub(hn::LoadU(d, logits + i), m));
    sum = hn::Add(sum, e);
    if (gradient != nullptr) hn::StoreU(e, d, gradient + i);
  }
  if (rest != 0) {
    // The tail goes through a buffer: nothing beyond the row may be touched.
    HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
    for (size_t i = 0; i < rest; ++i) buffer[i] = logits[whole + static_cast<int64_t>(i)];
    const VF e = hn::IfThenElseZero(tail, FastExp(d, hn::Sub(hn::Load(d, buffer), m)));
    sum = hn::Add(sum, e);
    hn::Store(e, d, buffer);
    if (gradient != nullptr)
      for (size_t i = 0; i < rest; ++i) gradient[whole + static_cast<int64_t>(i)] = buffer[i];
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));

  if (gradient != nullptr) {
    const VF factor = hn::Set(d, scale / total);
    for (int64_t i = 0; i < whole; i += lanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, gradient + i), factor), d, gradient + i);
    for (int64_t i = whole; i < vocab; ++i) gradient[i] *= scale / total;
    gradient[target] -= scale;
  }
  return std::log(total) + (max - target_logit);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {

HWY_EXPORT(Row);

void CrossEntropy(CpuContext& context, const CrossEntropyArgs& args) {
  const int64_t rows = args.logits.rows(), vocab = args.logits.cols();
  const int32_t* const targets = args.targets.as<const int32_t>();
  float* const losses = args.losses.as<float>();
  for (int64_t r = 0; r < rows; ++r) {  // another target would read and write beside its row
    NL_CHECK_LE(-1, targets[r]);
    NL_CHECK_LE(targets[r], vocab - 1);
  }
  constexpr int64_t kRowsPerChunk = 16;
  ParallelFor(context.threads(), (rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk, int) {
    for (int64_t r = chunk * kRowsPerChunk; r < std::min(rows, (chunk + 1) * kRowsPerChunk); ++r) {
      const float* const logits = args.logits.as<const float>() + r * args.logits.strides[0];
      float* const gradient =
          args.dlogits.empty() ? nullptr : args.dlogits.as<float>() + r * args.dlogits.strides[0];
      if (targets[r] < 0) {
        losses[r] = 0;
        if (gradient != nullptr) std::fill(gradient, gradient + vocab, 0.0f);
        continue;
      }
      losses[r] =
          HWY_DYNAMIC_DISPATCH(Row)(logits, vocab, targets[r], static_cast<float>(args.scale), gradient);
    }
  });
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
