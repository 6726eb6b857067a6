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
#include "normlab/train/update_bound.h"

namespace normlab {

// Why a run stopped learning: what became non-finite first, or would have, and where it was seen.
struct Divergence {
  int64_t step = 0;                   // from 0
  std::string what;                   // "loss", "gradient norm" or "the bound of the next weights"
  std::optional<std::string> tensor;  // the first parameter, in forward order, whose gradient is not finite
  // The first norm, in forward order, of which one is not finite: "trf_blocks.2.norm1, input" or ", output".
  std::optional<std::string> activation;
  double value = 0;                         // nan or inf
  std::optional<int64_t> last_inside_step;  // of the last line of inside.jsonl, from 1
  std::string ToString() const;
};

// How far training has come. Inside a step: its first micro_batches are done, their losses add up to
// loss_sum, and their gradients lie in the model's.
struct TrainPosition {
  int64_t step = 0;           // steps done
  int64_t micro_batches = 0;  // of the next one, of its batch / micro_batch
  double loss_sum = 0;
  double time_s = 0;  // that this part of the step took
  bool operator==(const TrainPosition&) const = default;
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

// Micro-batch, window and storage types of a configuration's model.
GptShape ShapeOf(const TrainConfig& config);

class Trainer {
 public:
  // Checks configuration and data against each other; throws Error. The device outlives the trainer.
  Trainer(Device& device, const TrainConfig& config, std::shared_ptr<const TokenSource> tokens);

  const TrainConfig& config() const { return config_; }
  const Gpt& model() const { return model_; }
  const Split& split() const { return split_; }
  const TokenSource& tokens() const { return *tokens_; }
  int64_t next_step() const { return position_.step; }

  // All that a run is, beside configuration and data: the position, and in device memory the weights, AdamW's
  // moments (flat, laid out as the weights) and, inside a step, the gradients. Whoever has put these into
  // device memory tells the position with MoveTo.
  const TrainPosition& position() const { return position_; }
  void MoveTo(const TrainPosition& position) {
    position_ = position;
    bounded_steps_ = -1;  // bound_ was of the weights before
    model_.RefreshOperands();
  }
  Device& device() const { return device_; }
  const View& first_moments() const { return m_; }
  const View& second_moments() const { return v_; }

  // The update of the last step, its step from 1: what AdamW was asked to do. Nothing before the first one.
  const std::optional<AdamWArgs>& last_update() const { return last_update_; }

  // The norm of each tensor in flat memory that is laid out as the weights; the order of parameters().all().
  std::vector<double> TensorNorms(const View& flat);

  // Runs one forward and backward pass whose result is thrown away: memory is touched and caches are filled,
  // so that the first timed step is like the others. Changes no bit of the run. Not inside a step.
  void WarmUp();

  StepResult Step();

  // The same, but asks between two micro-batches whether to pause, and returns nothing if so; the next call
  // goes on there, with the same bits.
  std::optional<StepResult> StepOrPause(const std::function<bool()>& pause);

  // Loss on the held-out windows. `keep_going` is told the share done and may end it by returning false: then
  // there is no result. Not part of any step's time.
  std::optional<Evaluation> Evaluate(const std::function<bool(double)>& keep_going = {});

  // Seconds that this run's matrix products of one step need when each runs alone in its fastest form, or
  // nothing where the device has no library to ask. Measured on the first call.
  std::optional<double> ProductsBound();

 private:
  double Norm(const View& flat);
  // Whether no weight can leave fp32 by this update, whose gradient has this norm when it is scaled.
  bool StaysFinite(const AdamWArgs& update, double gradient);
  std::optional<std::string> FirstNonFiniteGradient();
  std::optional<std::string> FirstNonFiniteActivation();

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
  TrainPosition position_;
  std::optional<AdamWArgs> last_update_;
  UpdateBound bound_{0, 0};
  int64_t bounded_steps_ = -1;  // steps after which bound_ holds
  std::optional<double> products_bound_;
};

}  // namespace normlab
