// The functions of this folder against the answers of numpy, scipy and statsmodels
// (tools/make_stats_fixtures.py).

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "normlab/stats/bootstrap.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/effect_size.h"
#include "normlab/stats/equivalence.h"
#include "normlab/stats/multiplicity.h"
#include "normlab/stats/outliers.h"
#include "normlab/stats/paired_t.h"
#include "normlab/stats/power.h"
#include "normlab/stats/proportion.h"
#include "normlab/stats/sign_flip.h"
#include "normlab/stats/two_way.h"
#include "normlab/stats/wilcoxon.h"

namespace normlab::stats {
namespace {

using Json = nlohmann::json;
using Values = std::vector<double>;

// Both sides compute in doubles by different routes; incomplete beta functions agree to about 1e-12.
constexpr double kRelative = 1e-9;

void ExpectClose(double actual, const Json& expected, const char* what) {
  const double value = expected.get<double>();
  EXPECT_NEAR(actual, value, kRelative * std::abs(value) + 1e-15) << what;
}

const Json& Cases(const std::string& name) {
  static const Json fixture = [] {
    std::ifstream file(std::string(NORMLAB_SOURCE_DIR) + "/normlab/stats/testdata/scipy.json");
    return Json::parse(file);
  }();
  return fixture.at(name);
}

TEST(ScipyTest, PairedTests) {
  ASSERT_GE(Cases("paired").size(), 7u);
  for (const Json& c : Cases("paired")) {
    const Values d = Differences(c.at("variant").get<Values>(), c.at("baseline").get<Values>());
    SCOPED_TRACE(d.size());
    const PairedT test = PairedTTest(d);
    ExpectClose(test.mean, c.at("mean"), "mean");
    ExpectClose(test.sd, c.at("sd"), "sd");
    ExpectClose(*test.t, c.at("t"), "t");
    ExpectClose(*test.p_value, c.at("p"), "p");
    for (const Json& expected : c.at("intervals")) {
      const Interval interval = *MeanInterval(test, expected.at("alpha"));
      ExpectClose(interval.low, expected.at("low"), "low");
      ExpectClose(interval.high, expected.at("high"), "high");
    }
    ExpectClose(*TestEquivalence(test, c.at("margin"), 0.05).p_value, c.at("equivalence_p"), "equivalence p");
    const Wilcoxon wilcoxon = *WilcoxonSignedRank(d);
    ExpectClose(wilcoxon.w, c.at("wilcoxon_w"), "W");
    ExpectClose(wilcoxon.p_value, c.at("wilcoxon_p"), "Wilcoxon p");
    if (c.contains("hedges_g")) ExpectClose(*HedgesGz(test), c.at("hedges_g"), "g");
    if (c.contains("sign_flip_p")) ExpectClose(SignFlipTest(d).p_value, c.at("sign_flip_p"), "sign-flip p");
  }
}

TEST(ScipyTest, WilcoxonWithTiesAndZeros) {
  ASSERT_GE(Cases("wilcoxon_ties").size(), 18u);
  for (const Json& c : Cases("wilcoxon_ties")) {
    const Wilcoxon result = *WilcoxonSignedRank(c.at("d").get<Values>());
    ExpectClose(result.w, c.at("w"), "W");
    ExpectClose(result.p_value, c.at("p"), "p");
    EXPECT_EQ(result.exact, c.at("exact").get<bool>());
  }
}

TEST(ScipyTest, Proportions) {
  for (const Json& c : Cases("proportions").at("intervals")) {
    const Interval interval = ClopperPearson({c.at("hits"), c.at("runs")}, c.at("alpha"));
    ExpectClose(interval.low, c.at("low"), "low");
    ExpectClose(interval.high, c.at("high"), "high");
  }
  for (const Json& c : Cases("proportions").at("fisher")) {
    const Json& first = c.at("first");
    const Json& second = c.at("second");
    ExpectClose(FisherExact({first[0], first[1]}, {second[0], second[1]}), c.at("p"), "Fisher");
  }
}

TEST(ScipyTest, PowerOfThePairedT) {
  for (const Json& c : Cases("paired_t_power")) {
    const double power = PairedTPower({.n = c.at("n"), .effect = c.at("effect"), .alpha = c.at("alpha")});
    EXPECT_NEAR(power, c.at("power").get<double>(), 1e-9) << c.dump();
  }
}

TEST(ScipyTest, PowerOfTheTwoOneSidedTests) {
  for (const Json& c : Cases("equivalence_power")) {
    const double power = EquivalencePower(
        {.n = c.at("n"), .effect = c.at("effect"), .margin = c.at("margin"), .alpha = c.at("alpha")});
    EXPECT_NEAR(power, c.at("power").get<double>(), 1e-9) << c.dump();
  }
}

TEST(ScipyTest, Quantiles) {
  for (const Json& c : Cases("quantiles")) {
    const Values values = c.at("values").get<Values>();
    for (std::size_t i = 0; i < c.at("levels").size(); ++i) {
      ExpectClose(Quantile(values, c.at("levels")[i]), c.at("quantiles")[i], "quantile");
    }
  }
}

TEST(ScipyTest, BcaEndPoints) {
  // An end point from R = 1e6 resamples scatters by sqrt(q (1 - q) / R) / phi(z_q) standard errors of the
  // mean, and nearly as much again through z0: 0.004 at q = 0.025, 0.006 at 0.00625; scipy's the same. Four
  // of the two together are 0.036; half as much more in the long tail of the skewed sample.
  for (const Json& c : Cases("bca")) {
    const Values values = c.at("values").get<Values>();
    const double alpha = c.at("alpha");
    const Interval interval = *BcaInterval(values, {.alpha = alpha, .resamples = 1'000'000});
    const double standard_error = PairedTTest(values).standard_error;
    EXPECT_NEAR(interval.low, c.at("low").get<double>(), 0.054 * standard_error);
    EXPECT_NEAR(interval.high, c.at("high").get<double>(), 0.054 * standard_error);
  }
}

TEST(ScipyTest, TwoWayIntervals) {
  for (const Json& c : Cases("two_way")) {
    const TwoWay result =
        TwoWayInterval(c.at("values").get<Values>(), c.at("seeds"), c.at("blocks"), c.at("alpha"));
    EXPECT_NEAR(result.var_seed, c.at("var_seed").get<double>(), 1e-12);
    EXPECT_NEAR(result.var_block, c.at("var_block").get<double>(), 1e-12);
    ExpectClose(result.var_residual, c.at("var_residual"), "residual");
    ExpectClose(*result.df, c.at("df"), "df");
    ExpectClose(result.interval->low, c.at("low"), "low");
    ExpectClose(result.interval->high, c.at("high"), "high");
  }
}

TEST(ScipyTest, HolmWithTies) {
  ASSERT_GE(Cases("holm").size(), 4u);
  for (const Json& c : Cases("holm")) {
    const Values adjusted = HolmAdjust(c.at("p").get<Values>());
    ASSERT_EQ(adjusted.size(), c.at("adjusted").size());
    for (std::size_t i = 0; i < adjusted.size(); ++i) ExpectClose(adjusted[i], c.at("adjusted")[i], "Holm");
  }
}

TEST(ScipyTest, OneSidedBounds) {
  ASSERT_GE(Cases("bounds").size(), 6u);
  for (const Json& c : Cases("bounds")) {
    const Interval bounds = *OneSidedBounds(PairedTTest(c.at("d").get<Values>()), c.at("alpha"));
    ExpectClose(bounds.low, c.at("low"), "lower bound");
    ExpectClose(bounds.high, c.at("high"), "upper bound");
  }
}

TEST(ScipyTest, SeedsForADifference) {
  for (const Json& c : Cases("seeds"))
    EXPECT_EQ(SeedsForDifference(c.at("effect"), c.at("alpha")), c.at("seeds").get<int>()) << c.dump();
}

TEST(ScipyTest, TukeysFences) {
  for (const Json& c : Cases("far_out")) {
    const Values values = c.at("values").get<Values>();
    const Interval fences = TukeyFences(values, c.at("k"));
    ExpectClose(fences.low, c.at("low"), "lower fence");
    ExpectClose(fences.high, c.at("high"), "upper fence");
    EXPECT_EQ(FarOut(values, c.at("k")), c.at("marked").get<std::vector<std::size_t>>());
  }
}

}  // namespace
}  // namespace normlab::stats
