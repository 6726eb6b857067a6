#pragma once
// Hedges' g_z: the mean difference in units of the standard deviation of the differences, freed of
// small-sample bias.
//   g_z = J mean(d) / s,   J = Gamma(df/2) / (sqrt(df/2) Gamma((df - 1)/2)),   df = n - 1
// Assumes: normal differences (for the bias factor).   Empty if n < 3 or s = 0.   Throws nothing.
// Source: Hedges 1981, Journal of Educational Statistics 6(2).

#include <optional>

#include "normlab/stats/paired_t.h"

namespace normlab::stats {

std::optional<double> HedgesGz(const PairedT& test);

}  // namespace normlab::stats
