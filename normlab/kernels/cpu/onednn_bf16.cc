#include "normlab/kernels/cpu/onednn_bf16.h"

#include <dnnl.h>
#include <omp.h>

#include <array>
#include <vector>

#include "normlab/base/error.h"

namespace normlab::cpu {
namespace {

void Check(dnnl_status_t status, const Bf16Gemm& g) {
  if (status != dnnl_success)
    Fail("oneDNN refused a bf16 product of {}x{}x{} (status {})", g.m, g.n, g.k, static_cast<int>(status));
}

// The engine and the stream of every product: they hold no state of ours.
struct Engine {
  dnnl_engine_t engine = nullptr;
  dnnl_stream_t stream = nullptr;
  Engine() {
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
      Fail("oneDNN has no CPU engine");
  }
};
const Engine& TheEngine() {
  static const Engine engine;
  return engine;
}

// A description of a matrix, owned: oneDNN 3 keeps them behind pointers.
class Layout {
 public:
  Layout(const Bf16Gemm& gemm, std::array<int64_t, 2> shape, DType dtype, std::array<int64_t, 2> strides) {
    dnnl_dims_t dims = {shape[0], shape[1]}, steps = {strides[0], strides[1]};
    const dnnl_data_type_t type = dtype == DType::kBF16 ? dnnl_bf16 : dnnl_f32;
#if DNNL_VERSION_MAJOR >= 3
    Check(dnnl_memory_desc_create_with_strides(&md_, 2, dims, type, steps), gemm);
#else
    Check(dnnl_memory_desc_init_by_strides(&md_, 2, dims, type, steps), gemm);
#endif
  }
#if DNNL_VERSION_MAJOR >= 3
  ~Layout() { dnnl_memory_desc_destroy(md_); }
  const_dnnl_memory_desc_t get() const { return md_; }
#else
  const dnnl_memory_desc_t* get() const { return &md_; }
#endif
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

 private:
  dnnl_memory_desc_t md_;
};

// oneDNN takes its number of threads from OpenMP's setting, some implementations when a primitive is
// described and some when it runs.
class OneThread {
 public:
  OneThread() : saved_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(saved_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int saved_;
};

}  // namespace

class Bf16Products::Product {
 public:
  Product(const Bf16Gemm& g, int threads) {
    const OneThread one;
    const Layout a(g, {g.m, g.k}, DType::kBF16, Strides(g.transpose_a, g.lda));
    const Layout b(g, {g.k, g.n}, DType::kBF16, Strides(g.transpose_b, g.ldb));
    const Layout bias(g, {1, g.n}, DType::kF32, {g.n, 1});
    const Layout c(g, {g.m, g.n}, g.c_type, {g.ldc, 1});

    dnnl_primitive_attr_t attributes = nullptr;
    dnnl_post_ops_t after = nullptr;
    Check(dnnl_primitive_attr_create(&attributes), g);
    Check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), g);
    Check(dnnl_post_ops_create(&after), g);
#if DNNL_VERSION_MAJOR >= 3
    if (g.accumulate) Check(dnnl_post_ops_append_sum(after, 1.0f, 0, dnnl_data_type_undef), g);
#else
    if (g.accumulate) Check(dnnl_post_ops_append_sum(after, 1.0f), g);
#endif
    Check(dnnl_primitive_attr_set_post_ops(attributes, after), g);
    dnnl_post_ops_destroy(after);

    const auto* const bias_or_none = g.bias != nullptr ? bias.get() : nullptr;
#if DNNL_VERSION_MAJOR >= 3
    const dnnl_status_t status = dnnl_matmul_primitive_desc_create(
        &description_, TheEngine().engine, a.get(), b.get(), bias_or_none, c.get(), attributes);
#else
    dnnl_matmul_desc_t matmul;
    Check(dnnl_matmul_desc_init(&matmul, a.get(), b.get(), bias_or_none, c.get()), g);
    const dnnl_status_t status =
        dnnl_primitive_desc_create(&description_, &matmul, attributes, TheEngine().engine, nullptr);
#endif
    dnnl_primitive_attr_destroy(attributes);
    Check(status, g);
    Check(dnnl_primitive_create(&primitive_, description_), g);
    const auto* const scratch = dnnl_primitive_desc_query_md(description_, dnnl_query_scratchpad_md, 0);
    scratch_bytes_ = dnnl_memory_desc_get_size(scratch);

    slots_.resize(static_cast<size_t>(threads));
    for (Slot& slot : slots_) {
      const auto add = [&](int argument, const auto* layout) {
        dnnl_memory_t memory = nullptr;
        Check(dnnl_memory_create(&memory, layout, TheEngine().engine, DNNL_MEMORY_NONE), g);
        slot.arguments[slot.count++] = {argument, memory};
      };
      add(DNNL_ARG_SRC, a.get());
      add(DNNL_ARG_WEIGHTS, b.get());
      add(DNNL_ARG_DST, c.get());
      add(DNNL_ARG_SCRATCHPAD, scratch);
      if (g.bias != nullptr) add(DNNL_ARG_BIAS, bias.get());
    }
  }
  ~Product() {
    for (Slot& slot : slots_)
      for (int i = 0; i < slot.count; ++i) dnnl_memory_destroy(slot.arguments[i].memory);
    dnnl_primitive_destroy(primitive_);
    dnnl_primitive_desc_destroy(description_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  size_t scratch_bytes() const { return scratch_bytes_; }

  void Run(const Bf16Gemm& g, int thread, void* scratch) const {
    const OneThread one;
    const Slot& slot = slots_[static_cast<size_t>(thread)];
    const void* const addresses[] = {g.a, g.b, g.c, scratch, g.bias};
    for (int i = 0; i < slot.count; ++i)
      Check(dnnl_memory_set_data_handle(slot.arguments[i].memory, const_cast<void*>(addresses[i])), g);
    Check(dnnl_primitive_execute(primitive_, TheEngine().stream, slot.count, slot.arguments), g);
  }

 private:
  // What one thread passes: memory objects whose addresses change from call to call.
  struct Slot {
    dnnl_exec_arg_t arguments[5] = {};
    int count = 0;
  };

  static std::array<int64_t, 2> Strides(bool transposed, int64_t ld) {
    return transposed ? std::array<int64_t, 2>{1, ld} : std::array<int64_t, 2>{ld, 1};
  }

  dnnl_primitive_desc_t description_ = nullptr;
  dnnl_primitive_t primitive_ = nullptr;
  size_t scratch_bytes_ = 0;
  std::vector<Slot> slots_;
};

Bf16Instructions NativeBf16() {
  // Sets of bits, one for each extension.
  const int isa = dnnl_get_effective_cpu_isa();
  const auto has = [isa](int wanted) { return (isa & wanted) == wanted; };
  if (has(dnnl_cpu_isa_avx512_core_amx)) return Bf16Instructions::kAmx;
  if (has(dnnl_cpu_isa_avx512_core_bf16)) return Bf16Instructions::kAvx512Bf16;
  return Bf16Instructions::kNone;
}

Bf16Products::Bf16Products(int threads) : threads_(threads) {}
Bf16Products::~Bf16Products() = default;
Bf16Products::Bf16Products(Bf16Products&&) noexcept = default;
Bf16Products& Bf16Products::operator=(Bf16Products&&) noexcept = default;

const Bf16Products::Product& Bf16Products::Prepare(const Bf16Gemm& g) {
  const Key key(g.transpose_a, g.transpose_b, g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.bias != nullptr, g.c_type,
                g.accumulate);
  std::unique_ptr<Product>& product = products_[key];
  if (product == nullptr) product = std::make_unique<Product>(g, threads_);
  return *product;
}

size_t Bf16Products::ScratchBytes(const Product& product) { return product.scratch_bytes(); }

void Bf16Products::Run(const Product& product, const Bf16Gemm& gemm, int thread, void* scratch) {
  product.Run(gemm, thread, scratch);
}

}  // namespace normlab::cpu
