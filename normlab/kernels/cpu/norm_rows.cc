#include "normlab/kernels/cpu/norm_rows.h"

#include "normlab/base/threads.h"

namespace normlab::cpu {
namespace {

AnyRows MatrixOf(const View& view) {
  if (view.empty()) return {};
  NL_CHECK(view.dtype != DType::kF64);  // which is the reference device's
  return {view.data, view.row_stride(), view.dtype};
}

template <class T>
T* VectorOf(const View& view) {
  return view.empty() ? nullptr : view.as<T>();
}

float ScalarOf(const View& view) { return view.empty() ? 0 : *view.as<float>(); }

}  // namespace

NormForwardRows RowsOf(const NormForwardArgs& args) {
  return {.rows = args.x.rows(),
          .cols = args.x.cols(),
          .x = MatrixOf(args.x),
          .residual = MatrixOf(args.residual),
          .sum = MatrixOf(args.sum),
          .y = MatrixOf(args.y),
          .saved = VectorOf<float>(args.saved),
          .weight = VectorOf<const float>(args.weight),
          .bias = VectorOf<const float>(args.bias),
          .alpha = ScalarOf(args.alpha),
          .eps = static_cast<float>(args.spec.eps),
          .weight_offset = static_cast<float>(args.spec.weight_offset),
          .partial_cols = PartialCols(args.spec.fraction, args.x.cols()),
          .rounds_before_gain = args.spec.cast == NormCast::kBeforeGain && SizeOf(args.y.dtype) == 2};
}

NormBackwardRows RowsOf(const NormBackwardArgs& args) {
  return {.rows = args.dy.rows(),
          .cols = args.dy.cols(),
          .x = MatrixOf(args.x),
          .dy = MatrixOf(args.dy),
          .dx = MatrixOf(args.dx),
          .dx_low = MatrixOf(args.dx_low),
          .saved = VectorOf<const float>(args.saved),
          .weight = VectorOf<const float>(args.weight),
          .dweight = VectorOf<float>(args.dweight),
          .dbias = VectorOf<float>(args.dbias),
          .dalpha = VectorOf<float>(args.dalpha),
          .alpha = ScalarOf(args.alpha),
          .eps = static_cast<float>(args.spec.eps),
          .weight_offset = static_cast<float>(args.spec.weight_offset),
          .partial_cols = PartialCols(args.spec.fraction, args.dy.cols()),
          .rounds_before_gain = args.spec.cast == NormCast::kBeforeGain && SizeOf(args.dy.dtype) == 2,
          .accumulate_dx = args.accumulate_dx,
          .accumulate_dparams = args.accumulate_dparams};
}

const float* EffectiveGain(const float* weight, float offset, int64_t cols, float* own) {
  if (!NeedsOwnGain(weight, offset)) return weight;
  for (int64_t c = 0; c < cols; ++c) own[c] = weight == nullptr ? 1.0f : weight[c] + offset;
  return own;
}

const float* EffectiveBias(const float* bias, int64_t cols, float* own) {
  if (bias != nullptr) return bias;
  std::fill_n(own, cols, 0.0f);
  return own;
}

void ParameterPartials::AddTo(int threads, const NormBackwardRows& rows) const {
  // Column by column the order of addition is fixed, so the columns may be cut freely. The partial sums are
  // still in the cache and adding is all there is to do, so it takes more of them to be worth a thread.
  constexpr int64_t kBlock = 64;
  const int64_t blocks = (cols_ + kBlock - 1) / kBlock;
  const int64_t cuts = chunks_ * cols_ < 8 * kElementsWorthAThread ? 1 : std::min<int64_t>(threads, blocks);
  ParallelFor(threads, cuts, [&](int64_t cut, int) {
    for (float* to : {rows.dweight, rows.dbias}) {
      if (to == nullptr) continue;
      const int64_t first = to == rows.dweight ? 0 : padded_;
      const int64_t end = std::min(cols_, ChunkBegin(blocks, cuts, cut + 1) * kBlock);
      for (int64_t begin = ChunkBegin(blocks, cuts, cut) * kBlock; begin < end; begin += kBlock) {
        const int64_t width = std::min(kBlock, end - begin);
        float total[kBlock] = {};
        for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
          const float* partial = dgain(chunk) + first + begin;
          for (int64_t c = 0; c < width; ++c) total[c] += partial[c];
        }
        for (int64_t c = 0; c < width; ++c)
          to[begin + c] = rows.accumulate_dparams ? to[begin + c] + total[c] : total[c];
      }
    }
  });
  if (rows.dalpha == nullptr) return;
  float total = 0;
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) total += *dalpha(chunk);
  *rows.dalpha = rows.accumulate_dparams ? *rows.dalpha + total : total;
}

}  // namespace normlab::cpu
