#pragma once
// The t test and interval for the mean of paired differences d_i = variant_i - baseline_i.
//   t = mean(d) / (s / sqrt(n)),  df = n - 1,  p = 2 P(T_df > |t|)
//   two-sided interval at level 1 - alpha:  mean(d) +- t(1 - alpha/2, n - 1) s / sqrt(n)
//   one-sided bounds, each at level 1 - alpha:  mean(d) -+ t(1 - alpha, n - 1) s / sqrt(n)
// Simultaneous over several comparisons: each at alpha_v of multiplicity.h.
// Assumes: independent pairs, differences close to normal (the mean of few skewed ones is the weak point; see
// docs/statistics.md). Pairing needs no likeness of the two members; it gains power where they move together.
// A spread of 0 leaves t, p and the interval undefined: they are empty, never infinite.
// Throws Error if n < 2, a value is not finite, lengths differ, or alpha is outside (0, 1).
// Source: Student 1908, Biometrika 6(1).

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "normlab/stats/interval.h"

namespace normlab::stats {

struct PairedT {
  std::size_t n = 0;
  double mean = 0;
  double sd = 0;  // of the differences, with n - 1
  double standard_error = 0;
  double df = 0;
  std::optional<double> t;
  std::optional<double> p_value;  // two-sided
};

// variant[i] - baseline[i].
std::vector<double> Differences(std::span<const double> variant, std::span<const double> baseline);

PairedT PairedTTest(std::span<const double> differences);

// Two-sided interval at level 1 - alpha.
std::optional<Interval> MeanInterval(const PairedT& test, double alpha);

// The lower and the upper confidence bound, each at level 1 - alpha on its own; as an interval they have
// level 1 - 2 alpha. What one-sided tests at level alpha look at. Throws Error unless 0 < alpha < 0.5.
std::optional<Interval> OneSidedBounds(const PairedT& test, double alpha);

// The t that Student's t with df degrees of freedom exceeds with probability `tail`.
double StudentCritical(double tail, double df);

}  // namespace normlab::stats
