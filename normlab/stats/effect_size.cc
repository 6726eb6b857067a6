#include "normlab/stats/effect_size.h"

#include <boost/math/special_functions/gamma.hpp>
#include <cmath>

namespace normlab::stats {

std::optional<double> HedgesGz(const PairedT& test) {
  if (test.n < 3 || !(test.sd > 0)) return std::nullopt;
  const double log_ratio = boost::math::lgamma(test.df / 2) - boost::math::lgamma((test.df - 1) / 2);
  return std::exp(log_ratio) / std::sqrt(test.df / 2) * test.mean / test.sd;
}

}  // namespace normlab::stats
