#pragma once
// Interval of a mean difference that carries the sampling of the held-out text as well as that of the seeds.
// d[i][j] is the difference of seed i on text block j; seeds and blocks are both random, crossed, one value a
// cell.
//   Var(mean) = (MS_seed + MS_block - MS_resid) / (n B)
//   df        = (MS_seed + MS_block - MS_resid)^2 / (MS_seed^2/(n-1) + MS_block^2/(B-1) +
//   MS_resid^2/((n-1)(B-1)))
// The last line is Satterthwaite's; it is rough where MS_resid is close to the sum of the other two.
// Assumes: additive normal effects, blocks that are alike and independent (adjacent blocks of one text are
// not quite). Throws Error unless n >= 2, B >= 2, values.size() = n B, all finite.   Source: Satterthwaite
// 1946, Biometrics 2(6).

#include <cstddef>
#include <optional>
#include <span>

#include "normlab/stats/interval.h"

namespace normlab::stats {

struct TwoWay {
  double mean = 0;
  double ms_seed = 0, ms_block = 0, ms_residual = 0;
  std::optional<double> variance;  // of the mean; empty where the estimate is not above 0
  std::optional<double> df;
  std::optional<Interval> interval;  // at level 1 - alpha
};

// values: row-major [seeds, blocks].
TwoWay TwoWayInterval(std::span<const double> values, std::size_t seeds, std::size_t blocks, double alpha);

}  // namespace normlab::stats
