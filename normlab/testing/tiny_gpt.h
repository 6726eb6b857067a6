#pragma once
// A GPT small enough for central differences, with weights that make every gradient count: matrices of
// standard deviation 0.2, gains around 1, biases around 0, all rounded to fp32 so that devices start from the
// same numbers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "normlab/base/random.h"
#include "normlab/kernels/device.h"
#include "normlab/model/gpt.h"

namespace normlab::test {

inline GptConfig TinyConfig(const std::string& norm_type, const std::string& position) {
  GptConfig config;
  config.vocab_size = 19;
  config.context_length = 8;
  config.emb_dim = 12;
  config.n_heads = 3;
  config.n_layers = 2;
  config.norm_type = norm_type;
  config.norm_position = position;
  config.norm_fraction = 0.5;    // 6 columns: one alone would bend too sharply for differences
  config.norm_alpha_init = 1.2;  // small activations: as much curvature as the other norms have
  return config;
}

inline std::vector<int32_t> RandomIds(int64_t count, int64_t vocab, const char* name) {
  const RandomStream stream(7, name);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(stream.Below(i, static_cast<uint64_t>(vocab)));
  return ids;
}

// A model with its weights, one batch, and the losses and gradients of the batch.
struct TinyGpt {
  Device& device;
  Gpt model;
  std::vector<int32_t> inputs, targets;

  TinyGpt(Device& on, const GptConfig& config, GptShape shape = {.micro_batch = 2, .window = 7},
          double std = 0.2)
      : device(on), model(on, config, 0.02, shape) {
    const int64_t count = shape.micro_batch * shape.window;
    inputs = RandomIds(count, config.vocab_size, "inputs");
    targets = RandomIds(count, config.vocab_size, "targets");
    targets[1] = -1;  // one target that is not counted
    for (const Parameter& parameter : model.parameters().all()) {
      const RandomStream stream(11, parameter.name);
      std::vector<double> values(static_cast<size_t>(parameter.elements()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(parameter.initial_mean + std * stream.Normal(i));
      device.Upload(values, model.Weight(parameter.name));
    }
    model.RefreshOperands();
  }

  double Scale() const {
    int64_t counted = 0;
    for (const int32_t target : targets) counted += target >= 0;
    return 1.0 / static_cast<double>(counted);
  }

  double Loss() {
    std::vector<double> losses(targets.size());
    model.Losses(inputs, targets, losses);
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return sum * Scale();
  }

  double LossAndGradients() {
    std::vector<double> losses(targets.size());
    model.LossesAndGradients(inputs, targets, Scale(), false, losses);
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return sum * Scale();
  }

  std::vector<double> Values(const View& view) const {
    std::vector<double> values(static_cast<size_t>(view.elements()));
    device.ReadBack(view, values);
    return values;
  }
};

}  // namespace normlab::test
