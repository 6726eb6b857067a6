#include "normlab/stats/wilcoxon.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <vector>

#include "normlab/stats/arguments.h"

namespace normlab::stats {
namespace {

// 2^50 sign choices are still whole numbers of a double.
constexpr std::size_t kMaxExact = 50;

// Relative to the largest magnitude: above the rounding of differences, below what anybody records.
constexpr double kTie = 1e-9;

struct Ranks {
  std::vector<std::size_t> doubled;  // twice the mean rank: whole numbers even with ties
  std::size_t doubled_plus = 0;      // twice W+
  double tie_term = 0;               // sum of t^3 - t over groups of t equal magnitudes
};

Ranks RankMagnitudes(std::vector<double> nonzero) {
  std::sort(nonzero.begin(), nonzero.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  const double slack = kTie * std::abs(nonzero.back());
  Ranks ranks;
  for (std::size_t first = 0; first < nonzero.size();) {
    std::size_t end = first + 1;
    while (end < nonzero.size() && std::abs(nonzero[end]) - std::abs(nonzero[first]) <= slack) ++end;
    const std::size_t doubled = first + 1 + end;  // ranks first + 1 .. end
    for (std::size_t i = first; i < end; ++i) {
      ranks.doubled.push_back(doubled);
      if (nonzero[i] > 0) ranks.doubled_plus += doubled;
    }
    const double group = static_cast<double>(end - first);
    ranks.tie_term += group * group * group - group;
    first = end;
  }
  return ranks;
}

// P(2 W+ <= limit) when every rank counts with probability 1/2.
double ExactLowerTail(const Ranks& ranks, std::size_t limit) {
  std::vector<double> choices(limit + 1, 0.0);  // choices[s]: sign choices with 2 W+ = s
  choices[0] = 1;
  for (std::size_t rank : ranks.doubled) {
    for (std::size_t sum = limit; sum >= rank; --sum) choices[sum] += choices[sum - rank];
  }
  double total = 0;
  for (double count : choices) total += count;
  return std::ldexp(total, -static_cast<int>(ranks.doubled.size()));
}

}  // namespace

std::optional<Wilcoxon> WilcoxonSignedRank(std::span<const double> differences) {
  RequireValues("WilcoxonSignedRank", differences, 1);
  std::vector<double> nonzero;
  for (double difference : differences) {
    if (difference != 0) nonzero.push_back(difference);
  }
  if (nonzero.empty()) return std::nullopt;

  const Ranks ranks = RankMagnitudes(nonzero);
  const std::size_t n = nonzero.size();
  const std::size_t doubled_total = n * (n + 1);
  const std::size_t doubled_w = std::min(ranks.doubled_plus, doubled_total - ranks.doubled_plus);

  Wilcoxon result{.n = n, .w = static_cast<double>(doubled_w) / 2, .p_value = 1, .exact = n <= kMaxExact};
  if (result.exact) {
    result.p_value = std::min(1.0, 2 * ExactLowerTail(ranks, doubled_w));
  } else {
    const double count = static_cast<double>(n);
    const double mean = count * (count + 1) / 4;
    const double variance = count * (count + 1) * (2 * count + 1) / 24 - ranks.tie_term / 48;
    const double z = (result.w - mean) / std::sqrt(variance);
    result.p_value = std::min(1.0, 2 * boost::math::cdf(boost::math::normal(), z));
  }
  return result;
}

}  // namespace normlab::stats
