#pragma once
// Several comparisons, several looks: how the error rate of the whole is shared out.
//   AlphaPerVerdict   alpha / (K L): Bonferroni over K variants and L declared looks; what intervals and
//   verdicts use HolmAdjust        adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)), in the
//   order given;
//                     shown for the difference claims, decides nothing (docs/statistics.md says why)
// Assumes: nothing about the dependence between the tests.
// Throws Error if alpha is outside (0, 1), K or L < 1, or a p value is outside [0, 1].
// Source: Holm 1979, Scandinavian Journal of Statistics 6(2).

#include <span>
#include <vector>

namespace normlab::stats {

double AlphaPerVerdict(double alpha, int variants, int looks);

std::vector<double> HolmAdjust(std::span<const double> p_values);

}  // namespace normlab::stats
