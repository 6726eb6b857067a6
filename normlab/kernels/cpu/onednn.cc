#include "normlab/kernels/cpu/onednn.h"

#include <dnnl.h>
#include <omp.h>

#include <optional>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/threads.h"

namespace normlab::cpu {
namespace {

// oneDNN takes its thread count from OpenMP's setting of the calling thread.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) : saved_(omp_get_max_threads()) {
    if (saved_ != threads) omp_set_num_threads(threads);
  }
  ~OmpThreads() { omp_set_num_threads(saved_); }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int saved_;
};

void Call(const Gemm& g) {
  const dnnl_status_t status = dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k,
                                          1.0f, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  if (status != dnnl_success)
    Fail("oneDNN refused a product of {}x{}x{} (status {})", g.m, g.n, g.k, static_cast<int>(status));
}

}  // namespace

void RunGemm(const Gemm& gemm) {
  const OmpThreads one(1);
  Call(gemm);
}

void RunGemmThreaded(const Gemm& gemm, int threads) {
  const OmpThreads team(threads);
  // oneDNN's threads are the pool's, but they do not pass through ParallelFor: give each the same treatment
  // of denormals, or the bits would depend on which thread a block lands.
  std::vector<std::optional<FlushDenormals>> flush(static_cast<size_t>(threads));
#pragma omp parallel num_threads(threads)
  flush[static_cast<size_t>(omp_get_thread_num())].emplace();
  Call(gemm);
#pragma omp parallel num_threads(threads)
  flush[static_cast<size_t>(omp_get_thread_num())].reset();
}

bool OneDnnHasAvx512() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

bool LimitOneDnnIsa(std::string_view isa) {
  dnnl_cpu_isa_t limit = dnnl_cpu_isa_sse41;
  if (isa == "avx2") limit = dnnl_cpu_isa_avx2;
  if (isa == "avx512" || isa == "avx512_dl") limit = dnnl_cpu_isa_avx512_core;
  return dnnl_set_max_cpu_isa(limit) == dnnl_success;
}

std::string OneDnnVersion() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}

}  // namespace normlab::cpu
