#pragma once
// Values that stand far from the others, by Tukey's fences: marked for a second look, never left out.
//   fences   [Q1 - k (Q3 - Q1), Q3 + k (Q3 - Q1)], quartiles of type 7 (descriptive.h)
// k = 3 are the outer fences; what lies beyond them is "far out". Quartiles, because a mean and a standard
// deviation are moved by the very value in question: of n values none lies more than (n - 1) / sqrt(n) of
// their own standard deviations from their mean, 2.5 of 8.
// Assumes: nothing; but among few values marks are chance. Of samples of normal values 14, 5, 5 and 2% have a
// mark at n = 5, 8, 10, 20, so a comparison marks from n = kMinMarkedSize on.
// Throws Error on no or non-finite values, or k that is not above 0.
// Source: Tukey 1977, Exploratory Data Analysis, chapter 2.

#include <cstddef>
#include <span>
#include <vector>

#include "normlab/stats/interval.h"

namespace normlab::stats {

inline constexpr double kOuterFences = 3;
inline constexpr std::size_t kMinMarkedSize = 8;

Interval TukeyFences(std::span<const double> values, double k = kOuterFences);

// Indices of the values outside of the fences, in their order.
std::vector<std::size_t> FarOut(std::span<const double> values, double k = kOuterFences);

}  // namespace normlab::stats
