#pragma once
// One training run in memory: model, optimizer state, data order. Step() is one optimizer step; the caller
// decides what to write and when to stop. The result is a function of the configuration and the data alone,
// whatever the number of threads; several trainers may live in one process and take turns.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "normlab/data/windows.h"
#include "normlab/kernels/device.h"
#include "normlab/model/gpt.h"
#include "normlab/train/config.h"
#include "normlab/train/schedule.h"

namespace normlab {

// Why a run stopped learning: what became non-finite first, and where it was seen.
struct Divergence {
  int64_t step = 0;                   // from 0
  std::string what;                   // "loss" or "gradient norm"
  std::optional<std::string> tensor;  // the first parameter, in forward order, whose gradient is not finite
  double value = 0;                   // nan or inf
  std::string ToString() const;
};

struct StepResult {
  int64_t step = 0;          // from 0
  double loss = 0;           // mean over the step's targets, nats, before the update
  double gradient_norm = 0;  // global, before clipping
  double learning_rate = 0;
  double time_s = 0;
  int64_t tokens = 0;
  std::optional<Divergence> divergence;  // the update was not made: weights are those of the last good step
};

struct Evaluation {
  double loss = 0;                   // mean cross-entropy in nats over all held-out targets
  std::vector<double> block_losses;  // mean of each window
};

class Trainer {
 public:
  // Checks configuration and data against each other; throws Error. The device outlives the trainer.
  Trainer(Device& device, const TrainConfig& config, std::shared_ptr<const TokenSource> tokens);

  const TrainConfig& config() const { return config_; }
  const Gpt& model() const { return model_; }
  const Split& split() const { return split_; }
  const TokenSource& tokens() const { return *tokens_; }
  int64_t next_step() const { return next_step_; }

  // Runs one forward and backward pass whose result is thrown away: memory is touched and caches are filled,
  // so that the first timed step is like the others. Changes no bit of the run.
  void WarmUp();

  StepResult Step();

  // Loss on the held-out windows. `keep_going` is told the share done and may end it by returning false: then
  // there is no result. Not part of any step's time.
  std::optional<Evaluation> Evaluate(const std::function<bool(double)>& keep_going = {});

  // Seconds that this run's matrix products of one step need when each runs alone in its fastest form, or
  // nothing where the device has no library to ask. Measured on the first call.
  std::optional<double> ProductsBound();

 private:
  std::optional<std::string> FirstNonFiniteGradient();

  Device& device_;
  TrainConfig config_;
  std::shared_ptr<const TokenSource> tokens_;
  Split split_;
  BatchSampler sampler_;
  Schedule schedule_;
  Gpt model_;
  Arena moments_arena_;
  View m_, v_, norm_;
  std::vector<int32_t> inputs_, targets_;  // of one micro-batch
  std::vector<double> losses_;
  int64_t next_step_ = 0;
  std::optional<double> products_bound_;
};

}  // namespace normlab
