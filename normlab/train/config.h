#pragma once
// What a training run is: model, data order, optimizer, schedule. One flat set of keys; a configuration file
// is JSON with comments. How a run is executed (threads, device, folders) is not part of it: the result does
// not depend on it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/config_keys.h"
#include "normlab/base/dtype.h"
#include "normlab/model/config.h"

namespace normlab {

// The defaults are the preset tiny.
struct TrainConfig {
  GptConfig model;

  // Batches: `batch` sequences of `window` tokens a step, taken `micro_batch` sequences at a time.
  int64_t batch = 16;
  std::optional<int64_t> micro_batch;  // unset: the largest divisor of batch up to micro_batch_limit
  int64_t micro_batch_limit = 16;      // of the preset; no key
  int64_t steps = 300;
  std::optional<int64_t> window;   // unset: context_length
  double held_out_fraction = 0.1;  // the end of the text is kept from training
  int64_t held_out_windows = 256;  // at most so many are used for the test loss

  // Schedule: linear warm-up, then cosine down to the minimum.
  double learning_rate = 0.002;
  std::optional<double> min_learning_rate;  // unset: a tenth of learning_rate
  double warmup_fraction = 0.05;

  // AdamW; decay on matrices and embeddings, not on gains, biases and other 1-D tensors.
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double adam_eps = 1e-8;
  double grad_clip = 1.0;  // of the global gradient norm; 0: off

  double init = 0.02;                  // standard deviation of initial weights
  uint64_t seed = 1;                   // of initial weights and data order
  std::string dtype = "f32";           // of matrix products
  std::string residual_dtype = "f32";  // of the residual stream
  bool recompute = false;              // activations of a block again in backward: changes no bit

  // The values in use, defaults filled in.
  int64_t MicroBatch() const;
  int64_t Window() const { return window.value_or(model.context_length); }
  double MinLearningRate() const { return min_learning_rate.value_or(learning_rate / 10); }
  int64_t WarmupSteps() const;  // max(1, round(warmup_fraction * steps))
  int64_t TokensPerStep() const { return batch * Window(); }
  DType OperandType() const;
  DType ResidualType() const;

  // Checks what needs several keys, the model's too. Call once all keys are set. Throws Error.
  void Validate() const;

  bool operator==(const TrainConfig&) const = default;
};

// The keys of the model, then those of training.
std::span<const ConfigKey<TrainConfig>> TrainConfigKeys();

// Sets keys on top of `config`; call Validate after the last. Strict: an unknown key (the message proposes
// the nearest), a key given twice, a wrong type or a value out of range is an Error.
void Apply(TrainConfig& config, const Json& json, std::string_view source);
void ApplyText(TrainConfig& config, std::string_view text, std::string_view source);  // JSON with comments
void Set(TrainConfig& config, std::string_view assignment);                           // "key=value"
void Set(TrainConfig& config, std::string_view key, const Json& value);

Json ToJson(const TrainConfig& config);         // every key, with the values in use: for the record of a run
Json ToJsonAsGiven(const TrainConfig& config);  // null where a default follows from other keys

// A key in which two configurations (ToJson of TrainConfig) differ, with both values; nothing where they
// are equal.
struct KeyDifference {
  std::string key;
  Json recorded, asked;
  std::string ToString() const;  // "steps = 60 there, steps = 80 asked for"
};
std::vector<KeyDifference> Differences(const Json& recorded, const Json& asked);

// For --help and `list`: one entry per key; `preset` says whose values are shown.
struct KeyDescription {
  std::string name, description, allowed, value;
};
std::vector<KeyDescription> KeyDescriptions(const TrainConfig& config = {});

struct Preset {
  std::string name, description;
  TrainConfig config;
};
const std::vector<Preset>& Presets();
TrainConfig PresetConfig(std::string_view name);  // throws Error with the nearest name

// Keys of the norm that are set and change nothing, since this norm does not read them, and why not. The one
// place that knows which norm reads which key.
struct UnusedOption {
  std::string key;
  Json value;
  std::string reason;  // "rmsnorm does not use it without its gain"
};
std::vector<UnusedOption> UnusedNormOptions(const TrainConfig& config);

// The same configuration with those at their defaults: what runs.
TrainConfig WithoutUnusedNormOptions(TrainConfig config);

}  // namespace normlab
