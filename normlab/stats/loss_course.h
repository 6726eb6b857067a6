#pragma once
// What the course of a training loss tells, step by step: spikes, with what they began from and when they
// were over, and a loss that stays above its start. Functions of the losses alone, so that a resumed run,
// which shows them again, finds what an uninterrupted one found.
//
// A spike begins at a loss that stands more than max(6 s, 0.05 nats) above the median of the last 20 losses
// outside of spikes. s is the noise from step to step: 1.4826 / sqrt(2) times the median |difference| of
// neighbours among the last 100 of these losses, the standard deviation of normal numbers whatever the trend
// and a few outliers do. It is over at the first loss within a third of that height; after 100 steps without
// one it counts as not recovered, and the level is taken anew. The first 20 losses have no level.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace normlab::stats {

// The smallest rise of a loss, in nats, that is taken for one: e^0.05 is 5% in perplexity.
inline constexpr double kLeastRise = 0.05;

struct LossSpike {
  int64_t step = 0;                        // of its first loss, from 1
  double loss = 0;                         // there
  double before = 0;                       // the level that it left
  double peak = 0;                         // the highest loss until it was over
  std::optional<int64_t> recovered_after;  // steps; nothing: not (yet)
  bool operator==(const LossSpike&) const = default;
};

class SpikeWatch {
 public:
  // The loss of the next step, finite. True where a spike begins with it.
  bool See(double loss);
  const std::vector<LossSpike>& spikes() const { return spikes_; }

 private:
  int64_t step_ = 0;
  bool in_spike_ = false;
  double recovered_below_ = 0;
  std::deque<double> calm_;  // the last losses outside of spikes
  std::vector<LossSpike> spikes_;
};

// Whether a loss has stayed more than kLeastRise above that of its first step, for kSteps steps or more:
// nothing is learned, which shows long before anything becomes non-finite.
class StartWatch {
 public:
  static constexpr int64_t kSteps = 20;

  // The loss of the next step, finite. True at the step that completes kSteps.
  bool See(double loss);
  double first() const { return first_; }
  // The step (from 1) since which the loss has been above, where that is kSteps ago or more.
  std::optional<int64_t> since() const;

 private:
  int64_t step_ = 0, above_ = 0;
  double first_ = 0;
};

// 1.4826 times the median distance of values from `center`: the standard deviation of normal numbers.
double RobustSd(std::span<const double> values, double center);

}  // namespace normlab::stats
