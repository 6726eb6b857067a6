#pragma once
// A view of memory that some device owns: address, element type, shape and strides (in elements).
// Copying a view copies no data. Only the device that owns the memory may follow the address, so code
// above kernels/ makes and cuts views but never reads through them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "normlab/base/dtype.h"
#include "normlab/base/error.h"

namespace normlab {

struct View {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> strides{};

  // A dense row-major view.
  static View Dense(void* data, DType dtype, std::initializer_list<int64_t> shape);

  bool empty() const { return data == nullptr; }
  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }
  bool IsDense() const;  // row-major without gaps

  // For matrices: [rows, cols], columns adjacent.
  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape[1]; }
  int64_t row_stride() const { return strides[0]; }

  View Transposed() const;                                        // rank 2
  View Slice(int64_t begin, int64_t end) const;                   // along the first axis
  View Columns(int64_t begin, int64_t end) const;                 // along the second axis, rank 2
  View Reshaped(std::initializer_list<int64_t> new_shape) const;  // dense only

  template <class T>
  T* as() const {
    NL_CHECK_EQ(sizeof(T), SizeOf(dtype));
    return static_cast<T*>(data);
  }

  // "f32 [4096, 128]"
  std::string ToString() const;
};

}  // namespace normlab
