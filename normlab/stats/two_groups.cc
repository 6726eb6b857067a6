#include "normlab/stats/two_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "normlab/stats/arguments.h"
#include "normlab/stats/descriptive.h"

namespace normlab::stats {
namespace {

constexpr std::size_t kFewestValues = 20;
constexpr double kLeastShare = 0.1;
constexpr double kLeastSeparation = 4;

}  // namespace

std::optional<TwoGroups> FindTwoGroups(std::span<const double> values) {
  if (values.size() < kFewestValues) return std::nullopt;
  RequireValues("FindTwoGroups", values, kFewestValues);
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();

  // The sum of squares within is least where that between is largest: n_1 n_2 (mean_1 - mean_2)^2 / n.
  const double mean = Mean(sorted);
  double sum = 0;  // of the lower part, from the common mean
  double most = 0;
  std::size_t cut = 0;
  for (std::size_t i = 1; i < n; ++i) {
    sum += sorted[i - 1] - mean;
    const double below = static_cast<double>(i), above = static_cast<double>(n - i);
    const double between = sum * sum * (1 / below + 1 / above);
    if (between > most) most = between, cut = i;
  }
  const auto fewest = static_cast<std::size_t>(std::ceil(kLeastShare * static_cast<double>(n)));
  if (cut < fewest || n - cut < fewest) return std::nullopt;

  const std::span<const double> low = std::span(sorted).first(cut), high = std::span(sorted).subspan(cut);
  const double low_sd = SampleSd(low), high_sd = SampleSd(high);
  const double within = std::sqrt((low_sd * low_sd + high_sd * high_sd) / 2);
  TwoGroups groups{.low = Mean(low),
                   .high = Mean(high),
                   .high_share = static_cast<double>(high.size()) / static_cast<double>(n)};
  groups.separation =
      within > 0 ? (groups.high - groups.low) / within : std::numeric_limits<double>::infinity();
  if (!(groups.separation > kLeastSeparation)) return std::nullopt;
  return groups;
}

}  // namespace normlab::stats
