#pragma once
// The one interface between the model and whatever computes it. model/ and train/ hold Views of device memory
// and call these operations; operations run in the order of the calls and return nothing; ReadBack is the
// only point where the host waits for a value. Two implementations: kernels/reference (float64,
// single-threaded, plain loops: the judge of all others) and kernels/cpu (fp32, threads, SIMD, oneDNN).
//
// Conventions, for every operation:
//   * inputs first, outputs last in each struct; a view with data == nullptr is an absent optional.
//   * "=" outputs are overwritten, "+=" outputs (where `accumulate` is set) are added to. No operation needs
//   its
//     outputs cleared beforehand.
//   * outputs do not overlap inputs unless a field says "may alias".
//   * the result has the same bits for any number of threads.
//   * a wrong shape, stride or dtype throws std::logic_error: it is a bug of the caller, not a user's
//   mistake.
// The letters: R rows (batch * time), C width, B batch, T time, H heads, D head width, V vocabulary.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/view.h"
#include "normlab/norms/norm_spec.h"

namespace normlab {

// c[m,n] = a[m,k] b[k,n], with an epilogue. Transposition is in the strides: any matrix may have either its
// rows or its columns adjacent, c always has its columns adjacent.
//
// Storage types. a and b are both of the compute dtype or, on a CPU, both bf16; sums are fp32 either way. c
// of bf16 operands is bf16 or f32; z and gelu are of c's type; bias is of the compute dtype.
struct MatMulArgs {
  enum class Epilogue {
    kNone,
    kBias,          // c += bias[n]
    kBiasGelu,      // c = z = product + bias (bias may be absent); gelu = GELU(z)
    kGeluBackward,  // c = product * GELU'(z), z[m,n] as saved by kBiasGelu
  };
  View a, b;
  Epilogue epilogue = Epilogue::kNone;
  View bias;  // [n]
  View z;     // [m,n], kGeluBackward
  View c;
  View gelu;                // [m,n] =, kBiasGelu
  bool accumulate = false;  // c += product; only with kNone
};

// Normalizes the rows of x [rows, cols], with the residual addition that the place in the block asks for.
//   residual absent:  y = norm(x)
//   residual given:   sum = residual + x;  y = norm(sum)
// `sum` may alias x or residual, or be absent where nobody reads it later (Backward does, except for
// no_norm). y may alias x when there is no residual, and may alias sum for an identity norm only.
//
// Storage types. Parameters and `saved` are of the compute dtype. On a CPU x, residual, sum and y are all
// f32, all bf16 or all f16; or, around an fp32 residual stream, x and y are of one 16-bit type and residual
// and sum f32; or x is f32 and y of a 16-bit type, without a residual. Arithmetic is fp32, each result is
// rounded once, to nearest even. What is normalized is the sum as it is stored (in the residual's type, also
// where it is absent), which is what Backward sees.
struct NormForwardArgs {
  NormSpec spec;
  View x;             // [rows, cols]
  View residual;      // [rows, cols], optional
  View weight, bias;  // [cols]; absent where the spec has none
  View alpha;         // [1]; absent where the norm has none
  View sum;           // [rows, cols] =, with residual
  View y;             // [rows, cols] =
  View saved;         // flat, NormSavedElements(...) of the compute dtype, =
};

// Gradient of norm(x), x being the tensor that was normalized (the sum, where a residual was added).
//   dx = J^T dy   or, with accumulate_dx,   dx += J^T dy  (the gradient sum of the residual stream).
// dx may alias dy (not with accumulate_dx) or x. dweight, dbias, dalpha: = or, with accumulate_dparams, +=.
// dx_low = dx as it is after the accumulation, rounded to a 16-bit type: what the next matrix product reads.
//
// Storage types: x, dy and dx are all f32, all bf16 or all f16; or x and dx are f32 and dy is of a 16-bit
// type. dx_low goes with any fp32 dx, and is of dy's type where that has 16 bits. dy's type stands for y's
// where NormSpec::cast asks for it.
struct NormBackwardArgs {
  NormSpec spec;
  View x, dy;   // [rows, cols]
  View weight;  // [cols]; absent where the spec has none
  View alpha;   // [1]; absent where the norm has none
  View saved;
  View dx;              // [rows, cols]
  View dx_low;          // [rows, cols] =, optional
  View dweight, dbias;  // [cols]; absent where the spec has none
  View dalpha;          // [1]; absent where the norm has none
  bool accumulate_dx = false;
  bool accumulate_dparams = false;
};

// Storage types of attention, embeddings and cross-entropy: activations and their gradients are of the
// compute dtype or, on a CPU, bf16; all views of an operation alike, where nothing else is said.

// Causal softmax attention per head: o = softmax(mask(q k^T) / sqrt(D)) v. Views are [B, T, H, D], D
// adjacent, other strides free, so that q, k and v may be thirds of one matrix. Never holds a T x T matrix
// per head at once.
struct AttentionForwardArgs {
  View q, k, v;
  View o;    // [B, T, H, D] =
  View lse;  // [B, H, T] =: log of the sum of exponentials of each row of scores, for Backward; compute dtype
};

struct AttentionBackwardArgs {
  View q, k, v, o, lse;
  View d_o;         // [B, T, H, D]
  View dq, dk, dv;  // =
};

// h[r] = token[ids[r]] + position[r % T].  ids [B, T] int32. The tables, and their gradients, are of the
// compute dtype.
struct EmbeddingForwardArgs {
  View ids, token, position;  // [B,T], [V,C], [>= T, C]
  View h;                     // [B*T, C] =
};

// dtoken[ids[r]] += dh[r], dposition[t] += sum over B. Without accumulate both start from zero: all V rows of
// dtoken and all rows of dposition are written.
struct EmbeddingBackwardArgs {
  View ids, dh;
  View dtoken, dposition;
  bool accumulate_token = false;
  bool accumulate_position = false;
};

// Cross-entropy of softmax(logits) in nats, row by row. A target of -1 is not counted: loss 0, gradient 0.
//   losses[r] = logsumexp(logits[r]) - logits[r][target]      dlogits = (softmax - onehot) * scale
struct CrossEntropyArgs {
  View logits;       // [R, V]
  View targets;      // [R] int32
  double scale = 0;  // of the gradient: 1 / (all counted tokens of the step)
  View losses;       // [R] =, compute dtype
  View dlogits;      // [R, V] =, may alias logits; absent for evaluation
};

// One pass of AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2, decay times the learning
// rate):
//   g = gradient * gradient_scale;  m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2
//   w -= lr * (decay w + (m / (1-beta1^t)) / (sqrt(v / (1-beta2^t)) + eps)),   decay = 0 for elements >=
//   decayed
struct AdamWArgs {
  View gradient;        // flat
  int64_t decayed = 0;  // elements [0, decayed) decay
  int64_t step = 1;     // t, from 1
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, gradient_scale = 1;
  View weight, m, v;  // flat, updated in place
  // What the matrix products read of the weights: low[i] = weight[low_begin + i], rounded to bf16. Optional.
  View low;
  int64_t low_begin = 0;  // a multiple of 16
};

// How an implementation of a norm stands on a device: for `list`, and for the messages of a refusal.
struct NormImplementationStatus {
  NormImplementation implementation;
  std::string name;                    // "fused"
  std::optional<std::string> refusal;  // why it does not take this spec, width and dtype; nothing if it does
};

// c[m,n] = a[m,k] b[k,n]. `one_of_many`: so many such products are independent that each may run on one
// thread (the heads of attention); its seconds are then divided by the number of threads.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  bool one_of_many = false;
  DType operands = DType::kF32;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;  // "cpu", "reference"
  virtual DType compute_dtype() const = 0;    // of weights, moments, gradients and statistics
  // The type in which activations that are wanted as `wanted` are stored: what of 16 bits the device has.
  virtual DType StorageType(DType wanted) const = 0;
  virtual int threads() const { return 1; }

  // ---- Memory. Addresses are 64-byte aligned. Peak and current bytes count what was allocated here.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) = 0;
  virtual size_t allocated_bytes() const = 0;
  virtual size_t peak_bytes() const = 0;
  virtual void Upload(std::span<const double> values, const View& to) = 0;   // converts; any strides
  virtual void UploadIds(std::span<const int32_t> ids, const View& to) = 0;  // dense i32
  virtual void ReadBack(const View& from, std::span<double> values) = 0;     // converts; any strides; waits
  virtual void Fill(const View& to, double value) = 0;
  virtual void Copy(const View& from, const View& to) = 0;  // same shape, any strides

  // ---- Operations.
  virtual void MatMul(const MatMulArgs& args) = 0;

  // dbias[n] = or += the sum of the rows of dy [m, n].
  virtual void BiasGradient(const View& dy, const View& dbias, bool accumulate) = 0;

  virtual void NormForward(const NormForwardArgs& args) = 0;
  virtual void NormBackward(const NormBackwardArgs& args) = 0;
  // Elements of the compute dtype that Forward saves for Backward, for this spec and shape.
  virtual int64_t NormSavedElements(const NormSpec& spec, int64_t rows, int64_t cols) const = 0;
  // The implementation that will run for the spec; throws Error with the reason where a named one refuses.
  virtual NormImplementation ResolveNorm(const NormSpec& spec, int64_t cols) const = 0;
  // Every implementation of the kind, in the order in which "fastest" tries them.
  virtual std::vector<NormImplementationStatus> NormImplementations(const NormSpec& spec,
                                                                    int64_t cols) const = 0;

  virtual void AttentionForward(const AttentionForwardArgs& args) = 0;
  virtual void AttentionBackward(const AttentionBackwardArgs& args) = 0;

  virtual void EmbeddingForward(const EmbeddingForwardArgs& args) = 0;
  virtual void EmbeddingBackward(const EmbeddingBackwardArgs& args) = 0;

  virtual void CrossEntropy(const CrossEntropyArgs& args) = 0;

  virtual void AdamW(const AdamWArgs& args) = 0;

  // Seconds of a plain product, run alone in the fastest form that the device's library has (any orientation
  // of the operands, plain or packed b): what the bound on a step's time is made of. Nothing where there is
  // no such library. Takes some ten times as long as the product.
  virtual std::optional<double> FastestProductSeconds(const ProductShape& shape) {
    (void)shape;
    return std::nullopt;
  }

  // to[0] = sum of squares of a flat view, in float64 whatever the dtype of x. `to` is f64 [1].
  virtual void SumSquares(const View& x, const View& to) = 0;
};

}  // namespace normlab
