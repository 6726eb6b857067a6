#include "normlab/train/config.h"

#include <algorithm>
#include <cmath>

namespace normlab {
namespace {

std::function<bool(double)> AtLeast(double low) {
  return [low](double value) { return value >= low; };
}
std::function<bool(double)> Above(double low) {
  return [low](double value) { return value > low; };
}
bool IsFraction(double value) { return value >= 0 && value <= 1; }
bool IsInside(double value) { return value > 0 && value < 1; }
bool IsBeta(double value) { return value >= 0 && value < 1; }

std::function<std::string(const std::string&)> ElementType(std::string name) {
  return [name = std::move(name)](const std::string& text) {
    const std::vector<std::string> known = {"f32", "bf16"};
    if (std::ranges::find(known, text) == known.end()) Fail("unknown {} {}", name, UnknownName(text, known));
    return text;
  };
}

std::vector<ConfigKey<TrainConfig>> MakeKeys() {
  using C = TrainConfig;
  std::vector<ConfigKey<C>> keys;
  for (const ConfigKey<GptConfig>& key : GptConfigKeys()) keys.push_back(Nested<C>(key, &C::model));

  const std::vector<ConfigKey<C>> own = {
      IntegerKey<C>("batch", "sequences in a step", 1, 1 << 20, &C::batch),
      OptionalIntegerKey<C>("micro_batch", "sequences computed at a time; must divide batch", 1, 1 << 20,
                            &C::micro_batch, [](const C& c) { return c.MicroBatch(); }),
      IntegerKey<C>("steps", "updates of the weights", 1, int64_t{1} << 31, &C::steps),
      OptionalIntegerKey<C>("window", "tokens in a training sequence, up to context_length (the default)", 1,
                            1 << 24, &C::window, [](const C& c) { return c.Window(); }),
      NumberKey<C>("held_out_fraction", "share of the text, at its end, that is kept for the test loss",
                   "a number above 0 and below 1", IsInside, &C::held_out_fraction),
      IntegerKey<C>("held_out_windows",
                    "sequences of the test loss, evenly spaced; fewer where the text is short", 1, 1 << 20,
                    &C::held_out_windows),
      NumberKey<C>("learning_rate", "the highest, after warm-up", "a number from 0", AtLeast(0),
                   &C::learning_rate),
      OptionalNumberKey<C>("min_learning_rate", "at the last step; by default a tenth of learning_rate",
                           "a number from 0", AtLeast(0), &C::min_learning_rate,
                           [](const C& c) { return c.MinLearningRate(); }),
      NumberKey<C>("warmup_fraction", "share of the steps in which the learning rate rises",
                   "a number from 0 to 1", IsFraction, &C::warmup_fraction),
      NumberKey<C>("weight_decay",
                   "of matrices and embeddings; gains, biases and other 1-D tensors never decay",
                   "a number from 0", AtLeast(0), &C::weight_decay),
      NumberKey<C>("beta1", "AdamW: memory of the gradient", "a number from 0, below 1", IsBeta, &C::beta1),
      NumberKey<C>("beta2", "AdamW: memory of its square", "a number from 0, below 1", IsBeta, &C::beta2),
      NumberKey<C>(
          "adam_eps", "AdamW: added to the denominator", "a number from 1e-30",
          [](double v) { return v >= 1e-30; }, &C::adam_eps),
      NumberKey<C>("grad_clip", "largest global norm of the gradient; 0 switches clipping off",
                   "a number from 0", AtLeast(0), &C::grad_clip),
      NumberKey<C>(
          "init",
          "standard deviation of the initial weights; output projections divide it by sqrt(2 n_layers)",
          "a number above 0", Above(0), &C::init),
      IntegerKey<C>("seed", "of the initial weights and the order of the data", 0, INT64_MAX, &C::seed),
      TextKey<C>("dtype", "type of what matrix products read; sums, weights and moments are f32", "f32, bf16",
                 ElementType("dtype"), &C::dtype),
      TextKey<C>("residual_dtype", "type of the residual stream; bf16 goes with dtype = bf16 only",
                 "f32, bf16", ElementType("residual_dtype"), &C::residual_dtype),
      BoolKey<C>("recompute",
                 "backward computes the activations of each block again, in place of keeping them: the same "
                 "bits, less memory, more time",
                 &C::recompute),
  };
  keys.insert(keys.end(), own.begin(), own.end());
  return keys;
}

TrainConfig Study() {
  TrainConfig config;
  config.model.emb_dim = 384;
  config.model.n_layers = 6;
  config.model.n_heads = 6;
  config.steps = 1000;
  config.learning_rate = 0.001;
  return config;
}

TrainConfig Gpt2Small() {
  TrainConfig config;
  config.model.vocab_size = 50257;
  config.model.context_length = 1024;
  config.model.emb_dim = 768;
  config.model.n_heads = 12;
  config.model.n_layers = 12;
  config.batch = 96;
  config.micro_batch_limit = 4;
  config.steps = 33165;  // 20 tokens for each of 163,009,536 parameters, rounded up to whole steps
  config.learning_rate = 0.0014;
  return config;
}

}  // namespace

int64_t TrainConfig::MicroBatch() const {
  if (micro_batch) return *micro_batch;
  int64_t divisor = std::min(batch, micro_batch_limit);
  while (batch % divisor != 0) --divisor;
  return divisor;
}

int64_t TrainConfig::WarmupSteps() const {
  return std::max<int64_t>(1, std::llround(warmup_fraction * static_cast<double>(steps)));
}

DType TrainConfig::OperandType() const { return dtype == "bf16" ? DType::kBF16 : DType::kF32; }
DType TrainConfig::ResidualType() const { return residual_dtype == "bf16" ? DType::kBF16 : DType::kF32; }

void TrainConfig::Validate() const {
  model.Validate();
  NL_CHECK(micro_batch_limit >= 1);
  TrainConfig checked;
  for (const ConfigKey<TrainConfig>& key : TrainConfigKeys()) key.set(checked, key.get_as_given(*this));
  if (batch % MicroBatch() != 0)
    Fail(
        "micro_batch = {} does not divide batch = {}; set micro_batch to a divisor of batch, or to null for "
        "{}",
        *micro_batch, batch, [this] {
          TrainConfig free = *this;
          free.micro_batch.reset();
          return free.MicroBatch();
        }());
  if (Window() > model.context_length)
    Fail("window = {} is longer than context_length = {}; window may be at most context_length", Window(),
         model.context_length);
  if (residual_dtype == "bf16" && dtype != "bf16")
    Fail(
        "residual_dtype = bf16 goes with dtype = bf16, but dtype = {}; set both to bf16, or leave "
        "residual_dtype at f32",
        dtype);
  if (MinLearningRate() > learning_rate)
    Fail("min_learning_rate = {} is above learning_rate = {}; it must not be", MinLearningRate(),
         learning_rate);
}

std::span<const ConfigKey<TrainConfig>> TrainConfigKeys() {
  static const std::vector<ConfigKey<TrainConfig>> keys = MakeKeys();
  return keys;
}

void Apply(TrainConfig& config, const Json& json, std::string_view source) {
  ApplyJson(TrainConfigKeys(), config, json, source);
}

void ApplyText(TrainConfig& config, std::string_view text, std::string_view source) {
  Apply(config, ParseJson(text, source), source);
}

void Set(TrainConfig& config, std::string_view assignment) {
  ApplyAssignment(TrainConfigKeys(), config, assignment);
}

void Set(TrainConfig& config, std::string_view key, const Json& value) {
  FindKey(TrainConfigKeys(), key).set(config, value);
}

Json ToJson(const TrainConfig& config) { return DumpKeys(TrainConfigKeys(), config); }
Json ToJsonAsGiven(const TrainConfig& config) {
  return DumpKeys(TrainConfigKeys(), config, /*as_given=*/true);
}

std::string KeyDifference::ToString() const {
  return fmt::format("{} = {} there, {} = {} asked for", key, DumpJson(recorded), key, DumpJson(asked));
}

std::vector<KeyDifference> Differences(const Json& recorded, const Json& asked) {
  std::vector<KeyDifference> differences;
  for (const auto& [key, value] : asked.items()) {
    const auto it = recorded.find(key);
    const Json there = it == recorded.end() ? Json() : *it;
    if (there != value) differences.push_back({key, there, value});
  }
  for (const auto& [key, value] : recorded.items())
    if (!asked.contains(key)) differences.push_back({key, value, Json()});
  return differences;
}

std::vector<KeyDescription> KeyDescriptions(const TrainConfig& config) {
  std::vector<KeyDescription> descriptions;
  for (const ConfigKey<TrainConfig>& key : TrainConfigKeys())
    descriptions.push_back({key.name, key.description, key.allowed, DumpJson(key.get(config))});
  return descriptions;
}

const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = {
      {"tiny", "a byte-level model that trains in minutes on a laptop", TrainConfig{}},
      {"study", "a byte-level model large enough for a study of norms on one machine", Study()},
      {"gpt2-small", "the article's GPT-2 small with its whole schedule: 163 million parameters",
       Gpt2Small()}};
  return presets;
}

TrainConfig PresetConfig(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return preset.config;
    names.push_back(preset.name);
  }
  Fail("unknown preset {}", UnknownName(name, names));
}

std::vector<UnusedOption> UnusedNormOptions(const TrainConfig& config) {
  const GptConfig& model = config.model;
  const NormInfo& info = InfoOf(model.Norm().kind);
  const bool gains = info.has_gain && model.norm_gain;
  const char* const without_gain = info.has_gain ? " without its gain" : "";
  const struct {
    const char* key;
    bool used;
    const char* when = "";  // it is not used, where that depends on other keys
  } options[] = {
      {"norm_eps", info.uses_eps},
      {"norm_gain", info.has_gain},
      {"norm_bias", info.has_bias},
      {"norm_fraction", info.uses_fraction},
      {"norm_alpha_init", info.has_alpha},
      {"norm_weight_offset", gains, without_gain},
      {"norm_cast", gains && config.dtype != "f32", gains ? " in fp32" : without_gain},
  };
  const TrainConfig defaults;
  std::vector<UnusedOption> unused;
  for (const auto& option : options) {
    const ConfigKey<TrainConfig>& key = FindKey(TrainConfigKeys(), option.key);
    if (option.used || key.get_as_given(config) == key.get_as_given(defaults)) continue;
    unused.push_back({.key = option.key,
                      .value = key.get(config),
                      .reason = fmt::format("{} does not use it{}", model.norm_type, option.when)});
  }
  return unused;
}

TrainConfig WithoutUnusedNormOptions(TrainConfig config) {
  const TrainConfig defaults;
  for (const UnusedOption& option : UnusedNormOptions(config)) {
    const ConfigKey<TrainConfig>& key = FindKey(TrainConfigKeys(), option.key);
    key.set(config, key.get_as_given(defaults));
  }
  return config;
}

}  // namespace normlab
