#include "normlab/base/view.h"

namespace normlab {

View View::Dense(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  NL_CHECK_LE(shape.size(), static_cast<size_t>(kMaxRank));
  View view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int i = 0;
  for (const int64_t extent : shape) view.shape[i++] = extent;
  int64_t stride = 1;
  for (i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

int64_t View::elements() const {
  if (rank == 0) return 0;
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= shape[i];
  return n;
}

bool View::IsDense() const {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

View View::Transposed() const {
  NL_CHECK_EQ(rank, 2);
  View view = *this;
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

View View::Slice(int64_t begin, int64_t end) const {
  NL_CHECK(0 <= begin && begin <= end && end <= shape[0]);
  View view = *this;
  view.data = static_cast<char*>(data) + begin * strides[0] * static_cast<int64_t>(SizeOf(dtype));
  view.shape[0] = end - begin;
  return view;
}

View View::Columns(int64_t begin, int64_t end) const {
  NL_CHECK_EQ(rank, 2);
  NL_CHECK(0 <= begin && begin <= end && end <= shape[1]);
  View view = *this;
  view.data = static_cast<char*>(data) + begin * strides[1] * static_cast<int64_t>(SizeOf(dtype));
  view.shape[1] = end - begin;
  return view;
}

View View::Reshaped(std::initializer_list<int64_t> new_shape) const {
  NL_CHECK(IsDense());
  View view = Dense(data, dtype, new_shape);
  NL_CHECK_EQ(view.elements(), elements());
  return view;
}

std::string View::ToString() const {
  std::string text = fmt::format("{} [", Name(dtype));
  for (int i = 0; i < rank; ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  return text + "]";
}

}  // namespace normlab
