#pragma once
// Several comparisons, several looks: how the error rate of the whole is shared out.
// Assumes: nothing about the dependence between the tests.
// Throws Error if alpha is outside (0, 1), K or L < 1, or a p value is outside [0, 1].
// Source: Dunn 1961, JASA 56(293) (Bonferroni's inequality for intervals); Holm 1979, Scandinavian Journal of
// Statistics 6(2).

#include <span>
#include <vector>

namespace normlab::stats {

// alpha_v = alpha / (K L): Bonferroni over K variants and L declared looks. Verdicts are reached at this
// level, and intervals at level 1 - alpha_v hold together, all K of them at all L looks, at level 1 - alpha:
// simultaneous.
double AlphaPerVerdict(double alpha, int variants, int looks);

// Adjusted p values, in the order given:  p_(i) -> max over j <= i of min(1, (m - j + 1) p_(j))  for the i-th
// smallest of m. Shown for the difference claims; decides nothing (docs/statistics.md says why).
std::vector<double> HolmAdjust(std::span<const double> p_values);

}  // namespace normlab::stats
