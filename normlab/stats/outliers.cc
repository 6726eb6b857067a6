#include "normlab/stats/outliers.h"

#include "normlab/stats/arguments.h"
#include "normlab/stats/descriptive.h"

namespace normlab::stats {

Interval TukeyFences(std::span<const double> values, double k) {
  RequireValues("TukeyFences", values, 1);
  RequirePositive("TukeyFences", "k", k);
  const double q1 = Quantile(values, 0.25);
  const double q3 = Quantile(values, 0.75);
  return {.low = q1 - k * (q3 - q1), .high = q3 + k * (q3 - q1)};
}

std::vector<std::size_t> FarOut(std::span<const double> values, double k) {
  const Interval fences = TukeyFences(values, k);
  std::vector<std::size_t> marked;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!fences.Holds(values[i])) marked.push_back(i);
  }
  return marked;
}

}  // namespace normlab::stats
