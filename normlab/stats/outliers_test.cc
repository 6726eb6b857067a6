#include "normlab/stats/outliers.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

using Values = std::vector<double>;
using Indices = std::vector<std::size_t>;

TEST(OutliersTest, FencesByHand) {
  // Quartiles of 1 to 9, type 7: 3 and 7.
  const Interval fences = TukeyFences(Values{9, 1, 8, 2, 7, 3, 6, 4, 5});
  EXPECT_DOUBLE_EQ(fences.low, 3 - 3 * 4);
  EXPECT_DOUBLE_EQ(fences.high, 7 + 3 * 4);
}

TEST(OutliersTest, DarwinsTwoLowPlantsAreOutsideOfTheInnerFencesOnly) {
  // Quartiles 11 and 45: inner fences -40 and 96, outer -91 and 147.
  EXPECT_EQ(FarOut(reference::kDarwin, 1.5), (Indices{1, 14}));
  EXPECT_TRUE(FarOut(reference::kDarwin).empty());
}

TEST(OutliersTest, OneValueCannotHideItselfOrAnother) {
  // Two far values of ten: beyond the fences, though each is within 2.1 standard deviations of the mean.
  EXPECT_EQ(FarOut(Values{1, 2, 3, 2, 900, 1, 3, 2, 1000, 2}), (Indices{4, 8}));
}

TEST(OutliersTest, AValueOnTheFenceIsInside) {
  EXPECT_TRUE(FarOut(Values{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.5).empty());  // 1 and 9 are the fences
  EXPECT_EQ(FarOut(Values{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.4), (Indices{0, 8}));
}

TEST(OutliersTest, EqualValuesHaveNone) { EXPECT_TRUE(FarOut(Values{2, 2, 2}).empty()); }

TEST(OutliersTest, RefusesBrokenInput) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(FarOut(Values{}), Error);
  EXPECT_THROW(FarOut(Values{1, nan}), Error);
  EXPECT_THROW(FarOut(Values{1, 2}, 0), Error);
  EXPECT_THROW(FarOut(Values{1, 2}, nan), Error);
}

}  // namespace
}  // namespace normlab::stats
