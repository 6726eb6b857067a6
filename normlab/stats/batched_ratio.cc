#include "normlab/stats/batched_ratio.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/paired_t.h"

namespace normlab::stats {
namespace {

constexpr double kFewestRounds = 5;
constexpr double kMostRounds = 64;

std::optional<double> LagOneAutocorrelation(std::span<const double> values) {
  const double mean = Mean(values);
  double square = 0;
  double product = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    square += (values[i] - mean) * (values[i] - mean);
    if (i > 0) product += (values[i] - mean) * (values[i - 1] - mean);
  }
  if (!(square > 0)) return std::nullopt;
  return product / square;
}

}  // namespace

BatchedRatio RatioOfBatches(std::span<const double> log_ratios, std::size_t batches, double alpha) {
  RequireFraction("RatioOfBatches", "alpha", alpha);
  if (batches < 2 || log_ratios.empty() || log_ratios.size() % batches != 0) {
    Fail("RatioOfBatches: {} rounds in {} batches; it takes 2 or more batches of equal size",
         log_ratios.size(), batches);
  }
  RequireValues("RatioOfBatches", log_ratios, batches);
  const std::size_t rounds = log_ratios.size() / batches;
  std::vector<double> medians(batches);
  for (std::size_t j = 0; j < batches; ++j) medians[j] = Median(log_ratios.subspan(j * rounds, rounds));

  const PairedT test = PairedTTest(medians);
  BatchedRatio result;
  result.batches = batches;
  result.rounds_per_batch = rounds;
  result.medians = medians;
  result.ratio = std::exp(test.mean);
  if (const auto interval = MeanInterval(test, alpha)) {
    result.interval = Interval{std::exp(interval->low), std::exp(interval->high)};
    result.half_width = (interval->high - interval->low) / 2;
  }
  result.lag_one_autocorrelation = LagOneAutocorrelation(log_ratios);
  return result;
}

std::size_t RoundsPerBatch(const RoundsPerBatchArgs& args) {
  if (!(std::isfinite(args.pilot_sd) && args.pilot_sd >= 0)) {
    Fail("RoundsPerBatch: pilot_sd is {}; it must be finite and not below 0", args.pilot_sd);
  }
  RequirePositive("RoundsPerBatch", "half_width", args.half_width);
  RequireFraction("RoundsPerBatch", "alpha", args.alpha);
  if (args.batches < 2) Fail("RoundsPerBatch: {} batches; it takes 2 or more", args.batches);
  const double batches = static_cast<double>(args.batches);
  const double t = StudentCritical(args.alpha / 2, batches - 1);
  const double relative = t * args.pilot_sd / (std::sqrt(batches) * args.half_width);
  return static_cast<std::size_t>(
      std::clamp(std::ceil(7.5 * relative * relative), kFewestRounds, kMostRounds));
}

}  // namespace normlab::stats
