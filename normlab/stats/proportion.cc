#include "normlab/stats/proportion.h"

#include <algorithm>
#include <boost/math/distributions/hypergeometric.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <string_view>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"

namespace normlab::stats {
namespace {

void RequireCount(std::string_view function, Count count) {
  if (count.runs == 0 || count.hits > count.runs) {
    Fail("{}: {} of {} runs; there must be at least one run, and no more hits than runs", function,
         count.hits, count.runs);
  }
}

}  // namespace

Interval ClopperPearson(Count count, double alpha) {
  RequireCount("ClopperPearson", count);
  RequireFraction("ClopperPearson", "alpha", alpha);
  const double hits = static_cast<double>(count.hits);
  const double misses = static_cast<double>(count.runs - count.hits);
  return {.low = count.hits == 0 ? 0.0 : boost::math::ibeta_inv(hits, misses + 1, alpha / 2),
          .high = count.hits == count.runs ? 1.0 : boost::math::ibeta_inv(hits + 1, misses, 1 - alpha / 2)};
}

double FisherExact(Count first, Count second) {
  RequireCount("FisherExact", first);
  RequireCount("FisherExact", second);
  const std::size_t hits = first.hits + second.hits;
  const std::size_t runs = first.runs + second.runs;

  // Hits of the first group when `hits` of all runs are drawn at random.
  const boost::math::hypergeometric distribution(
      static_cast<unsigned>(hits), static_cast<unsigned>(first.runs), static_cast<unsigned>(runs));
  const double limit = boost::math::pdf(distribution, static_cast<unsigned>(first.hits)) * (1 + 1e-7);
  const std::size_t fewest = hits > second.runs ? hits - second.runs : 0;
  const std::size_t most = std::min(hits, first.runs);
  double p = 0;
  for (std::size_t k = fewest; k <= most; ++k) {
    const double probability = boost::math::pdf(distribution, static_cast<unsigned>(k));
    if (probability <= limit) p += probability;
  }
  return std::min(p, 1.0);
}

}  // namespace normlab::stats
