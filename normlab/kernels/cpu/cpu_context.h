#pragma once
// What every CPU operation is given: the number of threads, scratch memory, and the library's products of
// bf16. Scratch grows to the largest request, which the first step makes; after that no operation allocates.
// Valid until the operation returns.

#include <cstddef>
#include <memory>

#include "normlab/base/memory.h"
#include "normlab/kernels/cpu/onednn_bf16.h"

namespace normlab::cpu {

class CpuContext {
 public:
  explicit CpuContext(int threads) : threads_(threads), bf16_products_(threads) {}

  int threads() const { return threads_; }

  // `count` floats, 64-byte aligned, contents undefined. One request at a time is alive: a second call may
  // move or overwrite the first, so an operation asks once for all it needs.
  float* Scratch(size_t count) {
    if (count * sizeof(float) > scratch_.bytes()) scratch_ = AlignedMemory(count * sizeof(float));
    return static_cast<float*>(scratch_.data());
  }
  size_t scratch_bytes() const { return scratch_.bytes(); }

  Bf16Products& bf16_products() { return bf16_products_; }

 private:
  int threads_;
  AlignedMemory scratch_;
  Bf16Products bf16_products_;
};

}  // namespace normlab::cpu
