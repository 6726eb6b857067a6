#pragma once
// Views over fp32 arrays of the caller, for a device that computes in the host's memory (kernels/cpu): the
// way to normalize what a program already holds, without a copy.
//
//   const auto device = MakeCpuDevice({.threads = 4});
//   const NormType norm = ParseNormType("rmsnorm");
//   const NormSpec spec{.kind = norm.kind, .implementation = norm.implementation};
//   std::vector<float> saved(device->NormSavedElements(spec, rows, cols));
//   device->NormForward({.spec = spec, .x = HostMatrix(x, rows, cols), .weight = HostVector(weight),
//                        .y = HostMatrix(y, rows, cols), .saved = HostVector(saved)});
//
// A View has no const: an input is not written because the operation says so (device.h), and the array must
// outlive the call. Throw Error where an array is smaller than its shape.

#include <cstdint>
#include <span>

#include "normlab/base/error.h"
#include "normlab/base/view.h"

namespace normlab {

// [values.size()]
inline View HostVector(std::span<const float> values) {
  return View::Dense(const_cast<float*>(values.data()), DType::kF32, {static_cast<int64_t>(values.size())});
}

// [rows, cols], row-major: element (r, c) is values[r * row_stride + c]. row_stride 0 stands for cols.
inline View HostMatrix(std::span<const float> values, int64_t rows, int64_t cols, int64_t row_stride = 0) {
  if (row_stride == 0) row_stride = cols;
  if (rows < 0 || cols < 0 || row_stride < cols)
    Fail("a matrix of {} rows and {} columns with {} floats from row to row is not possible", rows, cols,
         row_stride);
  const int64_t needed = rows == 0 ? 0 : (rows - 1) * row_stride + cols;
  if (static_cast<int64_t>(values.size()) < needed)
    Fail(
        "a matrix of {} rows and {} columns with {} floats from row to row needs {} floats, but there are {}",
        rows, cols, row_stride, needed, values.size());
  View view = View::Dense(const_cast<float*>(values.data()), DType::kF32, {rows, cols});
  view.strides[0] = row_stride;
  return view;
}

}  // namespace normlab
