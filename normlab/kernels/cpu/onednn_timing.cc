// Times oneDNN's own products, for the bound that a training step is held against. Not on any training path.

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "normlab/base/memory.h"
#include "normlab/kernels/cpu/onednn.h"

namespace normlab::cpu {
namespace {

// The fastest of the timed calls after one to warm up: at least 3, and until 30 ms are spent. The minimum,
// since a bound is what the machine can do: an interruption only ever adds time.
double MinSeconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  double best = 1e300, spent = 0;
  for (int n = 0; n < 3 || (spent < 0.03 && n < 200); ++n) {
    const auto start = Clock::now();
    call();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

void Check(dnnl_status_t status) {
  if (status != dnnl_success) throw std::runtime_error("oneDNN failed");
}

enum class Form { kPlain, kTransposed, kPacked };

// The matmul primitive, with b plain, stored transposed, or in the layout that oneDNN likes best; Error where
// oneDNN has none. `b` holds k * n elements; a packed one is the product's own.
class LibraryProduct {
 public:
  LibraryProduct(DType dtype, int64_t m, int64_t n, int64_t k, Form form, void* a, void* b, void* c) {
    const dnnl_dims_t a_dims = {m, k}, b_dims = {k, n}, c_dims = {m, n};
    const dnnl_data_type_t type = dtype == DType::kBF16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_format_tag_t b_tag = form == Form::kPlain        ? dnnl_ab
                                    : form == Form::kTransposed ? dnnl_ba
                                                                : dnnl_format_tag_any;
    Check(dnnl_engine_create(&engine_, dnnl_cpu, 0));
    Check(dnnl_stream_create(&stream_, engine_, dnnl_stream_default_flags));
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_t a_md, b_md, c_md;
    Check(dnnl_memory_desc_create_with_tag(&a_md, 2, a_dims, type, dnnl_ab));
    Check(dnnl_memory_desc_create_with_tag(&b_md, 2, b_dims, type, b_tag));
    Check(dnnl_memory_desc_create_with_tag(&c_md, 2, c_dims, type, dnnl_ab));
    Check(dnnl_matmul_primitive_desc_create(&description_, engine_, a_md, b_md, nullptr, c_md, nullptr));
    const const_dnnl_memory_desc_t chosen =
        dnnl_primitive_desc_query_md(description_, dnnl_query_weights_md, 0);
    TakeB(dnnl_memory_desc_get_size(chosen), form, b);
    Check(dnnl_memory_create(&memory_[0], a_md, engine_, a));
    Check(dnnl_memory_create(&memory_[1], chosen, engine_, b_address_));
    Check(dnnl_memory_create(&memory_[2], c_md, engine_, c));
    for (dnnl_memory_desc_t md : {a_md, b_md, c_md}) dnnl_memory_desc_destroy(md);
#else
    dnnl_memory_desc_t a_md, b_md, c_md;
    Check(dnnl_memory_desc_init_by_tag(&a_md, 2, a_dims, type, dnnl_ab));
    Check(dnnl_memory_desc_init_by_tag(&b_md, 2, b_dims, type, b_tag));
    Check(dnnl_memory_desc_init_by_tag(&c_md, 2, c_dims, type, dnnl_ab));
    dnnl_matmul_desc_t matmul;
    Check(dnnl_matmul_desc_init(&matmul, &a_md, &b_md, nullptr, &c_md));
    Check(dnnl_primitive_desc_create(&description_, &matmul, nullptr, engine_, nullptr));
    const dnnl_memory_desc_t* chosen = dnnl_primitive_desc_query_md(description_, dnnl_query_weights_md, 0);
    TakeB(dnnl_memory_desc_get_size(chosen), form, b);
    Check(dnnl_memory_create(&memory_[0], &a_md, engine_, a));
    Check(dnnl_memory_create(&memory_[1], chosen, engine_, b_address_));
    Check(dnnl_memory_create(&memory_[2], &c_md, engine_, c));
#endif
    Check(dnnl_primitive_create(&primitive_, description_));
  }
  ~LibraryProduct() {
    dnnl_primitive_destroy(primitive_);
    dnnl_primitive_desc_destroy(description_);
    for (dnnl_memory_t memory : memory_) dnnl_memory_destroy(memory);
    dnnl_stream_destroy(stream_);
    dnnl_engine_destroy(engine_);
  }
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  void Run() {
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, memory_[0]}, {DNNL_ARG_WEIGHTS, memory_[1]}, {DNNL_ARG_DST, memory_[2]}};
    Check(dnnl_primitive_execute(primitive_, stream_, 3, args));
    Check(dnnl_stream_wait(stream_));
  }

 private:
  void TakeB(size_t bytes, Form form, void* given) {
    b_address_ = given;
    if (form != Form::kPacked) return;
    packed_ = AlignedMemory(bytes);
    b_address_ = packed_.data();
    // Halves, or as bf16 the same number twice.
    std::fill_n(static_cast<uint32_t*>(b_address_), bytes / sizeof(uint32_t), 0x3f003f00u);
  }

  dnnl_engine_t engine_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  dnnl_primitive_desc_t description_ = nullptr;
  dnnl_primitive_t primitive_ = nullptr;
  dnnl_memory_t memory_[3] = {};
  AlignedMemory packed_;
  void* b_address_ = nullptr;
};

}  // namespace

double FastestProductSeconds(const ProductShape& shape, int threads) {
  const auto [m, n, k, one_of_many, dtype] = shape;
  const auto elements = [dtype = dtype](int64_t rows, int64_t cols) {
    AlignedMemory memory(static_cast<size_t>(rows * cols) * SizeOf(dtype));
    std::fill_n(static_cast<uint16_t*>(memory.data()), memory.bytes() / sizeof(uint16_t), uint16_t{0x3f00});
    return memory;
  };
  const AlignedMemory a = elements(m, k), b = elements(k, n), c = elements(m, n);

  double best = 1e300;
  if (dtype == DType::kF32) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        const Gemm gemm{.transpose_a = transpose_a,
                        .transpose_b = transpose_b,
                        .m = m,
                        .n = n,
                        .k = k,
                        .a = static_cast<const float*>(a.data()),
                        .lda = transpose_a ? m : k,
                        .b = static_cast<const float*>(b.data()),
                        .ldb = transpose_b ? k : n,
                        .c = static_cast<float*>(c.data()),
                        .ldc = n};
        best = std::min(best, MinSeconds([&] { RunGemmThreaded(gemm, threads); }));
      }
    }
  }
  const int saved = omp_get_max_threads();
  omp_set_num_threads(threads);
  for (const Form form : {Form::kPlain, Form::kTransposed, Form::kPacked}) {
    if (dtype == DType::kF32 && form != Form::kPacked) continue;  // sgemm has those
    try {
      LibraryProduct product(dtype, m, n, k, form, a.data(), b.data(), c.data());
      best = std::min(best, MinSeconds([&] { product.Run(); }));
    } catch (const std::runtime_error&) {
      // No such primitive here: the other forms stand.
    }
  }
  omp_set_num_threads(saved);
  return best;
}

}  // namespace normlab::cpu
