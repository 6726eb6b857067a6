// Causal attention of bf16 heads on the processor's own bf16 products, one (batch, head) pair per task, one
// block of queries at a time.
//
// A block's scores are one product of oneDNN, read from and written to where queries, keys and values lie in
// their matrices: no panels are packed here. Scores are fp32; probabilities, and backward the gradients of
// scores, are rounded to bf16 for the products that follow. Softmax is finished row by row in between, while
// the block is in the core's second-level cache; keys beyond the block's last query are skipped. Backward
// recomputes the probabilities from the saved log-sum-exp (Dao et al. 2022, arXiv:2205.14135, section 3) and
// adds the gradients of keys and values block by block, in order, in fp32: no sharing between threads, one
// set of bits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/attention_bf16.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/elementwise.h"
#include "normlab/kernels/cpu/math-inl.h"
#include "normlab/kernels/cpu/onednn_bf16.h"
#include "normlab/kernels/cpu/ops.h"
#include "normlab/kernels/cpu/storage-inl.h"

#ifndef NORMLAB_KERNELS_CPU_ATTENTION_BF16_SUM_
#define NORMLAB_KERNELS_CPU_ATTENTION_BF16_SUM_
namespace normlab::cpu {
namespace {

// Of the exponentials of a row of scores: the logarithm of their sum, and what makes probabilities of them.
struct SoftmaxSum {
  float lse, inverse;
};

}  // namespace
}  // namespace normlab::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Rows of scores are padded to whole vectors. f(j, value, mask): the lanes of the row that the query sees.
template <class F>
HWY_INLINE void ForScores(const float* row, int64_t valid, const F& f) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < valid; j += lanes)
    f(j, hn::Load(d, row + j), hn::FirstN(d, static_cast<size_t>(std::min(lanes, valid - j))));
}

// p = exp(scale * (scores - max)) over the first `valid` keys and 0 for the other of `keys`. Not yet divided
// by their sum: the products' results are, which are fewer.
HWY_ATTR SoftmaxSum SoftmaxRow(const float* scores, int64_t valid, int64_t keys, float scale, BFloat16* p) {
  const DF d;
  const VF lowest = hn::Set(d, -HUGE_VALF);
  VF vmax = lowest;
  ForScores(scores, valid, [&](int64_t, VF s, auto seen) HWY_ATTR {
    vmax = hn::Max(vmax, hn::IfThenElse(seen, s, lowest));
  });
  const float max = hn::GetLane(hn::MaxOfLanes(d, vmax));
  const VF m = hn::Set(d, max), factor = hn::Set(d, scale);
  VF sum = hn::Zero(d);
  ForScores(scores, valid, [&](int64_t j, VF s, auto seen) HWY_ATTR {
    const VF e = hn::IfThenElseZero(seen, FastExpNonPositive(d, hn::Mul(hn::Sub(s, m), factor)));
    sum = hn::Add(sum, e);
    StoreFloats(e, d, p + j);
  });
  for (int64_t j = valid; j < keys; ++j) p[j] = {0};
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));
  return {.lse = max * scale + std::log(total), .inverse = 1.0f / total};
}

// to[i] = factor * from[i]
HWY_ATTR void ScaleRow(const float* from, int64_t count, float factor, BFloat16* to) {
  ForColumns(count, [=](auto d, int64_t i) HWY_ATTR {
    StoreFloats(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), d, to + i);
  });
}

// p = exp(scale * scores - lse) and ds = scale * p * (dp - delta), 0 for keys that the query does not see.
HWY_ATTR void SoftmaxGradientRow(const float* scores, const float* dp, int64_t valid, int64_t keys,
                                 float scale, float lse, float delta, BFloat16* p, BFloat16* ds) {
  const DF d;
  const VF factor = hn::Set(d, scale), vlse = hn::Set(d, lse), vdelta = hn::Set(d, delta);
  ForScores(scores, valid, [&](int64_t j, VF s, auto seen) HWY_ATTR {
    const VF e = hn::IfThenElseZero(seen, CoarseExp(d, hn::MulSub(s, factor, vlse)));
    const VF difference = hn::IfThenElseZero(seen, hn::Sub(hn::Load(d, dp + j), vdelta));
    StoreFloats(e, d, p + j);
    StoreFloats(hn::Mul(hn::Mul(e, factor), difference), d, ds + j);
  });
  for (int64_t j = valid; j < keys; ++j) p[j] = ds[j] = {0};
}

HWY_ATTR float DotRow(const BFloat16* a, const BFloat16* b, int64_t count) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) sum = hn::MulAdd(LoadFloats(d, a + i), LoadFloats(d, b + i), sum);
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) total += ToFloat(a[i]) * ToFloat(b[i]);
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {

HWY_EXPORT(SoftmaxRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(SoftmaxGradientRow);
HWY_EXPORT(DotRow);

namespace {

// Queries of a block: so many that a product is worth its call, so few that a block's scores stay in the
// second-level cache and that little is computed of what the causal mask hides.
int64_t QueriesOfBlock(int64_t t) { return t <= 256 ? 128 : 256; }

constexpr int64_t kPad = 32;  // of rows of scores, in elements: whole vectors, and a cache line of bf16
constexpr int64_t Padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

// One head of a [B, T, H, D] view: rows of D adjacent values.
struct Head {
  BFloat16* data;
  int64_t stride;

  Head(const View& v, int64_t task)
      : data(v.as<BFloat16>() + task / v.shape[2] * v.strides[0] + task % v.shape[2] * v.strides[2]),
        stride(v.strides[1]) {}
  BFloat16* Row(int64_t t) const { return data + t * stride; }
};

struct Shape {
  int64_t t, d, heads, queries, padded;
  float scale;

  explicit Shape(const View& q)
      : t(q.shape[1]),
        d(q.shape[3]),
        heads(q.shape[0] * q.shape[2]),
        queries(std::min(QueriesOfBlock(t), t)),
        padded(Padded(t)),
        scale(1.0f / std::sqrt(static_cast<float>(d))) {}

  int64_t blocks() const { return (t + queries - 1) / queries; }
};

// A block of queries with the keys that they see.
struct QueryBlock {
  int64_t begin, rows, keys;
  QueryBlock(const Shape& s, int64_t block)
      : begin(block * s.queries), rows(std::min(s.queries, s.t - begin)), keys(begin + rows) {}
};

// Scratch memory of one thread, in floats; each part starts at a cache line.
class Layout {
 public:
  int64_t Take(int64_t count, DType type) {
    const int64_t at = floats_;
    const int64_t bytes = count * static_cast<int64_t>(SizeOf(type));
    floats_ += (bytes + 63) / 64 * 16;
    return at;
  }
  int64_t floats() const { return floats_; }

 private:
  int64_t floats_ = 0;
};

// ---- The products of a block. Addresses are filled in when they run.

struct Forward {
  const AttentionForwardArgs& args;
  Shape s;
  int64_t scores_at, p_at, result_at, inverse_at, library_at, floats;
  std::vector<std::array<const Bf16Products::Product*, 2>> products;  // of each block: scores, result

  Forward(CpuContext& context, const AttentionForwardArgs& a) : args(a), s(a.q) {
    Layout layout;
    scores_at = layout.Take(s.queries * s.padded, DType::kF32);
    p_at = layout.Take(s.queries * s.padded, DType::kBF16);
    result_at = layout.Take(s.queries * s.d, DType::kF32);
    inverse_at = layout.Take(s.queries, DType::kF32);
    size_t library = 0;
    for (int64_t i = 0; i < s.blocks(); ++i) {
      const QueryBlock block(s, i);
      products.push_back({&context.bf16_products().Prepare(Scores(block, 0, nullptr)),
                          &context.bf16_products().Prepare(Result(block, 0, nullptr, nullptr))});
      for (const Bf16Products::Product* product : products.back())
        library = std::max(library, Bf16Products::ScratchBytes(*product));
    }
    library_at = layout.Take(static_cast<int64_t>(library), DType::kBF16);
    floats = layout.floats();
  }

  // [rows, keys] = q k^T
  Bf16Gemm Scores(const QueryBlock& block, int64_t task, float* to) const {
    const Head q(args.q, task), k(args.k, task);
    return {.transpose_b = true,
            .m = block.rows,
            .n = block.keys,
            .k = s.d,
            .a = q.Row(block.begin),
            .lda = q.stride,
            .b = k.data,
            .ldb = k.stride,
            .c_type = DType::kF32,
            .c = to,
            .ldc = s.padded};
  }
  // [rows, D] = p v
  Bf16Gemm Result(const QueryBlock& block, int64_t task, const BFloat16* p, float* to) const {
    const Head v(args.v, task);
    return {.m = block.rows,
            .n = s.d,
            .k = block.keys,
            .a = p,
            .lda = s.padded,
            .b = v.data,
            .ldb = v.stride,
            .c_type = DType::kF32,
            .c = to,
            .ldc = s.d};
  }

  void Run(int64_t task, int thread, float* scratch) const {
    const Head o(args.o, task);
    float* const result = scratch + result_at;
    float* const inverse = scratch + inverse_at;
    float* const scores = scratch + scores_at;
    BFloat16* const p = reinterpret_cast<BFloat16*>(scratch + p_at);
    float* const lse = args.lse.as<float>() + task * s.t;
    for (int64_t i = 0; i < s.blocks(); ++i) {
      const QueryBlock block(s, i);
      const auto& [score_product, result_product] = products[static_cast<size_t>(i)];
      Bf16Products::Run(*score_product, Scores(block, task, scores), thread, scratch + library_at);
      for (int64_t r = 0; r < block.rows; ++r) {
        const SoftmaxSum sum = HWY_DYNAMIC_DISPATCH(SoftmaxRow)(scores + r * s.padded, block.begin + r + 1,
                                                                block.keys, s.scale, p + r * s.padded);
        lse[block.begin + r] = sum.lse;
        inverse[r] = sum.inverse;
      }
      Bf16Products::Run(*result_product, Result(block, task, p, result), thread, scratch + library_at);
      for (int64_t r = 0; r < block.rows; ++r)
        HWY_DYNAMIC_DISPATCH(ScaleRow)(result + r * s.d, s.d, inverse[r], o.Row(block.begin + r));
    }
  }
};

struct Backward {
  enum ProductOf { kScores, kDp, kDv, kDk, kDq, kProducts };

  const AttentionBackwardArgs& args;
  Shape s;
  int64_t scores_at, dp_at, p_at, ds_at, dk_at, dv_at, library_at, floats;
  std::vector<std::array<const Bf16Products::Product*, kProducts>> products;  // of each block

  Backward(CpuContext& context, const AttentionBackwardArgs& a) : args(a), s(a.q) {
    Layout layout;
    scores_at = layout.Take(s.queries * s.padded, DType::kF32);
    dp_at = layout.Take(s.queries * s.padded, DType::kF32);
    p_at = layout.Take(s.queries * s.padded, DType::kBF16);
    ds_at = layout.Take(s.queries * s.padded, DType::kBF16);
    dk_at = layout.Take(s.t * s.d, DType::kF32);
    dv_at = layout.Take(s.t * s.d, DType::kF32);
    size_t library = 0;
    for (int64_t i = 0; i < s.blocks(); ++i) {
      auto& of_block = products.emplace_back();
      for (int which = 0; which < kProducts; ++which) {
        const Bf16Gemm gemm = Gemm(static_cast<ProductOf>(which), QueryBlock(s, i), 0, nullptr);
        of_block[static_cast<size_t>(which)] = &context.bf16_products().Prepare(gemm);
        library = std::max(library, Bf16Products::ScratchBytes(*of_block[static_cast<size_t>(which)]));
      }
    }
    library_at = layout.Take(static_cast<int64_t>(library), DType::kBF16);
    floats = layout.floats();
  }

  Bf16Gemm Gemm(ProductOf which, const QueryBlock& block, int64_t task, float* scratch) const {
    const auto scratch_rows = [&](int64_t at) { return reinterpret_cast<BFloat16*>(scratch + at); };
    const Head q(args.q, task), k(args.k, task), v(args.v, task), d_o(args.d_o, task), dq(args.dq, task);
    const bool scores = which == kScores;
    if (scores || which == kDp) {  // [rows, keys] = q k^T, d_o v^T
      const Head &a = scores ? q : d_o, &b = scores ? k : v;
      return {.transpose_b = true,
              .m = block.rows,
              .n = block.keys,
              .k = s.d,
              .a = a.Row(block.begin),
              .lda = a.stride,
              .b = b.data,
              .ldb = b.stride,
              .c_type = DType::kF32,
              .c = scratch + (scores ? scores_at : dp_at),
              .ldc = s.padded};
    }
    if (which == kDq)  // [rows, D] = ds k
      return {.m = block.rows,
              .n = s.d,
              .k = block.keys,
              .a = scratch_rows(ds_at),
              .lda = s.padded,
              .b = k.data,
              .ldb = k.stride,
              .c_type = DType::kBF16,
              .c = dq.Row(block.begin),
              .ldc = dq.stride};
    // [keys, D] += p^T d_o, ds^T q
    const Head& b = which == kDv ? d_o : q;
    return {.transpose_a = true,
            .m = block.keys,
            .n = s.d,
            .k = block.rows,
            .a = scratch_rows(which == kDv ? p_at : ds_at),
            .lda = s.padded,
            .b = b.Row(block.begin),
            .ldb = b.stride,
            .c_type = DType::kF32,
            .c = scratch + (which == kDv ? dv_at : dk_at),
            .ldc = s.d,
            .accumulate = true};
  }

  void Run(int64_t task, int thread, float* scratch) const {
    const Head o(args.o, task), d_o(args.d_o, task), dk(args.dk, task), dv(args.dv, task);
    const float* const lse = args.lse.as<const float>() + task * s.t;
    BFloat16* const p = reinterpret_cast<BFloat16*>(scratch + p_at);
    BFloat16* const ds = reinterpret_cast<BFloat16*>(scratch + ds_at);
    std::fill_n(scratch + dk_at, s.t * s.d, 0.0f);
    std::fill_n(scratch + dv_at, s.t * s.d, 0.0f);
    for (int64_t i = 0; i < s.blocks(); ++i) {
      const QueryBlock block(s, i);
      const auto run = [&](ProductOf which) {
        Bf16Products::Run(*products[static_cast<size_t>(i)][which], Gemm(which, block, task, scratch), thread,
                          scratch + library_at);
      };
      run(kScores);
      run(kDp);
      for (int64_t r = 0; r < block.rows; ++r) {
        const int64_t t = block.begin + r;
        // delta = sum_c d_o o = sum_j p_j dp_j, the term that every row of the softmax's Jacobian shares.
        const float delta = HWY_DYNAMIC_DISPATCH(DotRow)(d_o.Row(t), o.Row(t), s.d);
        HWY_DYNAMIC_DISPATCH(SoftmaxGradientRow)
        (scratch + scores_at + r * s.padded, scratch + dp_at + r * s.padded, t + 1, block.keys, s.scale,
         lse[t], delta, p + r * s.padded, ds + r * s.padded);
      }
      run(kDv);
      run(kDk);
      run(kDq);
    }
    Narrow(s.t, s.d, {scratch + dk_at, s.d}, {dk.data, dk.stride});
    Narrow(s.t, s.d, {scratch + dv_at, s.d}, {dv.data, dv.stride});
  }
};

template <class Pass>
void RunTasks(CpuContext& context, const Pass& pass) {
  float* const scratch = context.Scratch(static_cast<size_t>(pass.floats * context.threads()));
  ParallelFor(context.threads(), pass.s.heads,
              [&](int64_t task, int thread) { pass.Run(task, thread, scratch + thread * pass.floats); });
}

}  // namespace

void AttentionForwardBf16(CpuContext& context, const AttentionForwardArgs& args) {
  RunTasks(context, Forward(context, args));
}
void AttentionBackwardBf16(CpuContext& context, const AttentionBackwardArgs& args) {
  RunTasks(context, Backward(context, args));
}

int64_t AttentionForwardBf16Floats(CpuContext& context, const AttentionForwardArgs& args) {
  return Forward(context, args).floats * context.threads();
}
int64_t AttentionBackwardBf16Floats(CpuContext& context, const AttentionBackwardArgs& args) {
  return Backward(context, args).floats * context.threads();
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
