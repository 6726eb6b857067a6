#pragma once
// bfloat16 matrix products by oneDNN's matmul primitive: bf16 operands, fp32 accumulation, a bf16 or fp32
// result. Primitives are made once for each shape and kept; a call allocates nothing.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "normlab/base/bfloat16.h"
#include "normlab/base/dtype.h"

namespace normlab::cpu {

// What bf16 products run on under the current limit. Where the processor has no instructions for them, oneDNN
// refuses them (AVX2) or takes five times as long as in fp32 (plain AVX-512), and is not asked.
enum class Bf16Instructions { kNone, kAvx512Bf16, kAmx };
Bf16Instructions NativeBf16();
inline bool HasNativeBf16Products() { return NativeBf16() != Bf16Instructions::kNone; }

// Row-major c[m,n] = op(a)[m,k] op(b)[k,n] (+ bias[n]) (+ c). With transpose_a, a is stored [k,m]; likewise
// b [n,k].
struct Bf16Gemm {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  const BFloat16* a = nullptr;
  int64_t lda = 0;
  const BFloat16* b = nullptr;
  int64_t ldb = 0;
  const float* bias = nullptr;
  DType c_type = DType::kBF16;  // or kF32
  void* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
};

// The products that a context has run so far.
class Bf16Products {
 public:
  class Product;  // one shape; runs on one thread per call, on up to `threads` at once

  explicit Bf16Products(int threads);
  ~Bf16Products();
  Bf16Products(Bf16Products&&) noexcept;
  Bf16Products& operator=(Bf16Products&&) noexcept;

  // The product of these sizes, strides and types (addresses do not matter). Not to be called inside of
  // ParallelFor.
  const Product& Prepare(const Bf16Gemm& gemm);

  // Bytes of scratch memory, 64-byte aligned, that a call of Run needs.
  static size_t ScratchBytes(const Product& product);

  // In the calling thread alone. `thread` is its slot.
  static void Run(const Product& product, const Bf16Gemm& gemm, int thread, void* scratch);

 private:
  using Key = std::tuple<bool, bool, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, DType, bool>;

  int threads_;
  std::map<Key, std::unique_ptr<Product>> products_;
};

}  // namespace normlab::cpu
