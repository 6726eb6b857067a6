#include "normlab/stats/sign_flip.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "normlab/stats/arguments.h"

namespace normlab::stats {
namespace {

// Sum of the values, value i negated where bit i of `flips` is set.
double FlippedSum(std::span<const double> values, std::uint64_t flips) {
  double sum = 0;
  for (double value : values) {
    sum += (flips & 1) != 0 ? -value : value;
    flips >>= 1;
  }
  return sum;
}

SignFlip Enumerate(std::span<const double> values, double threshold) {
  // A choice and its mirror image have the same |sum|: the sign of the last value stays fixed.
  const std::uint64_t choices = std::uint64_t{1} << (values.size() - 1);
  std::uint64_t as_extreme = 0;
  for (std::uint64_t flips = 0; flips < choices; ++flips) {
    if (std::abs(FlippedSum(values, flips)) >= threshold) ++as_extreme;
  }
  const double count = static_cast<double>(choices);
  return {.p_value = static_cast<double>(as_extreme) / count, .smallest_p = 1 / count, .exact = true};
}

SignFlip Sample(std::span<const double> values, double threshold, const SignFlipOptions& options) {
  std::mt19937_64 stream(options.seed);
  std::uint64_t as_extreme = 0;
  for (std::uint64_t sample = 0; sample < options.samples; ++sample) {
    double sum = 0;
    for (std::size_t first = 0; first < values.size(); first += 64) {
      const std::size_t count = std::min<std::size_t>(64, values.size() - first);
      sum += FlippedSum(values.subspan(first, count), stream());
    }
    if (std::abs(sum) >= threshold) ++as_extreme;
  }
  const double draws = static_cast<double>(options.samples) + 1;
  const double fewest_choices = std::exp2(1 - static_cast<double>(values.size()));
  return {.p_value = (static_cast<double>(as_extreme) + 1) / draws,
          .smallest_p = std::max(1 / draws, fewest_choices),
          .exact = false};
}

}  // namespace

SignFlip SignFlipTest(std::span<const double> differences, const SignFlipOptions& options) {
  RequireValues("SignFlipTest", differences, 1);
  double magnitude = 0;
  double observed = 0;
  for (double difference : differences) {
    magnitude += std::abs(difference);
    observed += difference;
  }
  const double threshold = std::abs(observed) - 1e-9 * magnitude;

  // Above 62 pairs the choices no longer fit the counter; sampling is all there is.
  const std::size_t exact_limit = std::min<std::size_t>(options.max_exact_pairs, 62);
  return differences.size() <= exact_limit ? Enumerate(differences, threshold)
                                           : Sample(differences, threshold, options);
}

}  // namespace normlab::stats
