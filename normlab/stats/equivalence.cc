#include "normlab/stats/equivalence.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>

#include "normlab/stats/arguments.h"

namespace normlab::stats {

Equivalence TestEquivalence(const PairedT& test, double margin, double alpha) {
  RequireNotNegative("TestEquivalence", "margin", margin);
  Equivalence result;
  result.interval = OneSidedBounds(test, alpha);
  if (!result.interval) return result;

  const boost::math::students_t distribution(test.df);
  const double t_above_lower = (test.mean + margin) / test.standard_error;
  const double t_below_upper = (test.mean - margin) / test.standard_error;
  const double p_lower = boost::math::cdf(boost::math::complement(distribution, t_above_lower));
  const double p_upper = boost::math::cdf(distribution, t_below_upper);
  result.p_value = std::max(p_lower, p_upper);
  result.equivalent = result.interval->Within(margin);
  return result;
}

}  // namespace normlab::stats
