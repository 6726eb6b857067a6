#include "normlab/stats/descriptive.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"

namespace normlab::stats {

double Mean(std::span<const double> values) {
  RequireValues("Mean", values, 1);
  const double n = static_cast<double>(values.size());
  double sum = 0;
  for (double value : values) sum += value;
  const double first = sum / n;

  // The residuals of the first estimate sum to its rounding error.
  double residual = 0;
  for (double value : values) residual += value - first;
  return first + residual / n;
}

double SampleSd(std::span<const double> values) {
  RequireValues("SampleSd", values, 2);
  // Equal values have a spread of exactly 0, whatever the rounding of their mean.
  if (std::all_of(values.begin(), values.end(), [&](double value) { return value == values[0]; })) return 0;

  const double mean = Mean(values);
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double Quantile(std::span<const double> values, double p) {
  RequireValues("Quantile", values, 1);
  if (!(p >= 0 && p <= 1)) Fail("Quantile: p is {}; it must lie in [0, 1]", p);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());

  const double h = static_cast<double>(sorted.size() - 1) * p;
  const auto below = static_cast<std::size_t>(h);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (h - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double Median(std::span<const double> values) { return Quantile(values, 0.5); }

}  // namespace normlab::stats
