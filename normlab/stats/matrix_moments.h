#pragma once
// What the values of an activation matrix look like: size, shape of the distribution, outlying columns, and
// how much of each row is its mean.
//   rms         sqrt(mean(x^2)), over all elements
//   kurtosis    mean((x - mu)^4) / mean((x - mu)^2)^2, over all elements: 3 for normal numbers, NOT excess
//   mean_share  mean over the rows of mean(row)^2 / mean(row^2), 0..1: the part of a row's mean square that
//               centring it would remove. Rows of zeros have none and are left out.
//   outlier_ratio    max |x| / the median over the columns of sqrt(mean(column^2)): some 5 for a million
//                    normal numbers, whatever the number of rows
//   outlier_channel  the column of that maximum, where the ratio is at least kOutlierRatio
// Sums are float64, over chunks of rows that depend on the shape alone: the same bits for any number of
// threads. What does not exist (a kurtosis of equal values) is nothing; an element that is not finite makes
// what it enters so.

#include <cstdint>
#include <optional>
#include <span>

namespace normlab::stats {

inline constexpr double kOutlierRatio = 20;

struct MatrixMoments {
  double rms = 0, max = 0;  // max: of |x|
  std::optional<double> kurtosis, mean_share, outlier_ratio;
  std::optional<int64_t> outlier_channel;
};

// `values` are rows of `cols` values each, at least one. Throws Error where they are not whole rows.
MatrixMoments MomentsOf(std::span<const double> values, int64_t cols, int threads = 1);

}  // namespace normlab::stats
