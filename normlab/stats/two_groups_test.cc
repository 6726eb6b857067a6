#include "normlab/stats/two_groups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/random.h"

namespace normlab::stats {
namespace {

std::vector<double> Normal(size_t count, double mean, double sd, uint64_t seed = 1) {
  const RandomStream random(seed, "two groups");
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = mean + sd * random.Normal(i);
  return values;
}

std::vector<double> Together(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// S-21: blocks of 1 ms and of 3 ms.
TEST(TwoGroupsTest, TwoSpeedsAreFoundWithTheirShares) {
  const auto groups = FindTwoGroups(Together(Normal(60, 0.003, 0.0001), Normal(40, 0.001, 0.0001)));
  ASSERT_TRUE(groups);
  EXPECT_NEAR(groups->low, 0.001, 0.0001);
  EXPECT_NEAR(groups->high, 0.003, 0.0001);
  EXPECT_DOUBLE_EQ(groups->high_share, 0.6);
  EXPECT_NEAR(groups->separation, 20, 5);
}

// S-21: a slow start of 10, then 40 fast ones.
TEST(TwoGroupsTest, ASlowStartIsASecondGroup) {
  const auto groups = FindTwoGroups(Together(Normal(10, 2, 0.01), Normal(40, 1, 0.01)));
  ASSERT_TRUE(groups);
  EXPECT_DOUBLE_EQ(groups->high_share, 0.2);
}

TEST(TwoGroupsTest, OneGroupIsOneWhateverItsShape) {
  size_t found = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::vector<double> normal = Normal(200, 1, 0.05, seed), skewed = normal, uniform(200);
    for (double& value : skewed) value = std::exp(10 * (value - 1));
    const RandomStream random(seed, "uniform");
    for (size_t i = 0; i < uniform.size(); ++i) uniform[i] = random.Uniform(i);
    found += FindTwoGroups(normal).has_value() + FindTwoGroups(skewed).has_value() +
             FindTwoGroups(uniform).has_value();
  }
  EXPECT_LE(found, 3u);  // of 600; a long tail may look like a group
}

TEST(TwoGroupsTest, AFewOutliersAreNoGroup) {
  EXPECT_FALSE(FindTwoGroups(Together(Normal(95, 1, 0.01), Normal(5, 1.5, 0.01))));
}

TEST(TwoGroupsTest, EqualValuesAndFewAreNone) {
  EXPECT_FALSE(FindTwoGroups(std::vector<double>(50, 1.0)));
  EXPECT_FALSE(FindTwoGroups(Together(Normal(9, 1, 0.01), Normal(9, 3, 0.01))));
  const auto flat = FindTwoGroups(Together(std::vector<double>(20, 1.0), std::vector<double>(20, 3.0)));
  ASSERT_TRUE(flat);
  EXPECT_TRUE(std::isinf(flat->separation));
}

TEST(TwoGroupsTest, RefusesWhatIsNotFinite) {
  std::vector<double> values = Normal(30, 1, 0.1);
  values[3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(FindTwoGroups(values), Error);
}

}  // namespace
}  // namespace normlab::stats
