// library_layernorm: the layer normalization that oneDNN offers, as its users get it. What the library has no
// part for goes by passes of its own over memory: the residual addition, adding to dx, a 16-bit copy of dx,
// and rows that are strided or of a set of types that it does not take (f16, 16 bits around an fp32 stream),
// which are copied or converted to fp32 and back.
//
// Rows are cut as for every norm, so that the bits do not depend on the number of threads: forward one run
// per thread, backward NormPartials() runs whose parameter gradients are added in order. Saved per row: mean
// and variance. y may be x and dx may be x or dy, since oneDNN works through a row element by element. A row
// whose variance overflowed is NaN, which the library would make zeros of.
#include <algorithm>
#include <cmath>
#include <limits>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_fused_choice.h"
#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/kernels/cpu/norm_rows.h"
#include "normlab/kernels/cpu/onednn_norm.h"
#include "normlab/norms/norm_list.h"

namespace normlab::cpu {
namespace {

std::optional<std::string> Refuses(const NormSpec& spec, int64_t) {
  if (spec.kind != KindOf<LayerNorm>())
    return fmt::format("there is no {} in oneDNN", InfoOf(spec.kind).name);
  if (!spec.gain || !spec.bias) return "it is called with a gain and a bias";
  if (!(spec.eps > 0)) return "with eps = 0 oneDNN makes NaN of a row without spread";
  if (spec.cast == NormCast::kBeforeGain) return "oneDNN does not round before the gain";
  return std::nullopt;
}

// Pieces of one block of scratch memory; the same code sizes and cuts it.
class Pieces {
 public:
  explicit Pieces(float* memory = nullptr) : memory_(memory) {}
  float* Take(int64_t floats) {
    float* const piece = memory_ == nullptr ? nullptr : memory_ + floats_;
    floats_ += PaddedCols(floats);
    return piece;
  }
  int64_t floats() const { return floats_; }

 private:
  float* memory_;
  int64_t floats_ = 0;
};

// A matrix as the library takes it: the caller's own, or a dense one of scratch.
struct Operand {
  AnyRows rows;
  bool own = false;
};

Operand DenseOf(const View& view, DType wanted, bool aside, int64_t rows, int64_t cols, Pieces& pieces) {
  if (!aside && view.dtype == wanted && view.row_stride() == cols) return {.rows = {view.data, cols, wanted}};
  return {.rows = {pieces.Take(rows * cols), cols, wanted}, .own = true};
}

int64_t LibraryFloats(bool backward, int64_t rows, int64_t cols, DType dtype, float eps) {
  return static_cast<int64_t>(OneDnnLayerNorm(backward, rows, cols, dtype, eps).scratch_bytes() /
                              sizeof(float)) +
         1;
}

// The runs of rows: at most two lengths, each with a primitive.
class Runs {
 public:
  Runs(bool backward, int64_t rows, int64_t cols, int64_t runs, DType dtype, float eps)
      : rows_(rows),
        runs_(runs),
        shorter_(backward, rows / runs, cols, dtype, eps),
        longer_(backward, (rows + runs - 1) / runs, cols, dtype, eps) {}
  const OneDnnLayerNorm& Of(int64_t run) const {
    return ChunkBegin(rows_, runs_, run + 1) - ChunkBegin(rows_, runs_, run) == rows_ / runs_ ? shorter_
                                                                                              : longer_;
  }

 private:
  int64_t rows_, runs_;
  OneDnnLayerNorm shorter_, longer_;
};

void* At(const AnyRows& rows, int64_t r) {
  return static_cast<char*>(rows.data) + r * rows.stride * static_cast<int64_t>(SizeOf(rows.dtype));
}

// A pass over memory of its own: to = from in any two types of which one is fp32 or both are the same, or
// to += from.
void Pass(CpuContext& context, const AnyRows& from, const AnyRows& to, int64_t rows, int64_t cols,
          bool accumulate = false) {
  const int64_t chunks = RowChunks(context.threads(), rows, cols);
  const FusedKernels kernels = FusedKernelsFor(from.dtype == DType::kF32 ? to.dtype : from.dtype);
  const bool narrows = from.dtype == DType::kF32 && to.dtype != DType::kF32;
  ParallelFor(context.threads(), chunks, [&](int64_t chunk, int) {
    const int64_t begin = ChunkBegin(rows, chunks, chunk), end = ChunkBegin(rows, chunks, chunk + 1);
    if (narrows)
      return kernels.identity_forward({.rows = rows, .cols = cols, .x = from, .y = to}, begin, end);
    kernels.identity_backward({.rows = rows, .cols = cols, .dy = from, .dx = to, .accumulate_dx = accumulate},
                              begin, end);
  });
}

// What a forward call needs beside its arguments.
struct ForwardPlan {
  DType dtype;  // that the library works in
  int64_t chunks, library;
  Operand sum, x, y;
  float *gain, *saved, *scratch;

  ForwardPlan(const NormForwardArgs& args, int threads, Pieces& pieces) {
    const int64_t rows = args.x.rows(), cols = args.x.cols();
    const View& stored = args.residual.empty() ? args.x : args.residual;
    const bool one_type = stored.dtype == args.y.dtype && OneDnnLayerNorm::Takes(stored.dtype);
    dtype = one_type ? stored.dtype : DType::kF32;
    chunks = RowChunks(threads, rows, cols);
    if (!args.residual.empty()) {
      sum.own = args.sum.empty();
      sum.rows = sum.own ? AnyRows{pieces.Take(rows * cols), cols, stored.dtype}
                         : AnyRows{args.sum.data, args.sum.row_stride(), stored.dtype};
    }
    const View input = args.residual.empty() ? args.x
                                             : View{.data = sum.rows.data,
                                                    .dtype = stored.dtype,
                                                    .rank = 2,
                                                    .shape = {rows, cols},
                                                    .strides = {sum.rows.stride, 1}};
    x = DenseOf(input, dtype, false, rows, cols, pieces);
    y = DenseOf(args.y, dtype, false, rows, cols, pieces);
    gain = args.spec.weight_offset != 0 ? pieces.Take(cols) : nullptr;
    saved = args.saved.empty() ? pieces.Take(2 * rows) : nullptr;
    library = std::max(
        LibraryFloats(false, rows / chunks, cols, dtype, static_cast<float>(args.spec.eps)),
        LibraryFloats(false, (rows + chunks - 1) / chunks, cols, dtype, static_cast<float>(args.spec.eps)));
    library = PaddedCols(library);
    scratch = pieces.Take(threads * library);
  }
};

int64_t ForwardFloats(const NormForwardArgs& args, int threads) {
  if (args.x.rows() == 0) return 0;
  Pieces pieces;
  const ForwardPlan plan(args, threads, pieces);
  return pieces.floats();
}

void Forward(CpuContext& context, const NormForwardArgs& args) {
  const NormForwardRows rows = RowsOf(args);
  if (rows.rows == 0) return;
  Pieces pieces(context.Scratch(static_cast<size_t>(ForwardFloats(args, context.threads()))));
  const ForwardPlan plan(args, context.threads(), pieces);

  if (rows.residual) {
    const FusedKernels kernels = FusedKernelsFor(LowType(rows));
    NormForwardRows addition = rows;
    addition.sum = plan.sum.rows;
    addition.y = {.dtype = rows.y.dtype};
    ParallelFor(context.threads(), plan.chunks, [&](int64_t chunk, int) {
      kernels.identity_forward(addition, ChunkBegin(rows.rows, plan.chunks, chunk),
                               ChunkBegin(rows.rows, plan.chunks, chunk + 1));
    });
  }
  const AnyRows& input = rows.residual ? plan.sum.rows : rows.x;
  if (plan.x.own) Pass(context, input, plan.x.rows, rows.rows, rows.cols);
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, plan.gain);
  float* mean = rows.saved != nullptr ? rows.saved : plan.saved;
  float* variance = mean + rows.rows;
  const Runs runs(false, rows.rows, rows.cols, plan.chunks, plan.dtype, rows.eps);
  ParallelFor(context.threads(), plan.chunks, [&](int64_t chunk, int thread) {
    const int64_t begin = ChunkBegin(rows.rows, plan.chunks, chunk);
    runs.Of(chunk).Forward(At(plan.x.rows, begin), gain, rows.bias, At(plan.y.rows, begin), mean + begin,
                           variance + begin, plan.scratch + thread * plan.library);
    for (int64_t r = begin; r < ChunkBegin(rows.rows, plan.chunks, chunk + 1); ++r) {
      if (!std::isinf(variance[r])) continue;
      variance[r] = std::numeric_limits<float>::quiet_NaN();
      // All bits set are a NaN of every type.
      std::fill_n(static_cast<uint8_t*>(At(plan.y.rows, r)),
                  rows.cols * static_cast<int64_t>(SizeOf(plan.dtype)), uint8_t{0xff});
    }
  });
  if (plan.y.own) Pass(context, plan.y.rows, rows.y, rows.rows, rows.cols);
}

struct BackwardPlan {
  DType dtype;
  int64_t chunks, library;
  Operand x, dy, dx;
  float *gain, *sums, *scratch;

  BackwardPlan(const NormBackwardArgs& args, int threads, Pieces& pieces) {
    const int64_t rows = args.dy.rows(), cols = args.dy.cols();
    const DType stored = args.x.dtype;
    const bool one_type =
        stored == args.dy.dtype && stored == args.dx.dtype && OneDnnLayerNorm::Takes(stored);
    // Added to in 16 bits, a gradient of 16 bits would be rounded twice.
    dtype = one_type && !args.accumulate_dx ? stored : DType::kF32;
    chunks = NormPartials(rows, cols);
    gain = args.spec.weight_offset != 0 ? pieces.Take(cols) : nullptr;
    sums = pieces.Take(ParameterPartials::Floats(chunks, cols));
    if (rows == 0) return;
    x = DenseOf(args.x, dtype, false, rows, cols, pieces);
    dy = DenseOf(args.dy, dtype, false, rows, cols, pieces);
    dx = DenseOf(args.dx, dtype, args.accumulate_dx, rows, cols, pieces);
    library = PaddedCols(std::max(
        LibraryFloats(true, rows / chunks, cols, dtype, static_cast<float>(args.spec.eps)),
        LibraryFloats(true, (rows + chunks - 1) / chunks, cols, dtype, static_cast<float>(args.spec.eps))));
    scratch = pieces.Take(threads * library);
  }
};

int64_t BackwardFloats(const NormBackwardArgs& args, int threads) {
  Pieces pieces;
  const BackwardPlan plan(args, threads, pieces);
  return pieces.floats();
}

void Backward(CpuContext& context, const NormBackwardArgs& args) {
  const NormBackwardRows rows = RowsOf(args);
  Pieces pieces(context.Scratch(static_cast<size_t>(BackwardFloats(args, context.threads()))));
  const BackwardPlan plan(args, context.threads(), pieces);
  const ParameterPartials partials(plan.sums, plan.chunks, rows.cols);
  if (rows.rows == 0) {
    for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) partials.Clear(chunk);
    return partials.AddTo(context.threads(), rows);
  }
  if (plan.x.own) Pass(context, rows.x, plan.x.rows, rows.rows, rows.cols);
  if (plan.dy.own) Pass(context, rows.dy, plan.dy.rows, rows.rows, rows.cols);
  const float* gain = EffectiveGain(rows.weight, rows.weight_offset, rows.cols, plan.gain);
  const float *mean = rows.saved, *variance = rows.saved + rows.rows;
  const Runs runs(true, rows.rows, rows.cols, plan.chunks, plan.dtype, rows.eps);
  ParallelFor(context.threads(), plan.chunks, [&](int64_t chunk, int thread) {
    const int64_t begin = ChunkBegin(rows.rows, plan.chunks, chunk);
    runs.Of(chunk).Backward(At(plan.x.rows, begin), At(plan.dy.rows, begin), gain, gain, mean + begin,
                            variance + begin, At(plan.dx.rows, begin), partials.dgain(chunk),
                            partials.dbias(chunk), plan.scratch + thread * plan.library);
  });
  partials.AddTo(context.threads(), rows);

  if (plan.dx.own) {
    if (args.accumulate_dx && rows.dx.dtype == DType::kF32) {
      Pass(context, plan.dx.rows, rows.dx, rows.rows, rows.cols, /*accumulate=*/true);
    } else {
      if (args.accumulate_dx) Pass(context, rows.dx, plan.dx.rows, rows.rows, rows.cols, /*accumulate=*/true);
      Pass(context, plan.dx.rows, rows.dx, rows.rows, rows.cols);
    }
  }
  if (rows.dx_low) Pass(context, rows.dx, rows.dx_low, rows.rows, rows.cols);
}

constexpr NormImplementationEntry kLibrary{
    .implementation = NormImplementation::kLibrary,
    .refuses = Refuses,
    .saved_elements = [](const NormSpec&, int64_t rows, int64_t) { return 2 * rows; },
    .forward = Forward,
    .backward = Backward,
    .forward_floats = ForwardFloats,
    .backward_floats = BackwardFloats};

}  // namespace

const NormImplementationEntry& LibraryNorm() { return kLibrary; }

}  // namespace normlab::cpu
