#pragma once
// Equivalence of a mean difference with 0 within a margin m, by two one-sided t tests, each at level alpha.
//   I_E = mean(d) +- t(1 - alpha, n - 1) s / sqrt(n): the two one-sided bounds of paired_t.h
//   equivalent when I_E lies strictly inside (-m, m)
//   p = max( P(T > (mean + m) / se), P(T < (mean - m) / se) );  equivalent when p < alpha: the same rule
// I_E has level 1 - 2 alpha (90% for alpha = 0.05): that is the size-alpha test, not a laxer one.
// "Equivalent" says that the difference is below m; it does not say that it is zero. A margin of 0 leaves no
// room: never equivalent, p >= 0.5.
// Assumes: as paired_t.h.   A spread of 0 leaves interval and p empty and `equivalent` false.
// Throws Error if margin is below 0 or alpha is outside (0, 0.5).
// Source: Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics 15(6).

#include <optional>

#include "normlab/stats/interval.h"
#include "normlab/stats/paired_t.h"

namespace normlab::stats {

struct Equivalence {
  std::optional<Interval> interval;  // I_E, level 1 - 2 alpha
  std::optional<double> p_value;
  bool equivalent = false;
};

Equivalence TestEquivalence(const PairedT& test, double margin, double alpha);

}  // namespace normlab::stats
