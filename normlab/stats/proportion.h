#pragma once
// Rates of an outcome, here of divergence: an exact interval for one rate, an exact test of two.
// Assumes: independent runs with one rate each. Runs paired by seed are not quite that; the test then errs on
// the large side when seeds move both rates together.
// Throws Error if hits > runs, runs = 0, or alpha is outside (0, 1).
// Source: Clopper & Pearson 1934, Biometrika 26(4); Fisher 1935, JRSS 98(1).

#include <cstddef>

#include "normlab/stats/interval.h"

namespace normlab::stats {

struct Count {
  std::size_t hits = 0;
  std::size_t runs = 0;
};

// k hits in n runs:  [B^-1(alpha/2; k, n - k + 1), B^-1(1 - alpha/2; k + 1, n - k)],  B^-1 the beta quantile;
// 0 below k = 0, 1 above k = n. Covers at least 1 - alpha, whatever the rate.
Interval ClopperPearson(Count count, double alpha);

// Two-sided p of the 2x2 table given its margins: the sum of the probabilities of all tables that are no
// likelier than the observed one. Ties count, with a relative slack of 1e-7, as in R.
double FisherExact(Count first, Count second);

}  // namespace normlab::stats
