#include "normlab/stats/bootstrap.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"
#include "normlab/stats/descriptive.h"

namespace normlab::stats {
namespace {

std::vector<double> SortedResampledMeans(std::span<const double> values, const BootstrapOptions& options) {
  std::mt19937_64 stream(options.seed);
  const auto n = static_cast<std::uint64_t>(values.size());
  std::vector<double> means(options.resamples);
  for (double& mean : means) {
    double sum = 0;
    // Multiply-shift on 32 bits: the same draws with every standard library; its bias is below n / 2^32.
    for (std::uint64_t i = 0; i < n; ++i) sum += values[((stream() >> 32) * n) >> 32];
    mean = sum / static_cast<double>(n);
  }
  std::sort(means.begin(), means.end());
  return means;
}

double Acceleration(std::span<const double> values) {
  // For a mean the jackknife deviations u are (x - mean) / (n - 1); the factor cancels.
  const double mean = Mean(values);
  double squares = 0;
  double cubes = 0;
  for (double value : values) {
    const double u = value - mean;
    squares += u * u;
    cubes += u * u * u;
  }
  return cubes / (6 * std::pow(squares, 1.5));
}

}  // namespace

std::optional<Interval> BcaInterval(std::span<const double> values, const BootstrapOptions& options) {
  RequireValues("BcaInterval", values, 2);
  RequireFraction("BcaInterval", "alpha", options.alpha);
  if (options.resamples < 100) Fail("BcaInterval: {} resamples; use 100 or more", options.resamples);
  if (!(SampleSd(values) > 0)) return std::nullopt;

  const std::vector<double> means = SortedResampledMeans(values, options);
  double observed = 0;  // summed like the resampled means, so that a tie is a tie
  for (double value : values) observed += value;
  observed /= static_cast<double>(values.size());
  const auto [first_tie, end_of_ties] = std::equal_range(means.begin(), means.end(), observed);
  const double below = 0.5 *
                       static_cast<double>((first_tie - means.begin()) + (end_of_ties - means.begin())) /
                       static_cast<double>(means.size());
  if (!(below > 0 && below < 1)) return std::nullopt;

  const boost::math::normal normal;
  const double z0 = boost::math::quantile(normal, below);
  const double acceleration = Acceleration(values);
  const auto corrected_level = [&](double z) -> std::optional<double> {
    const double shrink = 1 - acceleration * (z0 + z);
    if (!(shrink > 0)) return std::nullopt;
    return boost::math::cdf(normal, z0 + (z0 + z) / shrink);
  };
  const double z = boost::math::quantile(normal, options.alpha / 2);
  const std::optional<double> low = corrected_level(z);
  const std::optional<double> high = corrected_level(-z);
  if (!low || !high) return std::nullopt;
  return Interval{Quantile(means, *low), Quantile(means, *high)};
}

}  // namespace normlab::stats
