#pragma once
// What stands inside of a trainer right after a step: the distribution of every norm's input and output, and
// the norm of every tensor's weight, gradient and update. Read only: no bit of the run changes. Call between
// a Step and whatever runs the model next (an evaluation, the next step), whose activations these would be.
//
// Activations are those of the step's last micro-batch, at most kMostRows of its rows, evenly spaced; `max`
// is the largest magnitude in these. Gradients are the step's, before clipping. An update is w_after -
// w_before, in real numbers: taken from AdamW's moments,
//   w_after - w_before = -((1 - keep) w_after + rate m / (sqrt(v) / sqrt(1 - beta2^t) + eps)) / keep,
//   keep = 1 - learning_rate * weight_decay (1 where nothing decays), rate = learning_rate / (1 - beta1^t),
// so no copy of the weights is kept, and their rounding is not in it. docs/insides.md has the definitions.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/stats/matrix_moments.h"
#include "normlab/train/trainer.h"

namespace normlab {

inline constexpr int64_t kMostRows = 1024;
// |alpha x| above this counts as saturated in dyt: the slope of tanh is below 1% of its largest.
inline constexpr double kSaturated = 3;

struct NormInside {
  std::string site;  // "trf_blocks.0.norm1"
  stats::MatrixMoments input, output;
  std::optional<double> saturated_share;  // of the input's elements; dyt only
};

struct TensorInside {
  std::string name;
  double weight_norm = 0, gradient_norm = 0, update_norm = 0;
  // update_norm / weight_norm, the weights being those after the update; nothing where they are 0.
  std::optional<double> update_ratio() const;
};

struct Inside {
  int64_t step = 0;  // from 1
  std::vector<NormInside> norms;
  std::vector<TensorInside> tensors;
};

// After a step that was made. Takes InsideBytes of memory for its time.
Inside LookInside(Trainer& trainer);
size_t InsideBytes(const TrainConfig& config);

// The same as one object of inside.jsonl; `why`: "interval", "spike".
Json ToJson(const Inside& inside, std::string_view why);

// A few numbers of the norm sites, as the record of a run keeps them.
Json SummaryToJson(const Inside& inside);

// ---- What is cheap enough for every step.

// One number a signal: the gradient norm of every tensor; its update norm, and the rms of every norm's input,
// from a sample that is the same at every step (at most kSampledElements of a tensor, kSampledRows of an
// input).
inline constexpr int64_t kSampledElements = 4096, kSampledRows = 32;
struct Signal {
  std::string what;  // "gradient_norm", "update_norm", "input_rms"
  std::string name;  // of the tensor, or of the norm's site
};
std::vector<Signal> SignalsOf(const Trainer& trainer);
std::vector<double> ReadSignals(Trainer& trainer);

// The signals of the last step before a divergence as an object of inside.jsonl: what only a full look tells
// is null, and `why` is "divergence". The weights are still those of that step.
Json LastFiniteToJson(Trainer& trainer, int64_t step, std::span<const double> signals);

}  // namespace normlab
