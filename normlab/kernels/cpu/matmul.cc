// Matrix products, cut into blocks by shape alone so that the bits do not depend on the number of threads.
// Each block is one single-threaded product of oneDNN followed by its epilogue while the block is still in
// the core's cache: bias and GELU cost no pass over memory of their own.
//
// The cutting rule was measured on a 2-core AVX-512 machine (oneDNN 2.6.3; GFLOP/s). Forward and
// data-gradient products of widths 128 to 3072 lose nothing: blocks of 256 rows reach 322-394, of 512 rows
// 339-398, the whole product on oneDNN's own threads 331-397. Weight gradients lose when cut (768x3072x1024:
// 391 whole, 292 in 256-row blocks), since every block packs the long shared dimension again. So large weight
// gradients run whole: oneDNN's AVX-512 code splits only m and n of them for up to 8 threads, and the tests
// compare the bits of 1, 2, 3, 5 and 8. Its AVX2 code splits k too, so there they are cut as well.

#include <algorithm>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/elementwise.h"
#include "normlab/kernels/cpu/onednn.h"
#include "normlab/kernels/cpu/ops.h"

namespace normlab::cpu {
namespace {

struct Cut {
  int64_t rows, cols;  // of one block
  bool whole;          // one product on oneDNN's threads
};

constexpr int kMaxThreadsOfWhole = 8;

Cut CutOf(const MatMulArgs& args) {
  const int64_t m = args.c.rows(), n = args.c.cols(), k = args.a.cols();
  const bool weight_gradient = args.a.strides[1] != 1 && k > 1;  // a stored transposed: a sum over many rows
  if (weight_gradient) {
    if (args.epilogue == MatMulArgs::Epilogue::kNone && m * n >= (int64_t{1} << 19) && OneDnnHasAvx512())
      return {m, n, true};
    return {m >= 512 ? 128 : 64, n, false};
  }
  if (n >= 8192) return {256, 512, false};  // the output head: its few rows would leave threads idle
  return {m <= 512 ? 128 : m < 4096 ? 256 : 512, n, false};
}

// Pointer, leading dimension and transposition of a matrix with one adjacent axis.
struct Operand {
  const float* data;
  int64_t ld;
  bool transposed;
};

Operand OperandOf(const View& v) {
  const bool transposed = v.strides[1] != 1 && v.shape[1] != 1;
  NL_CHECK(!transposed || v.strides[0] == 1 || v.shape[0] == 1);
  const int64_t ld = transposed ? v.strides[1] : v.strides[0];
  // A leading dimension below the row length can only come from an axis of length 1, where it is free.
  return {v.as<const float>(), std::max(ld, transposed ? v.shape[0] : v.shape[1]), transposed};
}

}  // namespace

void MatMul(CpuContext& context, const MatMulArgs& args) {
  using Epilogue = MatMulArgs::Epilogue;
  const int64_t m = args.c.rows(), n = args.c.cols(), k = args.a.cols();
  if (m == 0 || n == 0) return;
  if (args.a.dtype == DType::kBF16) return MatMulBf16(context, args);
  const Operand a = OperandOf(args.a), b = OperandOf(args.b);
  float* const c = args.c.as<float>();
  const int64_t ldc = std::max(args.c.strides[0], n);

  const Cut cut = CutOf(args);
  Gemm gemm{.transpose_a = a.transposed,
            .transpose_b = b.transposed,
            .m = m,
            .n = n,
            .k = k,
            .a = a.data,
            .lda = a.ld,
            .b = b.data,
            .ldb = b.ld,
            .beta = args.accumulate ? 1.0f : 0.0f,
            .c = c,
            .ldc = ldc};
  if (cut.whole) {
    RunGemmThreaded(gemm, std::min(context.threads(), kMaxThreadsOfWhole));
    return;
  }

  const int64_t row_blocks = (m + cut.rows - 1) / cut.rows;
  const int64_t col_blocks = (n + cut.cols - 1) / cut.cols;
  ParallelFor(context.threads(), row_blocks * col_blocks, [&](int64_t chunk, int) {
    const int64_t r0 = chunk / col_blocks * cut.rows, c0 = chunk % col_blocks * cut.cols;
    const int64_t rows = std::min(cut.rows, m - r0), cols = std::min(cut.cols, n - c0);
    Gemm block = gemm;
    block.m = rows;
    block.n = cols;
    block.a += r0 * args.a.strides[0];
    block.b += c0 * args.b.strides[1];
    block.c += r0 * ldc + c0;
    RunGemm(block);

    const float* const bias = args.bias.empty() ? nullptr : args.bias.as<const float>() + c0;
    switch (args.epilogue) {
      case Epilogue::kNone:
        break;
      case Epilogue::kBias:
        AddBias(rows, cols, bias, {block.c, ldc});
        break;
      case Epilogue::kBiasGelu:
        AddBiasGelu<float>(rows, cols, bias, {block.c, ldc},
                           {args.gelu.as<float>() + r0 * args.gelu.strides[0] + c0, args.gelu.strides[0]});
        break;
      case Epilogue::kGeluBackward:
        MultiplyByGeluGradient<float>(
            rows, cols, {args.z.as<const float>() + r0 * args.z.strides[0] + c0, args.z.strides[0]},
            {block.c, ldc});
        break;
    }
  });
}

namespace {

// Fixed blocks of rows give partial sums, which are then added in order.
constexpr int64_t kBiasBlock = 128;
int64_t BiasBlocks(int64_t rows) { return (rows + kBiasBlock - 1) / kBiasBlock; }

}  // namespace

int64_t BiasGradientFloats(int64_t rows, int64_t cols) { return BiasBlocks(rows) * cols; }

void BiasGradient(CpuContext& context, const View& dy, const View& dbias, bool accumulate) {
  const int64_t rows = dy.rows(), cols = dy.cols();
  float* const out = dbias.as<float>();
  const int64_t blocks = BiasBlocks(rows);
  float* const partial = context.Scratch(static_cast<size_t>(BiasGradientFloats(rows, cols)));
  const auto sum_block = [&]<class T>(int64_t block, const T* from) {
    const int64_t r0 = block * kBiasBlock;
    ColumnSums<T>(std::min(kBiasBlock, rows - r0), cols, {from + r0 * dy.strides[0], dy.strides[0]},
                  partial + block * cols);
  };
  ParallelFor(context.threads(), blocks, [&](int64_t block, int) {
    if (dy.dtype == DType::kBF16)
      sum_block(block, dy.as<BFloat16>());
    else
      sum_block(block, dy.as<float>());
  });
  const FlushDenormals flush;
  if (!accumulate) std::fill(out, out + cols, 0.0f);
  for (int64_t block = 0; block < blocks; ++block) AddTo(cols, partial + block * cols, out);
}

}  // namespace normlab::cpu
