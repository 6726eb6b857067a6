#pragma once
// oneDNN, seen from the rest of kernels/cpu: single-precision matrix products and the instruction-set limit.
// onednn.cc is the only file that includes dnnl.h; its calls exist in oneDNN 2.6 and 3.x alike.

#include <cstdint>
#include <string>
#include <string_view>

#include "normlab/kernels/device.h"

namespace normlab::cpu {

// Row-major c[m,n] = op(a)[m,k] op(b)[k,n] + beta c. With transpose_a, a is stored [k,m]; likewise b [n,k].
struct Gemm {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float beta = 0;
  float* c = nullptr;
  int64_t ldc = 0;
};

// In the calling thread alone, inside or outside of a parallel region.
void RunGemm(const Gemm& gemm);

// On up to `threads` threads of oneDNN's own choice. The bits do not depend on the count as long as oneDNN
// does not split k between threads: see matmul.cc for when that holds.
void RunGemmThreaded(const Gemm& gemm, int threads);

// Whether it runs AVX-512 code.
bool OneDnnHasAvx512();

// Smallest seconds of c[m,n] = a[m,k] b[k,n] alone, in the fastest of oneDNN's forms: in fp32 sgemm with a or
// b stored transposed or not, in bf16 the matmul primitive with b stored transposed or not, and in both with
// b packed in the layout of its choice (packing not counted). [onednn_timing.cc]
double FastestProductSeconds(const ProductShape& shape, int threads);

// Limits oneDNN to an instruction set by normlab's name for it. Only works before oneDNN's first product;
// returns false where it was too late.
bool LimitOneDnnIsa(std::string_view isa);

std::string OneDnnVersion();  // "2.6.3"

}  // namespace normlab::cpu
