#pragma once
// oneDNN's layer normalization, for the norm that users of the library get (norm_library.cc). One object is
// one direction and shape; it runs in the calling thread alone, and several threads may run it at once.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "normlab/base/dtype.h"

namespace normlab::cpu {

class OneDnnLayerNorm {
 public:
  // Rows of `dtype` (f32 or bf16), dense; parameters and statistics f32.
  OneDnnLayerNorm(bool backward, int64_t rows, int64_t cols, DType dtype, float eps);
  ~OneDnnLayerNorm();
  OneDnnLayerNorm(const OneDnnLayerNorm&) = delete;
  OneDnnLayerNorm& operator=(const OneDnnLayerNorm&) = delete;

  // Whether oneDNN has it for rows of this type on this processor: bf16 only with AVX-512.
  static bool Takes(DType dtype);

  size_t scratch_bytes() const;  // that each run needs for itself

  // mean and variance [rows] =. y may be x.
  void Forward(const void* x, const float* gain, const float* bias, void* y, float* mean, float* variance,
               void* scratch) const;
  // dx, dgain, dbias =. dx may be dy. `bias` is not read for its values, but asked for.
  void Backward(const void* x, const void* dy, const float* gain, const float* bias, const float* mean,
                const float* variance, void* dx, float* dgain, float* dbias, void* scratch) const;

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace normlab::cpu
