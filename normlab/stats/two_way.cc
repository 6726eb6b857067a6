#include "normlab/stats/two_way.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/paired_t.h"

namespace normlab::stats {

TwoWay TwoWayInterval(std::span<const double> values, std::size_t seeds, std::size_t blocks, double alpha) {
  RequireFraction("TwoWayInterval", "alpha", alpha);
  if (seeds < 2 || blocks < 2 || values.size() != seeds * blocks) {
    Fail("TwoWayInterval: {} values for {} seeds x {} blocks; it takes one value a cell and at least 2 x 2",
         values.size(), seeds, blocks);
  }
  RequireValues("TwoWayInterval", values, 4);
  const double n = static_cast<double>(seeds);
  const double b = static_cast<double>(blocks);

  TwoWay result;
  result.mean = Mean(values);
  std::vector<double> seed_mean(seeds, 0.0);
  std::vector<double> block_mean(blocks, 0.0);
  for (std::size_t i = 0; i < seeds; ++i) {
    for (std::size_t j = 0; j < blocks; ++j) {
      seed_mean[i] += values[i * blocks + j] / b;
      block_mean[j] += values[i * blocks + j] / n;
    }
  }
  for (double mean : seed_mean) result.ms_seed += b * (mean - result.mean) * (mean - result.mean) / (n - 1);
  for (double mean : block_mean) result.ms_block += n * (mean - result.mean) * (mean - result.mean) / (b - 1);
  for (std::size_t i = 0; i < seeds; ++i) {
    for (std::size_t j = 0; j < blocks; ++j) {
      const double residual = values[i * blocks + j] - seed_mean[i] - block_mean[j] + result.mean;
      result.ms_residual += residual * residual / ((n - 1) * (b - 1));
    }
  }

  result.var_residual = result.ms_residual;
  result.var_seed = std::max(0.0, (result.ms_seed - result.ms_residual) / b);
  result.var_block = std::max(0.0, (result.ms_block - result.ms_residual) / n);

  const bool text_adds = result.ms_block > result.ms_residual;
  const double sum = text_adds ? result.ms_seed + result.ms_block - result.ms_residual : result.ms_seed;
  if (!(sum > 0)) return result;
  result.variance = sum / (n * b);
  result.df = n - 1;
  if (text_adds) {
    const double spread = result.ms_seed * result.ms_seed / (n - 1) +
                          result.ms_block * result.ms_block / (b - 1) +
                          result.ms_residual * result.ms_residual / ((n - 1) * (b - 1));
    // Below one degree of freedom the quantile of t runs out of doubles long before it means anything.
    result.df = std::max(1.0, sum * sum / spread);
  }
  const double half_width = StudentCritical(alpha / 2, *result.df) * std::sqrt(*result.variance);
  result.interval = Interval{result.mean - half_width, result.mean + half_width};
  return result;
}

}  // namespace normlab::stats
