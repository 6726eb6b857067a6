// Matrix products of bf16 operands, with fp32 sums. As in fp32, the work is cut into blocks by shape alone,
// each block is one single-threaded product with its epilogue while it is still in the core's cache, and so
// the bits do not depend on the number of threads (oneDNN's own threads split the sums of bf16 weight
// gradients by their count).
//
// Where the processor has no bf16 products of its own, blocks of the operands are widened to fp32 panels and
// multiplied in fp32: the same rounding of every stored number, at nearly the speed of fp32.

#include <algorithm>
#include <array>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/elementwise.h"
#include "normlab/kernels/cpu/onednn.h"
#include "normlab/kernels/cpu/onednn_bf16.h"
#include "normlab/kernels/cpu/ops.h"

namespace normlab::cpu {
namespace {

using Epilogue = MatMulArgs::Epilogue;

constexpr int64_t kScratchAlignment = 64;

// Pointer, leading dimension and transposition of a matrix with one adjacent axis.
struct Operand {
  const BFloat16* data;
  int64_t ld;
  bool transposed;

  // The panel that begins at this row and column of the matrix.
  const BFloat16* At(int64_t row, int64_t col) const {
    return data + (transposed ? col * ld + row : row * ld + col);
  }
};

Operand OperandOf(const View& v) {
  const bool transposed = v.strides[1] != 1 && v.shape[1] != 1;
  NL_CHECK(!transposed || v.strides[0] == 1 || v.shape[0] == 1);
  const int64_t ld = transposed ? v.strides[1] : v.strides[0];
  // A leading dimension below the row length can only come from an axis of length 1, where it is free.
  return {v.as<const BFloat16>(), std::max(ld, transposed ? v.shape[0] : v.shape[1]), transposed};
}

// One block of c and what its epilogue touches.
struct CBlock {
  int64_t row, col, rows, cols;
};

class Cut {
 public:
  Cut(int64_t m, int64_t n, int64_t rows, int64_t cols)
      : m_(m), n_(n), rows_(std::min(rows, m)), cols_(std::min(cols, n)) {}

  int64_t blocks() const { return RowBlocks() * ColBlocks(); }
  CBlock Block(int64_t i) const {
    const int64_t row = i / ColBlocks() * rows_, col = i % ColBlocks() * cols_;
    return {row, col, std::min(rows_, m_ - row), std::min(cols_, n_ - col)};
  }
  // Blocks of every size that occurs: the first, and the last of each direction.
  std::array<CBlock, 4> Sizes() const {
    return {Block(0), Block(ColBlocks() - 1), Block(blocks() - ColBlocks()), Block(blocks() - 1)};
  }

 private:
  int64_t RowBlocks() const { return (m_ + rows_ - 1) / rows_; }
  int64_t ColBlocks() const { return (n_ + cols_ - 1) / cols_; }

  int64_t m_, n_, rows_, cols_;
};

template <class T>
Block<T> PartOf(const View& matrix, const CBlock& block) {
  return {matrix.as<T>() + block.row * matrix.strides[0] + block.col, matrix.strides[0]};
}

// What follows a product whose result, with its bias, stands in c as bf16.
void RunBf16Epilogue(const MatMulArgs& args, const CBlock& block) {
  if (args.epilogue == Epilogue::kBiasGelu)
    AddBiasGelu(block.rows, block.cols, nullptr, PartOf<BFloat16>(args.c, block),
                PartOf<BFloat16>(args.gelu, block));
  if (args.epilogue == Epilogue::kGeluBackward)
    MultiplyByGeluGradient(block.rows, block.cols, PartOf<const BFloat16>(args.z, block),
                           PartOf<BFloat16>(args.c, block));
}

// The same for a result that is wanted in fp32.
void RunF32Epilogue(const MatMulArgs& args, const CBlock& block) {
  if (args.epilogue == Epilogue::kBiasGelu)
    AddBiasGelu(block.rows, block.cols, nullptr, PartOf<float>(args.c, block),
                PartOf<float>(args.gelu, block));
  if (args.epilogue == Epilogue::kGeluBackward)
    MultiplyByGeluGradient(block.rows, block.cols, PartOf<const float>(args.z, block),
                           PartOf<float>(args.c, block));
}

void RunEpilogue(const MatMulArgs& args, const CBlock& block) {
  args.c.dtype == DType::kF32 ? RunF32Epilogue(args, block) : RunBf16Epilogue(args, block);
}

// ---- On the processor's own bf16 instructions.

// Measured on two cores with AMX (oneDNN 2.6.3). Weight gradients transpose a and copy b into tiles for every
// block, so theirs are large; products with few rows and very many columns are cut along the columns.
Cut NativeCut(const MatMulArgs& args) {
  const int64_t m = args.c.rows(), n = args.c.cols();
  const bool weight_gradient = args.a.strides[1] != 1 && args.a.cols() > 1;
  if (weight_gradient) return {m, n, m >= 8192 ? 1024 : m >= 1024 ? 256 : m >= 256 ? 128 : 64, n};
  if (n >= 8192) return {m, n, 512, 2048};
  return {m, n, m <= 512 ? 128 : 256, n};
}

Bf16Gemm GemmOf(const MatMulArgs& args, const CBlock& block) {
  const Operand a = OperandOf(args.a), b = OperandOf(args.b);
  const int64_t element = static_cast<int64_t>(SizeOf(args.c.dtype));
  return {.transpose_a = a.transposed,
          .transpose_b = b.transposed,
          .m = block.rows,
          .n = block.cols,
          .k = args.a.cols(),
          .a = a.At(block.row, 0),
          .lda = a.ld,
          .b = b.At(0, block.col),
          .ldb = b.ld,
          .bias = args.bias.empty() ? nullptr : args.bias.as<const float>() + block.col,
          .c_type = args.c.dtype,
          .c = static_cast<char*>(args.c.data) + (block.row * args.c.strides[0] + block.col) * element,
          .ldc = std::max(args.c.strides[0], args.c.cols()),
          .accumulate = args.accumulate};
}

struct NativeProducts {
  std::array<const Bf16Products::Product*, 4> of_size;  // of Cut::Sizes()
  int64_t scratch_bytes = 0;                            // of one thread
};

NativeProducts PrepareNative(CpuContext& context, const MatMulArgs& args, const Cut& cut) {
  NativeProducts products;
  const auto sizes = cut.Sizes();
  for (size_t i = 0; i < sizes.size(); ++i) {
    products.of_size[i] = &context.bf16_products().Prepare(GemmOf(args, sizes[i]));
    const int64_t bytes = static_cast<int64_t>(Bf16Products::ScratchBytes(*products.of_size[i]));
    products.scratch_bytes = std::max(products.scratch_bytes, bytes);
  }
  products.scratch_bytes =
      (products.scratch_bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return products;
}

void RunNative(CpuContext& context, const MatMulArgs& args) {
  const Cut cut = NativeCut(args);
  const NativeProducts products = PrepareNative(context, args, cut);
  const auto sizes = cut.Sizes();
  char* const scratch = reinterpret_cast<char*>(
      context.Scratch(static_cast<size_t>(products.scratch_bytes * context.threads()) / sizeof(float)));
  ParallelFor(context.threads(), cut.blocks(), [&](int64_t chunk, int thread) {
    const CBlock block = cut.Block(chunk);
    size_t size = 0;
    while (sizes[size].rows != block.rows || sizes[size].cols != block.cols) ++size;
    Bf16Products::Run(*products.of_size[size], GemmOf(args, block), thread,
                      scratch + thread * products.scratch_bytes);
    RunEpilogue(args, block);
  });
}

// ---- On fp32 instructions.

constexpr int64_t kPanelRows = 256, kPanelCols = 512, kPanelDepth = 1024;
constexpr int64_t kPanelFloats = (kPanelRows + kPanelCols) * kPanelDepth + kPanelRows * kPanelCols;

// The panel of an operand from (row, col) on, widened: rows x cols, or transposed as it is stored.
void WidenPanel(const Operand& from, int64_t row, int64_t col, int64_t rows, int64_t cols, float* to) {
  if (from.transposed) std::swap(rows, cols);
  Widen(rows, cols, {from.At(row, col), from.ld}, {to, cols});
}

void RunEmulated(CpuContext& context, const MatMulArgs& args) {
  const int64_t k = args.a.cols();
  const Operand a = OperandOf(args.a), b = OperandOf(args.b);
  const Cut cut(args.c.rows(), args.c.cols(), kPanelRows, kPanelCols);
  const bool in_place = args.c.dtype == DType::kF32;  // sums form where they are wanted
  float* const scratch = context.Scratch(static_cast<size_t>(kPanelFloats * context.threads()));
  ParallelFor(context.threads(), cut.blocks(), [&](int64_t chunk, int thread) {
    const CBlock block = cut.Block(chunk);
    float* const a_panel = scratch + thread * kPanelFloats;
    float* const b_panel = a_panel + kPanelRows * kPanelDepth;
    float* const c_panel = b_panel + kPanelCols * kPanelDepth;
    const Block<float> c = in_place ? PartOf<float>(args.c, block) : Block<float>{c_panel, block.cols};
    if (args.accumulate && !in_place) Widen(block.rows, block.cols, PartOf<const BFloat16>(args.c, block), c);
    for (int64_t l = 0; l < k; l += kPanelDepth) {
      const int64_t depth = std::min(kPanelDepth, k - l);
      WidenPanel(a, block.row, l, block.rows, depth, a_panel);
      WidenPanel(b, l, block.col, depth, block.cols, b_panel);
      RunGemm({.transpose_a = a.transposed,
               .transpose_b = b.transposed,
               .m = block.rows,
               .n = block.cols,
               .k = depth,
               .a = a_panel,
               .lda = a.transposed ? block.rows : depth,
               .b = b_panel,
               .ldb = b.transposed ? depth : block.cols,
               .beta = l > 0 || args.accumulate ? 1.0f : 0.0f,
               .c = c.data,
               .ldc = std::max(c.stride, block.cols)});
    }
    if (!args.bias.empty()) AddBias(block.rows, block.cols, args.bias.as<const float>() + block.col, c);
    if (!in_place) Narrow(block.rows, block.cols, {c.data, c.stride}, PartOf<BFloat16>(args.c, block));
    RunEpilogue(args, block);
  });
}

}  // namespace

void MatMulBf16(CpuContext& context, const MatMulArgs& args) {
  HasNativeBf16Products() ? RunNative(context, args) : RunEmulated(context, args);
}

int64_t MatMulFloats(CpuContext& context, const MatMulArgs& args) {
  if (args.a.dtype != DType::kBF16 || args.c.elements() == 0) return 0;
  if (!HasNativeBf16Products()) return kPanelFloats * context.threads();
  const int64_t bytes = PrepareNative(context, args, NativeCut(args)).scratch_bytes;
  return bytes * context.threads() / static_cast<int64_t>(sizeof(float));
}

}  // namespace normlab::cpu
