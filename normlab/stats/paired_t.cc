#include "normlab/stats/paired_t.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"
#include "normlab/stats/descriptive.h"

namespace normlab::stats {
namespace {

// mean -+ the distance that T exceeds with probability `tail` on either side.
std::optional<Interval> Around(const PairedT& test, double tail) {
  if (!(test.sd > 0)) return std::nullopt;
  const double half_width = StudentCritical(tail, test.df) * test.standard_error;
  return Interval{test.mean - half_width, test.mean + half_width};
}

}  // namespace

std::vector<double> Differences(std::span<const double> variant, std::span<const double> baseline) {
  if (variant.size() != baseline.size()) {
    Fail("Differences: {} values of the variant and {} of the baseline; they must come in pairs",
         variant.size(), baseline.size());
  }
  RequireValues("Differences", variant, 0);
  RequireValues("Differences", baseline, 0);
  std::vector<double> differences(variant.size());
  for (std::size_t i = 0; i < variant.size(); ++i) differences[i] = variant[i] - baseline[i];
  return differences;
}

PairedT PairedTTest(std::span<const double> differences) {
  RequireValues("PairedTTest", differences, 2);
  PairedT test;
  test.n = differences.size();
  test.mean = Mean(differences);
  test.sd = SampleSd(differences);
  test.standard_error = test.sd / std::sqrt(static_cast<double>(test.n));
  test.df = static_cast<double>(test.n - 1);
  if (test.sd > 0) {
    test.t = test.mean / test.standard_error;
    const boost::math::students_t distribution(test.df);
    test.p_value = 2 * boost::math::cdf(boost::math::complement(distribution, std::abs(*test.t)));
  }
  return test;
}

std::optional<Interval> MeanInterval(const PairedT& test, double alpha) {
  RequireFraction("MeanInterval", "alpha", alpha);
  return Around(test, alpha / 2);
}

std::optional<Interval> OneSidedBounds(const PairedT& test, double alpha) {
  if (!(alpha > 0 && alpha < 0.5)) Fail("OneSidedBounds: alpha is {}; it must lie between 0 and 0.5", alpha);
  return Around(test, alpha);
}

double StudentCritical(double tail, double df) {
  RequireFraction("StudentCritical", "tail", tail);
  RequirePositive("StudentCritical", "df", df);
  return boost::math::quantile(boost::math::complement(boost::math::students_t(df), tail));
}

}  // namespace normlab::stats
