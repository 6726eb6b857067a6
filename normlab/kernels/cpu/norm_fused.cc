// Every norm of the list in one pass over memory, on every instruction set that Highway offers.
//   forward   1 read + 1 write of x; with a residual 2 reads + 2 writes (1 write where the sum is not wanted)
//   backward  2 reads + 1 write; with accumulate_dx dx is read and written in place
// Rows are read twice, the second time out of the cache. Statistics and gradients are fp32. The rows'
// arithmetic does not depend on the other rows, nor on alignment; NaN and infinity stay in their row (and in
// the parameter gradients). eps = 0: a row without spread (LayerNorm) or of zeros (RMSNorm) gives xhat = 0
// and dx = 0. Saved per row: LayerNorm mean - x[0] and inv_std; RMSNorm inv_rms; the identity nothing.
// Parameter gradients: NormPartials() partial sums in scratch, added in order. Accuracy: fused LayerNorm
// stays within a few units in the last place of each row's scale for means up to 10^4 standard deviations.
//
// Every set of storage types has kernels of its own (norm_fused_sets-inl.h): 16-bit rows are widened and
// rounded in registers, statistics, parameters and sums are fp32.
#include <optional>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_fused_choice.h"
#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/norms/norm_list.h"

namespace normlab::cpu {
namespace {

// The kernel of a norm; nothing for the identity, which has its own, and for norms without one.
std::optional<FusedKind> KernelOf(NormKind kind) {
  if (kind == KindOf<LayerNorm>()) return FusedKind::kLayerNorm;
  if (kind == KindOf<RmsNorm>() || kind == KindOf<Rescale>()) return FusedKind::kRmsNorm;
  if (kind == KindOf<PartialRmsNorm>()) return FusedKind::kPartialRmsNorm;
  if (kind == KindOf<Recenter>()) return FusedKind::kRecenter;
  if (kind == KindOf<Dyt>()) return FusedKind::kDyt;
  return std::nullopt;
}

// A gain and a bias of its own, and rows for the sums that nobody wants, one for each chunk. They are of the
// residual's type, which takes no more than a float.
struct ForwardScratch {
  bool own_gain, own_bias, own_sums;
  int64_t chunks, padded;

  ForwardScratch(const NormForwardArgs& args, int threads)
      : own_gain(args.weight.empty() || args.spec.weight_offset != 0),
        own_bias(InfoOf(args.spec.kind).has_bias && args.bias.empty()),
        own_sums(!args.residual.empty() && args.sum.empty()),
        chunks(RowChunks(threads, args.x.rows(), args.x.cols())),
        padded(PaddedCols(args.x.cols())) {}
  int64_t floats() const {
    return ((own_gain ? 1 : 0) + (own_bias ? 1 : 0) + (own_sums ? chunks : 0)) * padded;
  }
};

int64_t ForwardFloats(const NormForwardArgs& args, int threads) {
  if (args.x.rows() == 0 || InfoOf(args.spec.kind).identity) return 0;
  return ForwardScratch(args, threads).floats();
}

int64_t BackwardFloats(const NormBackwardArgs& args, int) {
  if (InfoOf(args.spec.kind).identity) return 0;
  return GainAndPartialsFloats(args.dy.rows(), args.dy.cols());
}

template <class Body>
void ForEachChunk(CpuContext& context, int64_t rows, int64_t chunks, Body&& body) {
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    body(chunk, ChunkBegin(rows, chunks, chunk), ChunkBegin(rows, chunks, chunk + 1));
  });
}

void Forward(CpuContext& context, const NormForwardArgs& args) {
  const NormForwardRows rows = RowsOf(args);
  if (rows.rows == 0) return;
  const FusedKernels kernels = FusedKernelsFor(LowType(rows));
  const ForwardScratch wanted(args, context.threads());
  if (InfoOf(args.spec.kind).identity)
    return ForEachChunk(context, rows.rows, wanted.chunks, [&](int64_t, int64_t begin, int64_t end) {
      kernels.identity_forward(rows, begin, end);
    });

  const FusedKind norm = *KernelOf(args.spec.kind);
  float* scratch = nullptr;
  if (wanted.floats() > 0) scratch = context.Scratch(static_cast<size_t>(wanted.floats()));
  float* own_bias = scratch + (wanted.own_gain ? wanted.padded : 0);
  float* own_sums = own_bias + (wanted.own_bias ? wanted.padded : 0);
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, scratch);
  const float* bias = wanted.own_bias ? EffectiveBias(nullptr, rows.cols, own_bias) : rows.bias;
  ForEachChunk(context, rows.rows, wanted.chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    NormForwardRows own = rows;
    if (wanted.own_sums)
      own.sum = {.data = own_sums + chunk * wanted.padded, .stride = 0, .dtype = rows.residual.dtype};
    kernels.forward(own, norm, gain, bias, begin, end);
  });
}

void Backward(CpuContext& context, const NormBackwardArgs& args) {
  const NormBackwardRows rows = RowsOf(args);
  const FusedKernels kernels = FusedKernelsFor(LowType(rows));
  if (InfoOf(args.spec.kind).identity)
    return ForEachChunk(
        context, rows.rows, RowChunks(context.threads(), rows.rows, rows.cols),
        [&](int64_t, int64_t begin, int64_t end) { kernels.identity_backward(rows, begin, end); });

  const FusedKind norm = *KernelOf(args.spec.kind);
  const int64_t padded = PaddedCols(rows.cols), chunks = NormPartials(rows.rows, rows.cols);
  float* own_gain = context.Scratch(static_cast<size_t>(GainAndPartialsFloats(rows.rows, rows.cols)));
  const ParameterPartials partials(own_gain + padded, chunks, rows.cols);
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, own_gain);
  // Beside an fp32 dy, dx_low is made of dx while that is in the cache.
  const bool narrows = rows.dx_low && rows.dy.dtype == DType::kF32;
  const FusedKernels gradients = narrows ? FusedKernelsF32() : kernels;
  NormBackwardRows dx_to_low = rows, to_dx = rows;
  if (narrows) to_dx.dx_low = {};
  dx_to_low.dy = rows.dx;
  dx_to_low.accumulate_dx = false;
  const int64_t run = narrows ? std::max<int64_t>(1, kElementsWorthAThread / rows.cols) : rows.rows;
  ForEachChunk(context, rows.rows, chunks, [&](int64_t chunk, int64_t begin, int64_t end) {
    partials.Clear(chunk);
    for (int64_t first = begin; first < end; first += run) {
      const int64_t last = std::min(first + run, end);
      gradients.backward(to_dx, norm, gain, partials, chunk, first, last);
      if (narrows) kernels.identity_backward(dx_to_low, first, last);
    }
  });
  partials.AddTo(context.threads(), rows);
}

constexpr NormImplementationEntry kFused{
    .implementation = NormImplementation::kFused,
    .refuses = [](const NormSpec& spec, int64_t) -> std::optional<std::string> {
      if (KernelOf(spec.kind) || InfoOf(spec.kind).identity) return std::nullopt;
      return fmt::format("there is no fused kernel for {}", InfoOf(spec.kind).name);
    },
    .saved_elements = [](const NormSpec& spec, int64_t rows,
                         int64_t) { return rows * InfoOf(spec.kind).saved_per_row; },
    .forward = Forward,
    .backward = Backward,
    .forward_floats = ForwardFloats,
    .backward_floats = BackwardFloats};

}  // namespace

const NormImplementationEntry& FusedNorm() { return kFused; }

}  // namespace normlab::cpu
