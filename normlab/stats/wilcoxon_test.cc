#include "normlab/stats/wilcoxon.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/testdata/reference.h"

namespace normlab::stats {
namespace {

TEST(WilcoxonTest, DarwinsMaizeIsExact) {
  const Wilcoxon result = *WilcoxonSignedRank(reference::kDarwin);
  EXPECT_TRUE(result.exact);
  EXPECT_EQ(result.w, 24);
  EXPECT_NEAR(result.p_value, 0.04126, 5e-6);
}

TEST(WilcoxonTest, ExactWithTies) {
  // One sign throughout: no test of five pairs goes below 2^-4, ties or not.
  const Wilcoxon result = *WilcoxonSignedRank(std::vector<double>{2, 1, 3, 2, 1});
  EXPECT_EQ(result.w, 0);
  EXPECT_EQ(result.p_value, 0.0625);
}

TEST(WilcoxonTest, RoundingDoesNotBreakATie) {
  // -0.02 and +0.02 share rank 1.5, so W- = 1.5, not 2, although 3.10 - 3.08 > 4.02 - 4.00 in doubles.
  const std::vector<double> differences = {3.08 - 3.10, 4.02 - 4.00, 0.05, 0.07};
  ASSERT_NE(-differences[0], differences[1]);
  EXPECT_EQ(WilcoxonSignedRank(differences)->w, 1.5);
  EXPECT_EQ(WilcoxonSignedRank(differences)->p_value, 0.375);  // 3 of 16 sign choices have W+ <= 1.5
}

TEST(WilcoxonTest, ZerosAreDropped) {
  const Wilcoxon result = *WilcoxonSignedRank(std::vector<double>{0, 1, 0, 2, 3});
  EXPECT_EQ(result.n, 3u);
  EXPECT_EQ(result.p_value, 0.25);
  EXPECT_FALSE(WilcoxonSignedRank(std::vector<double>{0, 0}));
}

TEST(WilcoxonTest, BalancedRanksGiveOne) {
  EXPECT_EQ(WilcoxonSignedRank(std::vector<double>{1, -1})->p_value, 1);
}

TEST(WilcoxonTest, RefusesBrokenInput) {
  EXPECT_THROW(WilcoxonSignedRank(std::vector<double>{}), Error);
  EXPECT_THROW(WilcoxonSignedRank(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN()}), Error);
}

}  // namespace
}  // namespace normlab::stats
