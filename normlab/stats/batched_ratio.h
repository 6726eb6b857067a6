#pragma once
// Ratio of the times of two variants that took turns on one machine, from rounds grouped into batches.
//   y = log(time_variant / time_baseline) per round; M_j = median of batch j
//   ratio = exp(mean(M) +- t(1 - alpha/2, batches - 1) s_M / sqrt(batches))
// Every batch places all buffers afresh: one memory layout is a bias that no number of rounds removes, so the
// batch, not the round, is the unit. Medians, because interruptions lengthen single rounds; no round is
// dropped.
//   RoundsPerBatch   clip(ceil(7.5 (t s_pilot / (sqrt(batches) h))^2), 5, 64), h = half the width asked for,
//   in logs
// The rounds are fixed from a pilot that is then discarded; nothing is extended after a look at the result.
// Assumes: batches independent and alike.   Throws Error on values that are not finite, fewer than 2 batches,
// uneven batches.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "normlab/stats/interval.h"

namespace normlab::stats {

inline constexpr std::size_t kDefaultBatches = 20;

struct BatchedRatio {
  std::size_t batches = 0;
  std::size_t rounds_per_batch = 0;
  std::vector<double> medians;       // of the logs, batch by batch
  double ratio = 1;                  // exp(mean of the batch medians)
  std::optional<Interval> interval;  // of the ratio, level 1 - alpha; empty if all medians are equal
  std::optional<double> half_width;  // of the interval, in logs: the precision reached
  std::optional<double> lag_one_autocorrelation;  // of the rounds' logs; empty if they are all equal
};

// log_ratios: round after round, batch after batch, the same number in each. alpha: 0.05 / K for K variants.
BatchedRatio RatioOfBatches(std::span<const double> log_ratios, std::size_t batches, double alpha);

struct RoundsPerBatchArgs {
  double pilot_sd = 0;    // of single rounds' log ratios
  double half_width = 0;  // asked for, in logs: log(1.01) for 1%
  double alpha = 0.05;
  std::size_t batches = kDefaultBatches;
};
std::size_t RoundsPerBatch(const RoundsPerBatchArgs& args);

}  // namespace normlab::stats
