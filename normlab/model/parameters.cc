#include "normlab/model/parameters.h"

#include <algorithm>
#include <cmath>

#include "normlab/base/error.h"
#include "normlab/base/random.h"
#include "normlab/base/threads.h"
#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {

constexpr int64_t kAlignment = 16;

// Collects tensors in the order of the model; groups stay adjacent.
class Builder {
 public:
  void Add(Parameter parameter, bool adjacent_to_last = false) {
    auto& list = parameter.decays ? matrices_ : vectors_;
    list.push_back({std::move(parameter), adjacent_to_last});
  }

  // Assigns offsets: matrices, then vectors.
  std::vector<Parameter> Finish(int64_t& flat, int64_t& flat_decayed) {
    std::vector<Parameter> all;
    for (auto* list : {&matrices_, &vectors_}) {
      for (Entry& entry : *list) {
        if (!entry.adjacent) flat = (flat + kAlignment - 1) / kAlignment * kAlignment;
        entry.parameter.offset = flat;
        flat += entry.parameter.elements();
        all.push_back(std::move(entry.parameter));
      }
      flat = (flat + kAlignment - 1) / kAlignment * kAlignment;
      if (list == &matrices_) flat_decayed = flat;
    }
    return all;
  }

 private:
  struct Entry {
    Parameter parameter;
    bool adjacent;
  };
  std::vector<Entry> matrices_, vectors_;
};

}  // namespace

int64_t Parameter::elements() const {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

ParameterList::ParameterList(const GptConfig& config, double init) {
  const int64_t C = config.emb_dim, F = config.feed_forward_dim();
  const double output_init = init / std::sqrt(2.0 * static_cast<double>(config.n_layers));
  const NormSpec norm = config.Norm();
  const NormInfo& norm_info = InfoOf(norm.kind);

  Builder builder;
  const auto matrix = [&](std::string name, int64_t out, int64_t in, double std, bool adjacent = false) {
    builder.Add({.name = std::move(name), .shape = {out, in}, .initial_std = std, .decays = true}, adjacent);
  };
  const auto bias = [&](std::string name, int64_t n, bool adjacent = false) {
    builder.Add({.name = std::move(name), .shape = {n}}, adjacent);
  };
  const auto norm_site = [&](const std::string& name) {
    if (norm_info.has_gain && norm.gain)
      builder.Add(
          {.name = name + ".scale", .shape = {C}, .initial_mean = 1 - norm.weight_offset, .of_norm = true});
    if (norm_info.has_bias && norm.bias)
      builder.Add({.name = name + ".shift", .shape = {C}, .of_norm = true});
    if (norm_info.has_alpha)
      builder.Add({.name = name + ".alpha", .shape = {1}, .initial_mean = norm.alpha_init, .of_norm = true});
  };

  matrix("tok_emb.weight", config.vocab_size, C, init);
  matrix("pos_emb.weight", config.context_length, C, init);
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string block = fmt::format("trf_blocks.{}.", i);
    for (const char* name : {"W_query", "W_key", "W_value"}) {
      const bool adjacent = std::string_view(name) != "W_query";
      matrix(fmt::format("{}att.{}.weight", block, name), C, C, init, adjacent);
      if (config.qkv_bias) bias(fmt::format("{}att.{}.bias", block, name), C, adjacent);
    }
    matrix(block + "att.out_proj.weight", C, C, output_init);
    bias(block + "att.out_proj.bias", C);
    matrix(block + "ff.layers.0.weight", F, C, init);
    bias(block + "ff.layers.0.bias", F);
    matrix(block + "ff.layers.2.weight", C, F, output_init);
    bias(block + "ff.layers.2.bias", C);
    norm_site(block + "norm1");
    norm_site(block + "norm2");
  }
  if (config.final_norm) norm_site("final_norm");
  if (!config.tie_weights) matrix("out_head.weight", config.vocab_size, C, init);
  parameters_ = builder.Finish(flat_, flat_decayed_);
  for (size_t i = 0; i < parameters_.size(); ++i) place_of_.emplace(parameters_[i].name, i);
}

const Parameter* ParameterList::Find(std::string_view name) const {
  const auto it = place_of_.find(name);
  return it == place_of_.end() ? nullptr : &parameters_[it->second];
}

int64_t ParameterList::count() const {
  int64_t n = 0;
  for (const Parameter& parameter : parameters_) n += parameter.elements();
  return n;
}

int64_t ParameterList::norm_count() const {
  int64_t n = 0;
  for (const Parameter& parameter : parameters_) n += parameter.of_norm ? parameter.elements() : 0;
  return n;
}

View ParameterList::Of(std::string_view name, const View& flat) const {
  const Parameter* const parameter = Find(name);
  if (parameter == nullptr) return {};
  View view = flat.Slice(parameter->offset, parameter->offset + parameter->elements());
  if (parameter->shape.size() == 2) return view.Reshaped({parameter->shape[0], parameter->shape[1]});
  return view;
}

std::vector<double> ParameterList::InitialValues(const Parameter& parameter, uint64_t seed,
                                                 int threads) const {
  std::vector<double> values(static_cast<size_t>(parameter.elements()), parameter.initial_mean);
  if (parameter.initial_std == 0) return values;
  const RandomStream stream(seed, parameter.name);
  constexpr int64_t kChunk = 1 << 14;
  const int64_t count = parameter.elements();
  ParallelFor(threads, (count + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i)
      values[static_cast<size_t>(i)] += parameter.initial_std * stream.Normal(static_cast<uint64_t>(i));
  });
  return values;
}

}  // namespace normlab
