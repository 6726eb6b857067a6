// Causal attention, one (batch, head) pair per task, one block of queries at a time.
//
// A task packs its head's q (times 1/sqrt(D)), k and v from their strided places into dense, zero-padded
// panels [Tp, Dp] and transposes [Dp, Tp]; then every product is one small register-blocked kernel over
// panels, with the keys beyond the block's last query skipped. A block holds kQueries x (keys so far) scores:
// at most kQueries * T floats, which stay in the core's second-level cache. Backward recomputes the
// probabilities from the saved log-sum-exp (Dao et al. 2022, arXiv:2205.14135, section 3) and adds the
// gradients of k and v block by block, in order, in the task's own panels: no sharing between threads, so no
// atomics and one set of bits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/math-inl.h"
#include "normlab/kernels/cpu/onednn_bf16.h"
#include "normlab/kernels/cpu/ops.h"
#include "normlab/kernels/cpu/storage-inl.h"

#ifndef NORMLAB_KERNELS_CPU_ATTENTION_SHAPE_
#define NORMLAB_KERNELS_CPU_ATTENTION_SHAPE_
namespace normlab::cpu {
namespace {

constexpr int64_t kQueries =
    32;                       // of one block; also the padding of T, and a multiple of every kernel's rows
constexpr int64_t kPad = 32;  // of T and D: two of the widest vectors

constexpr int64_t Padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

// Sizes of one task, and where its panels lie in its thread's scratch.
struct Shape {
  int64_t t, d, tp, dp;
  int64_t panel() const { return tp * dp; }
  // q, k^T, v + block of scores
  int64_t forward_floats() const { return 3 * panel() + kQueries * tp; }
  // q, k, k^T, v^T, d_o, dk, dv + blocks p, ds + one block of dq
  int64_t backward_floats() const { return 7 * panel() + 2 * kQueries * tp + kQueries * dp; }
};

Shape ShapeOf(const View& q) {
  return {.t = q.shape[1], .d = q.shape[3], .tp = Padded(q.shape[1]), .dp = Padded(q.shape[3])};
}

// One head of a [B, T, H, D] view: rows of D adjacent values.
template <class T>
struct Head {
  T* data;
  int64_t stride;
};

template <class T>
Head<T> HeadOf(const View& v, int64_t task) {
  const int64_t heads = v.shape[2];
  return {v.as<T>() + task / heads * v.strides[0] + task % heads * v.strides[2], v.strides[1]};
}

}  // namespace
}  // namespace normlab::cpu
#endif  // NORMLAB_KERNELS_CPU_ATTENTION_SHAPE_

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// c[m, n] = or += a[m, k] b[k, n]. a is read element by element with free strides, b and c by rows of
// vectors. m is a multiple of kRows, n of two vectors.
struct Panel {
  const float* data;
  int64_t row_stride, col_stride;
};

// 8 x 2 accumulators hide the latency of the multiply-add where there are 32 registers; 4 x 2 where 16.
constexpr int64_t kRows = HWY_MAX_BYTES >= 64 ? 8 : 4;

template <bool kAccumulate>
HWY_INLINE void Tile(int64_t k, const float* HWY_RESTRICT a, int64_t a_row, int64_t a_col,
                     const float* HWY_RESTRICT b, int64_t ldb, float* HWY_RESTRICT c, int64_t ldc) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum0[kRows], sum1[kRows];
  HWY_UNROLL(8)
  for (int64_t i = 0; i < kRows; ++i) {
    sum0[i] = kAccumulate ? hn::Load(d, c + i * ldc) : hn::Zero(d);
    sum1[i] = kAccumulate ? hn::Load(d, c + i * ldc + lanes) : hn::Zero(d);
  }
  for (int64_t p = 0; p < k; ++p) {
    const VF b0 = hn::Load(d, b + p * ldb);
    const VF b1 = hn::Load(d, b + p * ldb + lanes);
    const float* column = a + p * a_col;
    HWY_UNROLL(8)
    for (int64_t i = 0; i < kRows; ++i) {
      const VF ai = hn::Set(d, column[i * a_row]);
      sum0[i] = hn::MulAdd(ai, b0, sum0[i]);
      sum1[i] = hn::MulAdd(ai, b1, sum1[i]);
    }
  }
  HWY_UNROLL(8)
  for (int64_t i = 0; i < kRows; ++i) {
    hn::Store(sum0[i], d, c + i * ldc);
    hn::Store(sum1[i], d, c + i * ldc + lanes);
  }
}

template <bool kAccumulate>
HWY_ATTR HWY_NOINLINE void Product(int64_t m, int64_t n, int64_t k, Panel a, const float* b, int64_t ldb,
                                   float* c, int64_t ldc) {
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t j = 0; j < n; j += step)
    for (int64_t i = 0; i < m; i += kRows)
      Tile<kAccumulate>(k, a.data + i * a.row_stride, a.row_stride, a.col_stride, b + j, ldb, c + i * ldc + j,
                        ldc);
}

// panel[Tp, Dp] = scale * head, zero where padded.
template <class T>
HWY_ATTR void Pack(const Shape& s, Head<T> head, float scale, float* HWY_RESTRICT panel) {
  for (int64_t t = 0; t < s.t; ++t) {
    float* HWY_RESTRICT to = panel + t * s.dp;
    const T* HWY_RESTRICT from = head.data + t * head.stride;
    for (int64_t i = 0; i < s.d; ++i) to[i] = scale * ToFloat(from[i]);
    for (int64_t i = s.d; i < s.dp; ++i) to[i] = 0;
  }
  std::fill(panel + s.t * s.dp, panel + s.tp * s.dp, 0.0f);
}

// panel[Dp, Tp] = transposed head, zero where padded.
template <class T>
HWY_ATTR void PackTransposed(const Shape& s, Head<T> head, float* HWY_RESTRICT panel) {
  if (s.d < s.dp || s.t < s.tp) std::fill(panel, panel + s.panel(), 0.0f);
  constexpr int64_t kTile = 16;  // rows whose lines stay in the first-level cache while columns are read
  for (int64_t t0 = 0; t0 < s.t; t0 += kTile) {
    const int64_t rows = std::min(kTile, s.t - t0);
    for (int64_t i = 0; i < s.d; ++i) {
      float* HWY_RESTRICT to = panel + i * s.tp + t0;
      const T* HWY_RESTRICT from = head.data + t0 * head.stride + i;
      for (int64_t t = 0; t < rows; ++t) to[t] = ToFloat(from[t * head.stride]);
    }
  }
}

// Sum of a[i] b[i]; b is a row of a panel: aligned, and padded with zeros.
template <class T>
HWY_INLINE float Dot(const T* a, const float* b, int64_t count) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VF sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) sum = hn::MulAdd(LoadFloats(d, a + i), hn::Load(d, b + i), sum);
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) total += ToFloat(a[i]) * b[i];
  return total;
}

// Row of scores -> exp(score - max) for keys [0, valid), 0 for [valid, keys). Returns the sum; max by
// reference.
HWY_INLINE float Softmax(float* row, int64_t valid, int64_t keys, float& max) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // The exponential of what the causal mask hides is exactly 0, however small the visible scores are.
  for (int64_t j = valid; j < keys; ++j) row[j] = -HUGE_VALF;
  VF vmax = hn::Set(d, -HUGE_VALF);
  for (int64_t j = 0; j < keys; j += lanes) vmax = hn::Max(vmax, hn::Load(d, row + j));
  max = hn::GetLane(hn::MaxOfLanes(d, vmax));
  const VF m = hn::Set(d, max);
  VF sum = hn::Zero(d);
  for (int64_t j = 0; j < keys; j += lanes) {
    const VF e = FastExp(d, hn::Sub(hn::Load(d, row + j), m));
    sum = hn::Add(sum, e);
    hn::Store(e, d, row + j);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// to[i] = scale * from[i]
template <class T>
HWY_INLINE void StoreScaled(const float* from, int64_t count, float scale, T* to) {
  ForColumns(count, [=](auto d, int64_t i) HWY_ATTR {
    StoreFloats(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)), d, to + i);
  });
}

template <class T>
HWY_ATTR void ForwardTask(const AttentionForwardArgs& args, int64_t task, float* scratch) {
  const Shape s = ShapeOf(args.q);
  float* const q = scratch;
  float* const k_t = q + s.panel();
  float* const v = k_t + s.panel();
  float* const scores = v + s.panel();
  Pack(s, HeadOf<const T>(args.q, task), 1.0f / std::sqrt(static_cast<float>(s.d)), q);
  PackTransposed(s, HeadOf<const T>(args.k, task), k_t);
  Pack(s, HeadOf<const T>(args.v, task), 1.0f, v);
  const Head out = HeadOf<T>(args.o, task);
  float* const lse = args.lse.as<float>() + task * s.t;
  HWY_ALIGN float block[kQueries * 256];  // o of one block, up to 256 columns of D at a time

  for (int64_t q0 = 0; q0 < s.t; q0 += kQueries) {
    const int64_t queries = std::min(kQueries, s.t - q0);
    const int64_t keys = std::min(q0 + kQueries, s.tp);
    Product<false>(kQueries, keys, s.d, {q + q0 * s.dp, s.dp, 1}, k_t, s.tp, scores, s.tp);
    float inv_sum[kQueries];
    for (int64_t i = 0; i < queries; ++i) {
      float max;
      const float sum = Softmax(scores + i * s.tp, q0 + i + 1, keys, max);
      inv_sum[i] = 1.0f / sum;
      lse[q0 + i] = max + std::log(sum);
    }
    for (int64_t d0 = 0; d0 < s.dp; d0 += 256) {
      const int64_t width = std::min<int64_t>(256, s.dp - d0);
      Product<false>(kQueries, width, keys, {scores, s.tp, 1}, v + d0, s.dp, block, 256);
      for (int64_t i = 0; i < queries; ++i) {
        T* const row = out.data + (q0 + i) * out.stride + d0;
        StoreScaled(block + i * 256, std::min(width, s.d - d0), inv_sum[i], row);
      }
    }
  }
}

template <class T>
HWY_ATTR void BackwardTask(const AttentionBackwardArgs& args, int64_t task, float* scratch) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Shape s = ShapeOf(args.q);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.d));
  float* const q = scratch;
  float* const k = q + s.panel();
  float* const k_t = k + s.panel();
  float* const v_t = k_t + s.panel();
  float* const d_o = v_t + s.panel();
  float* const dk = d_o + s.panel();
  float* const dv = dk + s.panel();
  float* const p = dv + s.panel();
  float* const ds = p + kQueries * s.tp;
  float* const dq = ds + kQueries * s.tp;
  Pack(s, HeadOf<const T>(args.q, task), scale, q);
  Pack(s, HeadOf<const T>(args.k, task), 1.0f, k);
  PackTransposed(s, HeadOf<const T>(args.k, task), k_t);
  PackTransposed(s, HeadOf<const T>(args.v, task), v_t);
  Pack(s, HeadOf<const T>(args.d_o, task), 1.0f, d_o);
  std::fill(dk, dk + 2 * s.panel(), 0.0f);
  const Head o = HeadOf<const T>(args.o, task);
  const Head dq_out = HeadOf<T>(args.dq, task);
  const float* const lse = args.lse.as<const float>() + task * s.t;

  for (int64_t q0 = 0; q0 < s.t; q0 += kQueries) {
    const int64_t queries = std::min(kQueries, s.t - q0);
    const int64_t keys = std::min(q0 + kQueries, s.tp);
    Product<false>(kQueries, keys, s.d, {q + q0 * s.dp, s.dp, 1}, k_t, s.tp, p, s.tp);
    Product<false>(kQueries, keys, s.d, {d_o + q0 * s.dp, s.dp, 1}, v_t, s.tp, ds, s.tp);
    for (int64_t i = 0; i < kQueries; ++i) {
      float* const p_row = p + i * s.tp;
      float* const ds_row = ds + i * s.tp;
      if (i >= queries) {  // rows beyond T
        std::fill(p_row, p_row + keys, 0.0f);
        std::fill(ds_row, ds_row + keys, 0.0f);
        continue;
      }
      // delta = sum_c d_o o = sum_j p_j dp_j, the term that every row of the softmax's Jacobian shares.
      const T* const o_row = o.data + (q0 + i) * o.stride;
      const float* const do_row = d_o + (q0 + i) * s.dp;
      const float delta = Dot(o_row, do_row, s.d);
      const int64_t valid = q0 + i + 1;
      for (int64_t j = valid; j < keys; ++j) p_row[j] = -HUGE_VALF;
      const VF vdelta = hn::Set(d, delta), vlse = hn::Set(d, lse[q0 + i]);
      for (int64_t j = 0; j < keys; j += lanes) {
        const VF pj = FastExp(d, hn::Sub(hn::Load(d, p_row + j), vlse));
        hn::Store(pj, d, p_row + j);
        hn::Store(hn::Mul(pj, hn::Sub(hn::Load(d, ds_row + j), vdelta)), d, ds_row + j);
      }
    }
    Product<true>(keys, s.dp, kQueries, {p, 1, s.tp}, d_o + q0 * s.dp, s.dp, dv, s.dp);
    Product<true>(keys, s.dp, kQueries, {ds, 1, s.tp}, q + q0 * s.dp, s.dp, dk, s.dp);
    Product<false>(kQueries, s.dp, keys, {ds, s.tp, 1}, k, s.dp, dq, s.dp);
    for (int64_t i = 0; i < queries; ++i)
      StoreScaled(dq + i * s.dp, s.d, scale, dq_out.data + (q0 + i) * dq_out.stride);
  }
  const Head dk_out = HeadOf<T>(args.dk, task), dv_out = HeadOf<T>(args.dv, task);
  for (int64_t t = 0; t < s.t; ++t) {
    StoreScaled(dk + t * s.dp, s.d, 1.0f, dk_out.data + t * dk_out.stride);
    StoreScaled(dv + t * s.dp, s.d, 1.0f, dv_out.data + t * dv_out.stride);
  }
}

void ForwardTaskF32(const AttentionForwardArgs& args, int64_t task, float* scratch) {
  ForwardTask<float>(args, task, scratch);
}
void ForwardTaskBf16(const AttentionForwardArgs& args, int64_t task, float* scratch) {
  ForwardTask<BFloat16>(args, task, scratch);
}
void BackwardTaskF32(const AttentionBackwardArgs& args, int64_t task, float* scratch) {
  BackwardTask<float>(args, task, scratch);
}
void BackwardTaskBf16(const AttentionBackwardArgs& args, int64_t task, float* scratch) {
  BackwardTask<BFloat16>(args, task, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {

HWY_EXPORT(ForwardTaskF32);
HWY_EXPORT(ForwardTaskBf16);
HWY_EXPORT(BackwardTaskF32);
HWY_EXPORT(BackwardTaskBf16);

namespace {

// Heads of bf16 go through products of bf16 where the processor has them, else through fp32 panels.
bool Native(const View& q) { return q.dtype == DType::kBF16 && HasNativeBf16Products(); }

}  // namespace

int64_t AttentionForwardFloats(CpuContext& context, const AttentionForwardArgs& args) {
  if (Native(args.q)) return AttentionForwardBf16Floats(context, args);
  return ShapeOf(args.q).forward_floats() * context.threads();
}
int64_t AttentionBackwardFloats(CpuContext& context, const AttentionBackwardArgs& args) {
  if (Native(args.q)) return AttentionBackwardBf16Floats(context, args);
  return ShapeOf(args.q).backward_floats() * context.threads();
}

void AttentionForward(CpuContext& context, const AttentionForwardArgs& args) {
  if (Native(args.q)) return AttentionForwardBf16(context, args);
  const int64_t per_thread = ShapeOf(args.q).forward_floats();
  float* const scratch = context.Scratch(static_cast<size_t>(per_thread * context.threads()));
  ParallelFor(context.threads(), args.q.shape[0] * args.q.shape[2], [&](int64_t task, int thread) {
    float* const own = scratch + thread * per_thread;
    args.q.dtype == DType::kBF16 ? HWY_DYNAMIC_DISPATCH(ForwardTaskBf16)(args, task, own)
                                 : HWY_DYNAMIC_DISPATCH(ForwardTaskF32)(args, task, own);
  });
}

void AttentionBackward(CpuContext& context, const AttentionBackwardArgs& args) {
  if (Native(args.q)) return AttentionBackwardBf16(context, args);
  const int64_t per_thread = ShapeOf(args.q).backward_floats();
  float* const scratch = context.Scratch(static_cast<size_t>(per_thread * context.threads()));
  ParallelFor(context.threads(), args.q.shape[0] * args.q.shape[2], [&](int64_t task, int thread) {
    float* const own = scratch + thread * per_thread;
    args.q.dtype == DType::kBF16 ? HWY_DYNAMIC_DISPATCH(BackwardTaskBf16)(args, task, own)
                                 : HWY_DYNAMIC_DISPATCH(BackwardTaskF32)(args, task, own);
  });
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
