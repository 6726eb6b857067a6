#pragma once
// Small device tensors of tests, written and read as doubles.

#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "normlab/base/bfloat16.h"
#include "normlab/base/random.h"
#include "normlab/kernels/device.h"
#include "normlab/testing/device_tensor.h"
#include "normlab/testing/near.h"
#include "normlab/testing/norm_problem.h"

namespace normlab::test {

inline int64_t Count(std::initializer_list<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// Normal values, exact in fp32, that depend on the seed, the name and the element alone.
inline Values RandomValues(std::initializer_list<int64_t> shape, std::string_view name, double mean = 0,
                           double spread = 1) {
  const RandomStream stream(Seed(), name);
  Values values(static_cast<size_t>(Count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = RoundToF32(mean + spread * stream.Normal(i));
  return values;
}

// The same values as bf16 holds them.
inline Values RoundedToBf16(Values values) {
  for (double& value : values) value = BFloat16::FromFloat(static_cast<float>(value)).ToFloat();
  return values;
}

// Dense device memory with a shape, of the device's compute dtype unless said otherwise.
class Tensor {
 public:
  Tensor(Device& device, std::initializer_list<int64_t> shape, std::span<const double> values)
      : Tensor(device, shape, values, device.compute_dtype()) {}
  Tensor(Device& device, std::initializer_list<int64_t> shape, std::span<const double> values, DType dtype)
      : device_(&device) {
    const size_t bytes = static_cast<size_t>(Count(shape)) * SizeOf(dtype);
    view_ = View::Dense(device.Allocate(bytes), dtype, shape);
    Write(values);
  }
  // Filled with NaN: what an "=" output must not read.
  Tensor(Device& device, std::initializer_list<int64_t> shape)
      : Tensor(device, shape, device.compute_dtype()) {}
  Tensor(Device& device, std::initializer_list<int64_t> shape, DType dtype)
      : Tensor(device, shape, Values(static_cast<size_t>(Count(shape)), kNaN), dtype) {}
  Tensor(Tensor&& other) noexcept : device_(std::exchange(other.device_, nullptr)), view_(other.view_) {}
  Tensor& operator=(Tensor&&) = delete;
  ~Tensor() {
    if (device_ != nullptr) device_->Free(view_.data, view_.bytes());
  }

  const View& view() const { return view_; }
  void Write(std::span<const double> values) { device_->Upload(values, view_); }
  Values Read() const { return Read(view_); }
  Values Read(const View& part) const {
    Values values(static_cast<size_t>(part.elements()));
    device_->ReadBack(part, values);
    return values;
  }

 private:
  Device* device_;
  View view_;
};

// Token ids or targets.
class Ids {
 public:
  Ids(Device& device, std::initializer_list<int64_t> shape, const std::vector<int32_t>& ids)
      : device_(&device) {
    view_ = View::Dense(device.Allocate(ids.size() * sizeof(int32_t)), DType::kI32, shape);
    device.UploadIds(ids, view_);
  }
  Ids(Ids&& other) noexcept : device_(std::exchange(other.device_, nullptr)), view_(other.view_) {}
  Ids& operator=(Ids&&) = delete;
  ~Ids() {
    if (device_ != nullptr) device_->Free(view_.data, view_.bytes());
  }
  const View& view() const { return view_; }

 private:
  Device* device_;
  View view_;
};

}  // namespace normlab::test
