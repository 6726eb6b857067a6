#pragma once
// Interval of a mean difference that carries the sampling of the held-out text as well as that of the seeds.
// d[i][j] is the difference of seed i on text block j; seeds and blocks are both random, crossed, one value a
// cell:  d[i][j] = mean + seed_i + block_j + rest_ij.
//   components   rest = MS_rest,  seed = (MS_seed - MS_rest) / B,  block = (MS_block - MS_rest) / n
//   Var(mean)    = seed / n + block / B + rest / (n B) = (MS_seed + MS_block - MS_rest) / (n B)
//   df           = (MS_seed + MS_block - MS_rest)^2
//                  / (MS_seed^2/(n-1) + MS_block^2/(B-1) + MS_rest^2/((n-1)(B-1)))
// A component that is estimated below 0 is 0. For the blocks that also enters the variance: text that adds no
// spread of its own leaves MS_seed / (n B) with n - 1 degrees of freedom, the interval of the seeds alone.
// df is Satterthwaite's, rough where MS_rest is close to the sum of the other two, and 1 at the least.
// Assumes: additive normal effects, blocks that are alike and independent (adjacent blocks of one text are
// not quite).
// Throws Error unless n >= 2, B >= 2, values.size() = n B, all finite.
// Source: Satterthwaite 1946, Biometrics Bulletin 2(6); Searle, Casella & McCulloch 1992, Variance
// Components, chapter 4 (crossed, no replication).

#include <cstddef>
#include <optional>
#include <span>

#include "normlab/stats/interval.h"

namespace normlab::stats {

struct TwoWay {
  double mean = 0;
  double ms_seed = 0, ms_block = 0, ms_residual = 0;
  double var_seed = 0, var_block = 0, var_residual = 0;  // components: of one seed, one block, one cell
  std::optional<double> variance;  // of the mean; empty where the estimate is not above 0
  std::optional<double> df;
  std::optional<Interval> interval;  // at level 1 - alpha
};

// values: row-major [seeds, blocks].
TwoWay TwoWayInterval(std::span<const double> values, std::size_t seeds, std::size_t blocks, double alpha);

}  // namespace normlab::stats
