#include "normlab/base/view.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace normlab {
namespace {

struct Matrix3x4 {
  std::vector<float> values = std::vector<float>(12);
  View view;
  Matrix3x4() : view(View::Dense(values.data(), DType::kF32, {3, 4})) {
    std::iota(values.begin(), values.end(), 0.0f);
  }
  float At(const View& v, int64_t row, int64_t col) const {
    return v.as<float>()[row * v.strides[0] + col * v.strides[1]];
  }
};

TEST(View, DenseIsRowMajor) {
  const View view = View::Dense(nullptr, DType::kBF16, {2, 3, 5});
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.strides[0], 15);
  EXPECT_EQ(view.strides[1], 5);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_EQ(view.elements(), 30);
  EXPECT_EQ(view.bytes(), 60u);
  EXPECT_TRUE(view.IsDense());
  EXPECT_TRUE(view.empty());
  EXPECT_EQ(View{}.elements(), 0);
}

TEST(View, RefusesMoreThanFourAxes) {
  EXPECT_THROW(View::Dense(nullptr, DType::kF32, {1, 1, 1, 1, 1}), std::logic_error);
}

TEST(View, SliceTakesRows) {
  const Matrix3x4 m;
  const View rows = m.view.Slice(1, 3);
  EXPECT_EQ(rows.rows(), 2);
  EXPECT_EQ(m.At(rows, 0, 0), 4);
  EXPECT_EQ(m.At(rows, 1, 3), 11);
  EXPECT_TRUE(rows.IsDense());
  EXPECT_EQ(m.view.Slice(2, 2).elements(), 0);
  EXPECT_THROW(m.view.Slice(2, 4), std::logic_error);
  EXPECT_THROW(m.view.Slice(-1, 2), std::logic_error);
  EXPECT_THROW(m.view.Slice(2, 1), std::logic_error);
}

TEST(View, ColumnsKeepTheRowStride) {
  const Matrix3x4 m;
  const View columns = m.view.Columns(1, 3);
  EXPECT_EQ(columns.cols(), 2);
  EXPECT_EQ(columns.row_stride(), 4);
  EXPECT_EQ(m.At(columns, 2, 1), 10);
  EXPECT_FALSE(columns.IsDense());
  EXPECT_EQ(m.At(m.view.Transposed().Columns(1, 3), 2, 1), 10);  // columns that are not adjacent
  EXPECT_THROW(m.view.Columns(0, 5), std::logic_error);
  EXPECT_THROW(columns.Reshaped({6}), std::logic_error);
}

TEST(View, TransposedSwapsTheAxesAndTwiceIsTheSame) {
  const Matrix3x4 m;
  const View transposed = m.view.Transposed();
  EXPECT_EQ(transposed.rows(), 4);
  EXPECT_EQ(m.At(transposed, 3, 2), m.At(m.view, 2, 3));
  EXPECT_FALSE(transposed.IsDense());
  EXPECT_TRUE(transposed.Transposed().IsDense());
}

TEST(View, AnAxisOfOneNeverBreaksDensity) {
  View view = View::Dense(nullptr, DType::kF32, {1, 4});
  view.strides[0] = 99;
  EXPECT_TRUE(view.IsDense());
}

TEST(View, ReshapedKeepsTheElements) {
  const Matrix3x4 m;
  const View cube = m.view.Reshaped({2, 3, 2});
  EXPECT_EQ(cube.data, m.view.data);
  EXPECT_EQ(cube.strides[0], 6);
  EXPECT_THROW(m.view.Reshaped({5, 2}), std::logic_error);
}

TEST(View, AsChecksTheElementSize) {
  const Matrix3x4 m;
  EXPECT_THROW(m.view.as<double>(), std::logic_error);
  EXPECT_THROW(m.view.as<uint16_t>(), std::logic_error);
}

TEST(View, SaysWhatItIs) {
  EXPECT_EQ(View::Dense(nullptr, DType::kF32, {4096, 128}).ToString(), "f32 [4096, 128]");
}

}  // namespace
}  // namespace normlab
