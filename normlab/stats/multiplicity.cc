#include "normlab/stats/multiplicity.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"

namespace normlab::stats {

double AlphaPerVerdict(double alpha, int variants, int looks) {
  RequireFraction("AlphaPerVerdict", "alpha", alpha);
  if (variants < 1) Fail("AlphaPerVerdict: {} variants; there must be at least 1", variants);
  if (looks < 1) Fail("AlphaPerVerdict: {} looks; there must be at least 1", looks);
  return alpha / (static_cast<double>(variants) * static_cast<double>(looks));
}

std::vector<double> HolmAdjust(std::span<const double> p_values) {
  for (double p : p_values) {
    if (!(p >= 0 && p <= 1)) Fail("HolmAdjust: a p value is {}; each must lie in [0, 1]", p);
  }
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p_values[a] < p_values[b]; });

  std::vector<double> adjusted(p_values.size());
  double largest = 0;  // adjusted values never fall below that of a smaller p
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double step = static_cast<double>(order.size() - i) * p_values[order[i]];
    largest = std::max(largest, std::min(1.0, step));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

}  // namespace normlab::stats
