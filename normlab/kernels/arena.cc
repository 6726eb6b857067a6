#include "normlab/kernels/arena.h"

#include <algorithm>
#include <utility>

namespace normlab {

View Arena::Planner::Take(std::initializer_list<int64_t> shape, DType dtype) {
  View view = View::Dense(base_ + used_, dtype, shape);
  used_ += (view.bytes() + 63) / 64 * 64;
  most_ = std::max(most_, used_);
  return view;
}

Arena::Arena(Device& device, const std::function<void(Planner&)>& layout) : device_(&device) {
  // The counting pass hands out addresses from 64 on: never null, never followed.
  Planner counting;
  counting.base_ = reinterpret_cast<char*>(uintptr_t{64});
  layout(counting);
  bytes_ = counting.most_;
  data_ = device.Allocate(bytes_);
  Planner planner;
  planner.base_ = static_cast<char*>(data_);
  layout(planner);
  NL_CHECK_EQ(planner.most_, bytes_);
}

Arena::~Arena() {
  if (device_ != nullptr) device_->Free(data_, bytes_);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace normlab
