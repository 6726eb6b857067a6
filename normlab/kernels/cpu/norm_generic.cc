// The bodies of norms/, row by row: what every norm has before anyone writes a kernel for it, and what
// remains where a kernel refuses. Takes any kind, width and row stride. A residual is added into `sum` first,
// or into a row of scratch where the sum is not wanted. Rows of 16 bits are widened into rows of scratch and
// rounded out of them. Saves what the body saves, in fp32. Parameter
// gradients: NormPartials() partial sums in scratch, added in order. The same bits for any number of threads
// and on every instruction set (no contraction into FMA, one order of addition).
#define HWY_DISABLED_TARGETS HWY_AVX3_DL  // which would add nothing but time to compile
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/norm_generic.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_convert-inl.h"
#include "normlab/kernels/cpu/norm_generic_row.h"
#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/kernels/cpu/norm_rows.h"
#include "normlab/norms/norm_list.h"

#ifndef NORMLAB_KERNELS_CPU_NORM_GENERIC_ONCE
#define NORMLAB_KERNELS_CPU_NORM_GENERIC_ONCE
namespace normlab::cpu {

// Three fp32 rows of one thread: x; the sum, or dy; y, or dx.
struct GenericScratchRows {
  float *x = nullptr, *sum = nullptr, *y = nullptr;

  GenericScratchRows(float* memory, int thread, int64_t cols) {
    const int64_t padded = PaddedCols(cols);
    x = memory + thread * 3 * padded;
    sum = x + padded;
    y = sum + padded;
  }
  static int64_t Floats(int threads, int64_t cols) { return threads * 3 * PaddedCols(cols); }
};

}  // namespace normlab::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

// What is normalized, as an fp32 row: x, or the sum as it is stored, which is written on the way.
const float* GenericInput(const NormForwardRows& rows, const GenericScratchRows& own, int64_t r) {
  const float* x = WidenRow(rows.x, r, own.x, rows.cols);
  if (!rows.residual) return x;
  const float* residual = WidenRow(rows.residual, r, own.sum, rows.cols);
  const bool wide = rows.residual.dtype == DType::kF32;
  float* sum = rows.sum && wide ? rows.sum.As<float>().Row(r) : own.sum;
#pragma GCC ivdep
  for (int64_t c = 0; c < rows.cols; ++c) sum[c] = residual[c] + x[c];
  if (!wide) RoundRow(rows.residual.dtype, sum, sum, rows.cols);
  if (!wide && rows.sum) NarrowRow(sum, rows.sum, r, rows.cols);
  return sum;
}

template <bool kRounds>
void GenericForwardOf(const NormForwardRows& rows, const NormSpec& spec, const float* gain, const float* bias,
                      const GenericScratchRows& own, int64_t begin, int64_t end) {
  const NormNumbers<float> numbers = NumbersOf<float>(spec, rows.cols);
  const bool wide = rows.y.dtype == DType::kF32;
  AllNorms::Visit(spec.kind, [&](auto norm) {
    for (int64_t r = begin; r < end; ++r) {
      GenericRowMemory memory{.cols = rows.cols,
                              .x = GenericInput(rows, own, r),
                              .gain = gain,
                              .bias = bias,
                              .alpha = rows.alpha,
                              .y = wide ? rows.y.As<float>().Row(r) : own.y,
                              .stored = rows.y.dtype};
      if (rows.saved != nullptr) memory.saved = rows.saved + r * decltype(norm)::kInfo.saved_per_row;
      GenericRow<false, kRounds> row(memory);
      decltype(norm)::Forward(row, numbers);
      if (!wide) NarrowRow(own.y, rows.y, r, rows.cols);
    }
  });
}

// Rows [begin, end).
void GenericForwardRows(const NormForwardRows& rows, const NormSpec& spec, const float* gain,
                        const float* bias, const GenericScratchRows& own, int64_t begin, int64_t end) {
  if (rows.rounds_before_gain) return GenericForwardOf<true>(rows, spec, gain, bias, own, begin, end);
  GenericForwardOf<false>(rows, spec, gain, bias, own, begin, end);
}

template <bool kAccumulateDx, bool kRounds, class Norm>
void GenericBackwardOf(const NormBackwardRows& rows, const NormSpec& spec, const float* gain,
                       const ParameterPartials& partials, int64_t chunk, const GenericScratchRows& own,
                       int64_t begin, int64_t end) {
  constexpr int kSaved = Norm::kInfo.saved_per_row;
  const NormNumbers<float> numbers = NumbersOf<float>(spec, rows.cols);
  const bool wide = rows.dx.dtype == DType::kF32;
  for (int64_t r = begin; r < end; ++r) {
    float* dx = wide ? rows.dx.As<float>().Row(r) : own.y;
    if (kAccumulateDx) WidenRow(rows.dx, r, own.y, rows.cols);
    GenericRow<kAccumulateDx, kRounds> row(
        {.cols = rows.cols,
         .x = rows.x ? WidenRow(rows.x, r, own.x, rows.cols) : nullptr,
         .gain = gain,
         .alpha = rows.alpha,
         .saved = kSaved > 0 ? const_cast<float*>(rows.saved) + r * kSaved : nullptr,
         .dy = WidenRow(rows.dy, r, own.sum, rows.cols),
         .dx = dx,
         .dgain = partials.dgain(chunk),
         .dbias = partials.dbias(chunk),
         .dalpha = partials.dalpha(chunk),
         .stored = rows.dy.dtype});
    Norm::Backward(row, numbers);
    if (!wide) NarrowRow(dx, rows.dx, r, rows.cols);
    if (rows.dx_low) NarrowRow(dx, rows.dx_low, r, rows.cols);
  }
}

template <bool kAccumulateDx>
void GenericBackwardAccumulating(const NormBackwardRows& rows, const NormSpec& spec, const float* gain,
                                 const ParameterPartials& partials, int64_t chunk,
                                 const GenericScratchRows& own, int64_t begin, int64_t end) {
  AllNorms::Visit(spec.kind, [&](auto norm) {
    using Norm = decltype(norm);
    if (rows.rounds_before_gain)
      return GenericBackwardOf<kAccumulateDx, true, Norm>(rows, spec, gain, partials, chunk, own, begin, end);
    return GenericBackwardOf<kAccumulateDx, false, Norm>(rows, spec, gain, partials, chunk, own, begin, end);
  });
}

void GenericBackwardRows(const NormBackwardRows& rows, const NormSpec& spec, const float* gain,
                         const ParameterPartials& partials, int64_t chunk, const GenericScratchRows& own,
                         int64_t begin, int64_t end) {
  if (rows.accumulate_dx)
    return GenericBackwardAccumulating<true>(rows, spec, gain, partials, chunk, own, begin, end);
  GenericBackwardAccumulating<false>(rows, spec, gain, partials, chunk, own, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {
namespace {

HWY_EXPORT(GenericForwardRows);
HWY_EXPORT(GenericBackwardRows);

// A gain and a bias of its own, and the rows of each thread.
int64_t ForwardFloats(const NormForwardArgs& args, int threads) {
  return 2 * PaddedCols(args.x.cols()) + GenericScratchRows::Floats(threads, args.x.cols());
}
int64_t BackwardFloats(const NormBackwardArgs& args, int threads) {
  return GainAndPartialsFloats(args.dy.rows(), args.dy.cols()) +
         GenericScratchRows::Floats(threads, args.dy.cols());
}

void Forward(CpuContext& context, const NormForwardArgs& args) {
  const NormForwardRows rows = RowsOf(args);
  const int64_t padded = PaddedCols(rows.cols), chunks = RowChunks(context.threads(), rows.rows, rows.cols);
  float* own_gain = context.Scratch(static_cast<size_t>(ForwardFloats(args, context.threads())));
  float *own_bias = own_gain + padded, *own_rows = own_bias + padded;
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, own_gain);
  const float* bias = EffectiveBias(rows.bias, rows.cols, own_bias);

  const auto run = HWY_DYNAMIC_DISPATCH(GenericForwardRows);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int thread) {
    run(rows, args.spec, gain, bias, GenericScratchRows(own_rows, thread, rows.cols),
        ChunkBegin(rows.rows, chunks, chunk), ChunkBegin(rows.rows, chunks, chunk + 1));
  });
}

void Backward(CpuContext& context, const NormBackwardArgs& args) {
  const NormBackwardRows rows = RowsOf(args);
  const int64_t chunks = NormPartials(rows.rows, rows.cols);
  float* own_gain = context.Scratch(static_cast<size_t>(BackwardFloats(args, context.threads())));
  float* sums = own_gain + PaddedCols(rows.cols);
  float* own_rows = own_gain + GainAndPartialsFloats(rows.rows, rows.cols);
  const ParameterPartials partials(sums, chunks, rows.cols);
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, own_gain);

  const auto run = HWY_DYNAMIC_DISPATCH(GenericBackwardRows);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int thread) {
    partials.Clear(chunk);
    run(rows, args.spec, gain, partials, chunk, GenericScratchRows(own_rows, thread, rows.cols),
        ChunkBegin(rows.rows, chunks, chunk), ChunkBegin(rows.rows, chunks, chunk + 1));
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
    .forward_floats = ForwardFloats,
    .backward_floats = BackwardFloats};

}  // namespace

const NormImplementationEntry& GenericNorm() { return kGeneric; }

}  // namespace normlab::cpu
#endif  // HWY_ONCE
