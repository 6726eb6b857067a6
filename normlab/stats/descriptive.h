#pragma once
// Mean, standard deviation, median and quantiles of a sample.
// Assumes: nothing about the distribution.
// Throws Error on too few or non-finite values, or p outside [0, 1].
// Source: Hyndman & Fan 1996, The American Statistician 50(4) (the nine types of quantiles); Chan, Golub &
// LeVeque 1983, The American Statistician 37(3) (two passes, corrected).

#include <span>

namespace normlab::stats {

// sum(x) / n, with one correction pass, so that a large common offset costs no digits. n >= 1.
double Mean(std::span<const double> values);

// sqrt(sum((x - mean)^2) / (n - 1)), two passes; exactly 0 for equal values. n >= 2.
double SampleSd(std::span<const double> values);

// Hyndman and Fan's type 7 (the default of R and NumPy): linear between order statistics at h = (n - 1) p,
// counted from 0. n >= 1, in any order.
double Quantile(std::span<const double> values, double p);

double Median(std::span<const double> values);  // Quantile(values, 0.5)

}  // namespace normlab::stats
