#pragma once
// Wilcoxon's signed-rank test of paired differences, two-sided.
//   W = min(W+, W-),  W+ = sum of the ranks of the positive differences, ranked by magnitude
// Zero differences are dropped (Wilcoxon's own way); equal magnitudes share their mean rank. Magnitudes
// within 1e-9 of the largest count as equal: 3.10 - 3.08 and 4.02 - 4.00 differ by rounding alone.
// Up to 50 non-zero differences: the exact distribution of W+ over all sign choices, given the (mean) ranks,
// so it is exact with ties too. (The normal curve with a tie correction gives p = 0.041 where no p below
// 0.0625 exists: n = 5.) Beyond 50: the normal curve with tie correction, no continuity correction.
// Assumes: symmetric differences under the null.   Empty if all differences are 0.
// Throws Error if there is no value or one is not finite.
// Source: Wilcoxon 1945, Biometrics Bulletin 1(6); Pratt & Gibbons 1981, Concepts of Nonparametric Theory,
// chapter 3.

#include <cstddef>
#include <optional>
#include <span>

namespace normlab::stats {

struct Wilcoxon {
  std::size_t n = 0;  // non-zero differences
  double w = 0;       // min(W+, W-)
  double p_value = 1;
  bool exact = true;
};

std::optional<Wilcoxon> WilcoxonSignedRank(std::span<const double> differences);

}  // namespace normlab::stats
