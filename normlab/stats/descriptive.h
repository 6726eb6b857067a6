#pragma once
// Mean, standard deviation, median and quantiles of a sample.
//   Mean       sum(x) / n, with one correction pass, so that a large common offset costs no digits
//   SampleSd   sqrt(sum((x - mean)^2) / (n - 1)), two passes; exactly 0 for equal values
//   Quantile   Hyndman and Fan's type 7 (the default of R and NumPy): linear between order statistics at
//              h = (n - 1) p.   Source: Hyndman & Fan 1996, The American Statistician 50(4).
// Assumes: nothing about the distribution.   Throws Error on too few or non-finite values, or p outside [0,
// 1].

#include <span>

namespace normlab::stats {

double Mean(std::span<const double> values);                // n >= 1
double SampleSd(std::span<const double> values);            // n >= 2
double Quantile(std::span<const double> values, double p);  // n >= 1, type 7, any order
double Median(std::span<const double> values);              // Quantile(values, 0.5)

}  // namespace normlab::stats
