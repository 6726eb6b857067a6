#include "normlab/kernels/host_view.h"

#include <vector>

#include <gtest/gtest.h>

namespace normlab {
namespace {

TEST(HostView, PointsIntoTheArrayWithItsStride) {
  std::vector<float> values(11);
  const View matrix = HostMatrix(values, 3, 3, 4);
  EXPECT_EQ(matrix.data, values.data());
  EXPECT_EQ(matrix.ToString(), "f32 [3, 3]");
  EXPECT_EQ(matrix.row_stride(), 4);
  EXPECT_FALSE(matrix.IsDense());
  EXPECT_TRUE(HostMatrix(values, 3, 3).IsDense());
  EXPECT_EQ(HostVector(values).ToString(), "f32 [11]");
}

TEST(HostView, RefusesAShapeThatTheArrayCannotHold) {
  std::vector<float> values(11);
  EXPECT_NO_THROW(HostMatrix(values, 3, 3, 4));  // the last row needs no gap behind it
  EXPECT_THROW(HostMatrix(values, 4, 3), Error);
  EXPECT_THROW(HostMatrix(values, 3, 4), Error);
  EXPECT_THROW(HostMatrix(values, 2, 3, 2), Error);
  EXPECT_THROW(HostMatrix(values, -1, 3), Error);
  EXPECT_NO_THROW(HostMatrix({}, 0, 5));
}

}  // namespace
}  // namespace normlab
