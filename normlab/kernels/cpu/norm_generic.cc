// The bodies of norms/, row by row: what every norm has before anyone writes a kernel for it, and what
// remains where a kernel refuses. Takes any kind, width and row stride. A residual is added into `sum` first,
// or into a row of scratch where the sum is not wanted. Saves what the body saves, in fp32. Parameter
// gradients: NormPartials() partial sums in scratch, added in order. The same bits for any number of threads
// and on every instruction set (no contraction into FMA, one order of addition).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/norm_generic.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_generic_row.h"
#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/kernels/cpu/norm_rows.h"
#include "normlab/norms/norm_list.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

// Rows [begin, end). `sum_row` is a row of scratch, used where there is a residual but no matrix for the sum.
void GenericForwardRows(const NormForwardRows& rows, const NormSpec& spec, const float* gain,
                        const float* bias, float* sum_row, int64_t begin, int64_t end) {
  const NormNumbers<float> numbers = NumbersOf<float>(spec, rows.cols);
  AllNorms::Visit(spec.kind, [&](auto norm) {
    for (int64_t r = begin; r < end; ++r) {
      GenericRowMemory memory{.cols = rows.cols,
                              .x = rows.x.Row(r),
                              .gain = gain,
                              .bias = bias,
                              .alpha = rows.alpha,
                              .y = rows.y.Row(r)};
      if (rows.saved != nullptr) memory.saved = rows.saved + r * decltype(norm)::kInfo.saved_per_row;
      if (rows.residual) {
        const float *x = memory.x, *residual = rows.residual.Row(r);
        float* sum = rows.sum ? rows.sum.Row(r) : sum_row;
#pragma GCC ivdep
        for (int64_t c = 0; c < rows.cols; ++c) sum[c] = residual[c] + x[c];
        memory.x = sum;
      }
      GenericRow<false> row(memory);
      decltype(norm)::Forward(row, numbers);
    }
  });
}

template <bool kAccumulateDx, class Norm>
void GenericBackwardOf(const NormBackwardRows& rows, const NormSpec& spec, const float* gain,
                       const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  constexpr int kSaved = Norm::kInfo.saved_per_row;
  const NormNumbers<float> numbers = NumbersOf<float>(spec, rows.cols);
  for (int64_t r = begin; r < end; ++r) {
    GenericRow<kAccumulateDx> row(
        {.cols = rows.cols,
         .x = rows.x ? rows.x.Row(r) : nullptr,
         .gain = gain,
         .alpha = rows.alpha,
         .saved = kSaved > 0 ? const_cast<float*>(rows.saved) + r * kSaved : nullptr,
         .dy = rows.dy.Row(r),
         .dx = rows.dx.Row(r),
         .dgain = partials.dgain(chunk),
         .dbias = partials.dbias(chunk),
         .dalpha = partials.dalpha(chunk)});
    Norm::Backward(row, numbers);
  }
}

void GenericBackwardRows(const NormBackwardRows& rows, const NormSpec& spec, const float* gain,
                         const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  AllNorms::Visit(spec.kind, [&](auto norm) {
    using Norm = decltype(norm);
    if (rows.accumulate_dx)
      return GenericBackwardOf<true, Norm>(rows, spec, gain, partials, chunk, begin, end);
    return GenericBackwardOf<false, Norm>(rows, spec, gain, partials, chunk, begin, end);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {
namespace {

HWY_EXPORT(GenericForwardRows);
HWY_EXPORT(GenericBackwardRows);

// A gain and a bias of its own, and a row of sums for each chunk.
int64_t ForwardFloats(int64_t chunks, int64_t cols) { return (2 + chunks) * PaddedCols(cols); }

void Forward(CpuContext& context, const NormForwardArgs& args) {
  const NormForwardRows rows = RowsOf(args);
  const int64_t padded = PaddedCols(rows.cols), chunks = RowChunks(context.threads(), rows.rows, rows.cols);
  float* own_gain = context.Scratch(static_cast<size_t>(ForwardFloats(chunks, rows.cols)));
  float *own_bias = own_gain + padded, *sum_rows = own_gain + 2 * padded;
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, own_gain);
  const float* bias = EffectiveBias(rows.bias, rows.cols, own_bias);

  const auto run = HWY_DYNAMIC_DISPATCH(GenericForwardRows);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    run(rows, args.spec, gain, bias, sum_rows + chunk * padded, ChunkBegin(rows.rows, chunks, chunk),
        ChunkBegin(rows.rows, chunks, chunk + 1));
  });
}

void Backward(CpuContext& context, const NormBackwardArgs& args) {
  const NormBackwardRows rows = RowsOf(args);
  const int64_t chunks = NormPartials(rows.rows, rows.cols);
  const int64_t padded = PaddedCols(rows.cols);
  float* own_gain = context.Scratch(static_cast<size_t>(GainAndPartialsFloats(rows.rows, rows.cols)));
  const ParameterPartials partials(own_gain + padded, chunks, rows.cols);
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, own_gain);

  const auto run = HWY_DYNAMIC_DISPATCH(GenericBackwardRows);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    partials.Clear(chunk);
    run(rows, args.spec, gain, partials, chunk, ChunkBegin(rows.rows, chunks, chunk),
        ChunkBegin(rows.rows, chunks, chunk + 1));
  });
  partials.AddTo(context.threads(), rows);
}

constexpr NormImplementationEntry kGeneric{
    .implementation = NormImplementation::kGeneric,
    .refuses = [](const NormSpec&, int64_t) -> std::optional<std::string> { return std::nullopt; },
    .saved_elements = [](const NormSpec& spec, int64_t rows,
                         int64_t) { return rows * InfoOf(spec.kind).saved_per_row; },
    .forward = Forward,
    .backward = Backward,
    .scratch_floats =
        [](const NormSpec&, int64_t rows, int64_t cols, int threads) {
          return std::max(ForwardFloats(RowChunks(threads, rows, cols), cols),
                          GainAndPartialsFloats(rows, cols));
        }};

}  // namespace

const NormImplementationEntry& GenericNorm() { return kGeneric; }

}  // namespace normlab::cpu
#endif  // HWY_ONCE
