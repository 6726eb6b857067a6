#include "normlab/stats/loss_course.h"

#include <algorithm>
#include <cmath>

#include "normlab/stats/descriptive.h"

namespace normlab::stats {
namespace {

constexpr size_t kLevelLosses = 20, kNoiseLosses = 100;
constexpr double kSpreads = 6;
constexpr int64_t kGivenUp = 100;  // steps

// Level and noise of the losses outside of spikes, at least kLevelLosses.
double LevelOf(const std::deque<double>& losses) {
  return Median(std::vector<double>(losses.end() - kLevelLosses, losses.end()));
}
double NoiseOf(const std::deque<double>& losses) {
  std::vector<double> differences;
  for (size_t i = 1; i < losses.size(); ++i) differences.push_back(losses[i] - losses[i - 1]);
  return RobustSd(differences, 0) / std::sqrt(2.0);
}

}  // namespace

double RobustSd(std::span<const double> values, double center) {
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - center));
  return 1.4826 * Median(distances);
}

bool SpikeWatch::See(double loss) {
  ++step_;
  if (in_spike_) {
    LossSpike& spike = spikes_.back();
    spike.peak = std::max(spike.peak, loss);
    if (loss > recovered_below_ && step_ - spike.step < kGivenUp) return false;
    in_spike_ = false;
    if (loss <= recovered_below_)
      spike.recovered_after = step_ - spike.step;
    else
      calm_.clear();
  } else if (calm_.size() >= kLevelLosses) {
    const double before = LevelOf(calm_);
    const double height = std::max(kSpreads * NoiseOf(calm_), kLeastRise);
    if (loss > before + height) {
      spikes_.push_back({.step = step_, .loss = loss, .before = before, .peak = loss});
      in_spike_ = true;
      recovered_below_ = before + height / 3;
      return true;
    }
  }
  calm_.push_back(loss);
  if (calm_.size() > kNoiseLosses) calm_.pop_front();
  return false;
}

bool StartWatch::See(double loss) {
  if (++step_ == 1) first_ = loss;
  above_ = loss > first_ + kLeastRise ? above_ + 1 : 0;
  return above_ == kSteps;
}

std::optional<int64_t> StartWatch::since() const {
  if (above_ < kSteps) return std::nullopt;
  return step_ - above_ + 1;
}

}  // namespace normlab::stats
