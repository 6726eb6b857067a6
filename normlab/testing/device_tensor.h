#pragma once
// Device memory for one tensor of a test, between guards. The guards, and the gaps between rows, hold NaN
// where the tensor is an input (a kernel that reads them shows it) and a canary where it is an output (a
// kernel that writes them shows it).

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "normlab/kernels/device.h"

namespace normlab::test {

inline constexpr double kCanary = -7776;  // exact in every float format in use
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Placement {
  int64_t misalignment = 0;   // elements after a 64-byte boundary
  int64_t row_gap = 0;        // elements between the end of a row and the start of the next
  DType dtype = DType::kF32;  // on a device that computes in fp32; elsewhere its own
};

class DeviceTensor {
 public:
  // An absent tensor: an empty view.
  DeviceTensor() = default;

  // [rows, cols], holding `values`.
  static DeviceTensor Input(Device& device, int64_t rows, int64_t cols, std::span<const double> values,
                            Placement placement = {}) {
    DeviceTensor tensor(device, rows, cols, placement, kNaN);
    device.Upload(values, tensor.view());
    return tensor;
  }
  // [rows, cols], holding the canary (or NaN: "=" outputs must not read what was there).
  static DeviceTensor Output(Device& device, int64_t rows, int64_t cols, Placement placement = {}) {
    DeviceTensor tensor(device, rows, cols, placement, kCanary);
    device.Fill(tensor.view(), kNaN);
    return tensor;
  }
  // An output that is added to.
  static DeviceTensor Accumulator(Device& device, int64_t rows, int64_t cols, std::span<const double> values,
                                  Placement placement = {}) {
    DeviceTensor tensor(device, rows, cols, placement, kCanary);
    device.Upload(values, tensor.view());
    return tensor;
  }

  DeviceTensor(DeviceTensor&& other) noexcept { *this = std::move(other); }
  DeviceTensor& operator=(DeviceTensor&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(whole_, other.whole_);
    std::swap(view_, other.view_);
    std::swap(guard_value_, other.guard_value_);
    std::swap(offset_, other.offset_);
    return *this;
  }
  ~DeviceTensor() {
    if (device_ != nullptr) device_->Free(whole_.data, whole_.bytes());
  }

  const View& view() const { return view_; }
  // [cols] instead of [1, cols].
  View Vector() const { return device_ == nullptr ? View{} : view_.Reshaped({view_.shape[1]}); }

  std::vector<double> Values() const {
    if (device_ == nullptr) return {};
    std::vector<double> values(static_cast<size_t>(view_.elements()));
    device_->ReadBack(view_, values);
    return values;
  }

  // Whether everything around the tensor still holds its guard value.
  bool GuardsIntact() const {
    if (device_ == nullptr) return true;
    std::vector<double> all(static_cast<size_t>(whole_.elements()));
    device_->ReadBack(whole_, all);
    const int64_t stride = view_.strides[0];
    for (int64_t i = 0; i < whole_.elements(); ++i) {
      const int64_t from_start = i - offset_;
      const bool inside =
          from_start >= 0 && from_start < view_.shape[0] * stride && from_start % stride < view_.shape[1];
      if (inside) continue;
      if (std::isnan(guard_value_) ? !std::isnan(all[i]) : !(all[i] == guard_value_)) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;  // elements: more than any vector stores at once

  DeviceTensor(Device& device, int64_t rows, int64_t cols, Placement placement, double guard_value)
      : device_(&device), guard_value_(guard_value), offset_(kGuard + placement.misalignment) {
    const DType dtype = device.compute_dtype() == DType::kF32 ? placement.dtype : device.compute_dtype();
    const int64_t stride = cols + placement.row_gap;
    const int64_t elements = offset_ + rows * stride + kGuard;
    whole_ = View::Dense(device.Allocate(static_cast<size_t>(elements) * SizeOf(dtype)), dtype, {elements});
    device.Fill(whole_, guard_value);
    view_ = View::Dense(whole_.Slice(offset_, offset_).data, dtype, {rows, cols});
    view_.strides[0] = stride;
  }

  Device* device_ = nullptr;
  View whole_, view_;
  double guard_value_ = 0;
  int64_t offset_ = 0;
};

}  // namespace normlab::test
