// LayerNorm, RMSNorm (with and without gain) and the identity in one pass over memory, on every instruction
// set that Highway offers.
//   forward   1 read + 1 write of x; with a residual 2 reads + 2 writes (1 write where the sum is not wanted)
//   backward  2 reads + 1 write; with accumulate_dx dx is read and written in place
// Rows are read twice, the second time out of the cache. Statistics and gradients are fp32. The rows'
// arithmetic does not depend on the other rows, nor on alignment; NaN and infinity stay in their row (and in
// the parameter gradients). eps = 0: a row without spread (LayerNorm) or of zeros (RMSNorm) gives xhat = 0
// and dx = 0. Saved per row: LayerNorm mean - x[0] and inv_std; RMSNorm inv_rms; the identity nothing.
// Parameter gradients: NormPartials() partial sums in scratch, added in order. Accuracy: fused LayerNorm
// stays within a few units in the last place of each row's scale for means up to 10^4 standard deviations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/norm_fused.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include <cstring>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_fused-inl.h"
#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/norms/norm_list.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

template <bool kCenter>
void FusedForwardOf(const NormForwardRows& rows, const float* gain, const float* bias, int64_t begin,
                    int64_t end) {
  if (!rows.residual) return FusedForward<kCenter, false, false>(rows, gain, bias).Run(begin, end);
  if (!rows.sum) return FusedForward<kCenter, true, false>(rows, gain, bias).Run(begin, end);
  return FusedForward<kCenter, true, true>(rows, gain, bias).Run(begin, end);
}

void FusedForwardRows(const NormForwardRows& rows, bool center, const float* gain, const float* bias,
                      int64_t begin, int64_t end) {
  center ? FusedForwardOf<true>(rows, gain, bias, begin, end)
         : FusedForwardOf<false>(rows, gain, bias, begin, end);
}

template <bool kCenter>
void FusedBackwardOf(const NormBackwardRows& rows, const float* gain, float* dgain, float* dbias,
                     int64_t begin, int64_t end) {
  if (rows.accumulate_dx) return FusedBackward<kCenter, true>(rows, gain, dgain, dbias).Run(begin, end);
  return FusedBackward<kCenter, false>(rows, gain, dgain, dbias).Run(begin, end);
}

void FusedBackwardRows(const NormBackwardRows& rows, bool center, const float* gain, float* dgain,
                       float* dbias, int64_t begin, int64_t end) {
  center ? FusedBackwardOf<true>(rows, gain, dgain, dbias, begin, end)
         : FusedBackwardOf<false>(rows, gain, dgain, dbias, begin, end);
}

// to = a + b, and the same to `also` where it is given and another matrix. All of it in one row of each.
void FusedAddRow(const float* a, const float* b, float* to, float* also, int64_t cols) {
  ForEachVector(
      cols,
      [&](int64_t c, int64_t floats) NORMLAB_INLINE_BODY {
        PrefetchAhead(a + c, floats);
        PrefetchAhead(b + c, floats);
        PrefetchAhead(to + c, floats);
      },
      [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        const Vec v = hn::Add(Load(a + c, part), Load(b + c, part));
        Store(v, to + c, part);
        if (also != nullptr) Store(v, also + c, part);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {
namespace {

HWY_EXPORT(FusedForwardRows);
HWY_EXPORT(FusedBackwardRows);
HWY_EXPORT(FusedAddRow);

bool Centers(const NormSpec& spec) { return spec.kind == KindOf<LayerNorm>(); }
bool Scales(const NormSpec& spec) {
  return spec.kind == KindOf<RmsNorm>() || spec.kind == KindOf<Rescale>();  // one kernel, the gain being 1
}

void CopyRow(const float* from, float* to, int64_t cols) {
  if (from != to) std::memcpy(to, from, static_cast<size_t>(cols) * sizeof(float));
}

void IdentityForward(CpuContext& context, const NormForwardRows& rows) {
  const int64_t chunks = RowChunks(context.threads(), rows.rows, rows.cols);
  const auto add_row = HWY_DYNAMIC_DISPATCH(FusedAddRow);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    const int64_t end = ChunkBegin(rows.rows, chunks, chunk + 1);
    for (int64_t r = ChunkBegin(rows.rows, chunks, chunk); r < end; ++r) {
      float* y = rows.y.Row(r);
      if (!rows.residual) {
        CopyRow(rows.x.Row(r), y, rows.cols);
        continue;
      }
      float* sum = rows.sum && rows.sum.Row(r) != y ? rows.sum.Row(r) : nullptr;
      add_row(rows.x.Row(r), rows.residual.Row(r), y, sum, rows.cols);
    }
  });
}

void IdentityBackward(CpuContext& context, const NormBackwardRows& rows) {
  const int64_t chunks = RowChunks(context.threads(), rows.rows, rows.cols);
  const auto add_row = HWY_DYNAMIC_DISPATCH(FusedAddRow);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    const int64_t end = ChunkBegin(rows.rows, chunks, chunk + 1);
    for (int64_t r = ChunkBegin(rows.rows, chunks, chunk); r < end; ++r) {
      float* dx = rows.dx.Row(r);
      if (rows.accumulate_dx) {
        add_row(dx, rows.dy.Row(r), dx, nullptr, rows.cols);
      } else {
        CopyRow(rows.dy.Row(r), dx, rows.cols);
      }
    }
  });
}

void Forward(CpuContext& context, const NormForwardArgs& args) {
  const NormForwardRows rows = RowsOf(args);
  if (rows.rows == 0) return;
  if (InfoOf(args.spec.kind).identity) return IdentityForward(context, rows);

  const bool own_bias = Centers(args.spec) && rows.bias == nullptr;
  const int64_t padded = PaddedCols(rows.cols);
  float* scratch = nullptr;
  if (NeedsOwnGain(rows.weight, rows.weight_offset) || own_bias)
    scratch = context.Scratch(static_cast<size_t>(2 * padded));
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, scratch);
  const float* bias = own_bias ? EffectiveBias(nullptr, rows.cols, scratch + padded) : rows.bias;

  const int64_t chunks = RowChunks(context.threads(), rows.rows, rows.cols);
  const auto run = HWY_DYNAMIC_DISPATCH(FusedForwardRows);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    run(rows, Centers(args.spec), gain, bias, ChunkBegin(rows.rows, chunks, chunk),
        ChunkBegin(rows.rows, chunks, chunk + 1));
  });
}

void Backward(CpuContext& context, const NormBackwardArgs& args) {
  const NormBackwardRows rows = RowsOf(args);
  if (InfoOf(args.spec.kind).identity) return IdentityBackward(context, rows);

  const int64_t padded = PaddedCols(rows.cols), chunks = NormPartials(rows.rows, rows.cols);
  float* own_gain = context.Scratch(static_cast<size_t>(GainAndPartialsFloats(rows.rows, rows.cols)));
  const ParameterPartials partials(own_gain + padded, chunks, rows.cols);
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, own_gain);

  const auto run = HWY_DYNAMIC_DISPATCH(FusedBackwardRows);
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    partials.Clear(chunk);
    run(rows, Centers(args.spec), gain, partials.dgain(chunk), partials.dbias(chunk),
        ChunkBegin(rows.rows, chunks, chunk), ChunkBegin(rows.rows, chunks, chunk + 1));
  });
  partials.AddTo(context.threads(), rows);
}

constexpr NormImplementationEntry kFused{
    .implementation = NormImplementation::kFused,
    .refuses = [](const NormSpec& spec, int64_t) -> std::optional<std::string> {
      if (Centers(spec) || Scales(spec) || InfoOf(spec.kind).identity) return std::nullopt;
      return fmt::format("there is no fused kernel for {}", InfoOf(spec.kind).name);
    },
    .saved_elements = [](const NormSpec& spec, int64_t rows,
                         int64_t) { return rows * InfoOf(spec.kind).saved_per_row; },
    .forward = Forward,
    .backward = Backward,
    .scratch_floats = [](const NormSpec& spec, int64_t rows, int64_t cols,
                         int) { return InfoOf(spec.kind).identity ? 0 : GainAndPartialsFloats(rows, cols); }};

}  // namespace

const NormImplementationEntry& FusedNorm() { return kFused; }

}  // namespace normlab::cpu
#endif  // HWY_ONCE
