#include "normlab/kernels/cpu/onednn_norm.h"

#include <dnnl.h>
#include <omp.h>

#include <array>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/kernels/cpu/onednn.h"

namespace normlab::cpu {
namespace {

void Check(dnnl_status_t status) {
  if (status != dnnl_success)
    Fail("oneDNN refused a layer normalization (status {})", static_cast<int>(status));
}

// oneDNN takes its thread count from OpenMP's setting of the calling thread, when it plans and when it runs.
class OneThread {
 public:
  OneThread() : saved_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(saved_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int saved_;
};

// A memory descriptor in both versions' spelling: oneDNN 3 has handles, 2 has structs.
class Layout {
 public:
  Layout(std::vector<int64_t> dims, dnnl_data_type_t type) {
    const auto rank = static_cast<int>(dims.size());
    const dnnl_format_tag_t tag = rank == 1 ? dnnl_a : dnnl_ab;
#if DNNL_VERSION_MAJOR >= 3
    Check(dnnl_memory_desc_create_with_tag(&desc_, rank, dims.data(), type, tag));
#else
    Check(dnnl_memory_desc_init_by_tag(&desc_, rank, dims.data(), type, tag));
#endif
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
#if DNNL_VERSION_MAJOR >= 3
  ~Layout() { dnnl_memory_desc_destroy(desc_); }
  const_dnnl_memory_desc_t get() const { return desc_; }
#else
  const dnnl_memory_desc_t* get() const { return &desc_; }
#endif

 private:
  dnnl_memory_desc_t desc_;
};

// Arguments of one execution, freed with it.
class Arguments {
 public:
  explicit Arguments(dnnl_engine_t engine) : engine_(engine) {}
  ~Arguments() {
    for (size_t i = 0; i < count_; ++i) dnnl_memory_destroy(arguments_[i].memory);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  template <class Desc>
  void Add(int name, Desc desc, const void* data) {
    dnnl_memory_t memory = nullptr;
    Check(dnnl_memory_create(&memory, desc, engine_, const_cast<void*>(data)));
    arguments_[count_++] = {name, memory};
  }
  void Execute(dnnl_primitive_t primitive, dnnl_stream_t stream) const {
    Check(dnnl_primitive_execute(primitive, stream, static_cast<int>(count_), arguments_.data()));
    Check(dnnl_stream_wait(stream));
  }

 private:
  dnnl_engine_t engine_;
  std::array<dnnl_exec_arg_t, 12> arguments_{};
  size_t count_ = 0;
};

}  // namespace

struct OneDnnLayerNorm::Handles {
  Handles(int64_t rows, int64_t cols, DType dtype)
      : matrix({rows, cols}, dtype == DType::kBF16 ? dnnl_bf16 : dnnl_f32),
        per_row({rows}, dnnl_f32),
        per_column({cols}, dnnl_f32) {}
  ~Handles() {
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(description);
    dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attributes);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  Layout matrix, per_row, per_column;
  dnnl_engine_t engine = nullptr;
  dnnl_stream_t stream = nullptr;
  dnnl_primitive_attr_t attributes = nullptr;
  dnnl_primitive_desc_t hint = nullptr, description = nullptr;  // backward is planned with forward's plan
  dnnl_primitive_t primitive = nullptr;
};

OneDnnLayerNorm::OneDnnLayerNorm(bool backward, int64_t rows, int64_t cols, DType dtype, float eps)
    : handles_(std::make_unique<Handles>(rows, cols, dtype)) {
  const OneThread one;
  Handles& h = *handles_;
  const unsigned flags = dnnl_use_scale | dnnl_use_shift;
  Check(dnnl_engine_create(&h.engine, dnnl_cpu, 0));
  Check(dnnl_stream_create(&h.stream, h.engine, dnnl_stream_default_flags));
  Check(dnnl_primitive_attr_create(&h.attributes));
  Check(dnnl_primitive_attr_set_scratchpad_mode(h.attributes, dnnl_scratchpad_mode_user));
  dnnl_primitive_desc_t& forward = backward ? h.hint : h.description;
#if DNNL_VERSION_MAJOR >= 3
  Check(dnnl_layer_normalization_forward_primitive_desc_create(&forward, h.engine, dnnl_forward_training,
                                                               h.matrix.get(), h.matrix.get(),
                                                               h.per_row.get(), eps, flags, h.attributes));
  if (backward)
    Check(dnnl_layer_normalization_backward_primitive_desc_create(
        &h.description, h.engine, dnnl_backward, h.matrix.get(), h.matrix.get(), h.matrix.get(),
        h.per_row.get(), eps, flags, h.hint, h.attributes));
#else
  dnnl_layer_normalization_desc_t desc;
  Check(dnnl_layer_normalization_forward_desc_init(&desc, dnnl_forward_training, h.matrix.get(),
                                                   h.per_row.get(), eps, flags));
  Check(dnnl_primitive_desc_create(&forward, &desc, h.attributes, h.engine, nullptr));
  if (backward) {
    Check(dnnl_layer_normalization_backward_desc_init(&desc, dnnl_backward, h.matrix.get(), h.matrix.get(),
                                                      h.per_row.get(), eps, flags));
    Check(dnnl_primitive_desc_create(&h.description, &desc, h.attributes, h.engine, h.hint));
  }
#endif
  Check(dnnl_primitive_create(&h.primitive, h.description));
}

OneDnnLayerNorm::~OneDnnLayerNorm() = default;

bool OneDnnLayerNorm::Takes(DType dtype) {
  return dtype == DType::kF32 || (dtype == DType::kBF16 && OneDnnHasAvx512());
}

size_t OneDnnLayerNorm::scratch_bytes() const {
  return dnnl_memory_desc_get_size(
      dnnl_primitive_desc_query_md(handles_->description, dnnl_query_scratchpad_md, 0));
}

void OneDnnLayerNorm::Forward(const void* x, const float* gain, const float* bias, void* y, float* mean,
                              float* variance, void* scratch) const {
  const OneThread one;
  const Handles& h = *handles_;
  Arguments arguments(h.engine);
  arguments.Add(DNNL_ARG_SRC, h.matrix.get(), x);
  arguments.Add(DNNL_ARG_SCALE, h.per_column.get(), gain);
  arguments.Add(DNNL_ARG_SHIFT, h.per_column.get(), bias);
  arguments.Add(DNNL_ARG_DST, h.matrix.get(), y);
  arguments.Add(DNNL_ARG_MEAN, h.per_row.get(), mean);
  arguments.Add(DNNL_ARG_VARIANCE, h.per_row.get(), variance);
  arguments.Add(DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(h.description, dnnl_query_scratchpad_md, 0),
                scratch);
  arguments.Execute(h.primitive, h.stream);
}

void OneDnnLayerNorm::Backward(const void* x, const void* dy, const float* gain, const float* bias,
                               const float* mean, const float* variance, void* dx, float* dgain, float* dbias,
                               void* scratch) const {
  const OneThread one;
  const Handles& h = *handles_;
  Arguments arguments(h.engine);
  arguments.Add(DNNL_ARG_SRC, h.matrix.get(), x);
  arguments.Add(DNNL_ARG_DIFF_DST, h.matrix.get(), dy);
  arguments.Add(DNNL_ARG_SCALE, h.per_column.get(), gain);
  arguments.Add(DNNL_ARG_SHIFT, h.per_column.get(), bias);
  arguments.Add(DNNL_ARG_MEAN, h.per_row.get(), mean);
  arguments.Add(DNNL_ARG_VARIANCE, h.per_row.get(), variance);
  arguments.Add(DNNL_ARG_DIFF_SRC, h.matrix.get(), dx);
  arguments.Add(DNNL_ARG_DIFF_SCALE, h.per_column.get(), dgain);
  arguments.Add(DNNL_ARG_DIFF_SHIFT, h.per_column.get(), dbias);
  arguments.Add(DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(h.description, dnnl_query_scratchpad_md, 0),
                scratch);
  arguments.Execute(h.primitive, h.stream);
}

}  // namespace normlab::cpu
