#include "normlab/model/config.h"

#include <vector>

#include "normlab/norms/norm_list.h"
#include "normlab/norms/norm_type.h"

namespace normlab {
namespace {

// One of a few words.
std::function<std::string(const std::string&)> OneOf(std::string name, std::vector<std::string> words) {
  return [name = std::move(name), words = std::move(words)](const std::string& text) {
    for (const std::string& word : words)
      if (word == text) return text;
    Fail("unknown {} {}", name, UnknownName(text, words));
  };
}

std::vector<ConfigKey<GptConfig>> MakeKeys() {
  using C = GptConfig;
  std::string norm_types;
  for (const NormInfo& info : AllNorms::kInfos)
    norm_types += fmt::format("{}{}", norm_types.empty() ? "" : ", ", info.name);
  norm_types += "; who computes it may stand before: fused_, generic_, handrolled_";
  // Upper bounds keep every product of extents far from 64 bits.
  return {
      IntegerKey<C>("vocab_size", "number of token ids", 1, INT32_MAX, &C::vocab_size),
      IntegerKey<C>("context_length", "longest sequence: rows of the position table", 1, 1 << 24,
                    &C::context_length),
      IntegerKey<C>("emb_dim", "width of the model", 1, 1 << 20, &C::emb_dim),
      IntegerKey<C>("n_heads", "attention heads; must divide emb_dim", 1, 1 << 20, &C::n_heads),
      IntegerKey<C>("n_layers", "blocks", 1, 10000, &C::n_layers),
      NumberKey<C>(
          "drop_rate", "dropout", "0, since dropout is not there yet",
          [](double value) { return value == 0; }, &C::drop_rate),
      BoolKey<C>("qkv_bias", "bias on queries, keys and values", &C::qkv_bias),
      BoolKey<C>("tie_weights", "the output head is the token embedding", &C::tie_weights),
      TextKey<C>(
          "norm_type", "the norm, and who computes it", norm_types,
          [](const std::string& text) { return Name(ParseNormType(text)); }, &C::norm_type),
      OptionalNumberKey<C>(
          "norm_eps", "epsilon of every norm; by default the norm's own", "a number from 0 to 1",
          [](double value) { return value >= 0 && value <= 1; }, &C::norm_eps,
          [](const C& c) { return c.NormEps(); }),
      BoolKey<C>("norm_gain", "norms keep the learned gain that they have", &C::norm_gain),
      BoolKey<C>("norm_bias", "norms keep the learned bias that they have", &C::norm_bias),
      NumberKey<C>(
          "norm_weight_offset", "added to the stored gain: 1 stores gains as 1 + g, starting at g = 0",
          "0 or 1", [](double value) { return value == 0 || value == 1; }, &C::norm_weight_offset),
      NumberKey<C>(
          "norm_fraction", "part of a row that gives the statistic of partial_rmsnorm",
          "a number above 0, at most 1", [](double value) { return value > 0 && value <= 1; },
          &C::norm_fraction),
      NumberKey<C>(
          "norm_alpha_init", "what the alpha of dyt starts at", "a number above 0, at most 100",
          [](double value) { return value > 0 && value <= 100; }, &C::norm_alpha_init),
      TextKey<C>("norm_cast", "where 16-bit results are rounded first; in fp32 both are the same",
                 "after_gain, before_gain", OneOf("norm_cast", {"after_gain", "before_gain"}), &C::norm_cast),
      TextKey<C>("norm_position", "before each sublayer (pre) or after its residual sum (post)", "pre, post",
                 OneOf("norm_position", {"pre", "post"}), &C::norm_position),
      BoolKey<C>("final_norm", "a norm before the output head", &C::final_norm),
  };
}

}  // namespace

std::span<const ConfigKey<GptConfig>> GptConfigKeys() {
  static const std::vector<ConfigKey<GptConfig>> keys = MakeKeys();
  return keys;
}

NormPosition GptConfig::position() const {
  return norm_position == "post" ? NormPosition::kPost : NormPosition::kPre;
}

double GptConfig::NormEps() const {
  return norm_eps.value_or(InfoOf(ParseNormType(norm_type).kind).default_eps);
}

NormSpec GptConfig::Norm() const {
  const NormType type = ParseNormType(norm_type);
  return {.kind = type.kind,
          .implementation = type.implementation,
          .eps = NormEps(),
          .gain = norm_gain,
          .bias = norm_bias,
          .weight_offset = norm_weight_offset,
          .fraction = norm_fraction,
          .alpha_init = norm_alpha_init,
          .cast = norm_cast == "before_gain" ? NormCast::kBeforeGain : NormCast::kAfterGain};
}

void GptConfig::Validate() const {
  // A configuration filled in by a program meets the same checks as one that was read.
  GptConfig checked;
  for (const ConfigKey<GptConfig>& key : GptConfigKeys()) key.set(checked, key.get(*this));
  if (emb_dim % n_heads != 0)
    Fail(
        "emb_dim = {} cannot be shared among n_heads = {}; emb_dim must be a multiple of n_heads, for "
        "example {}",
        emb_dim, n_heads, (emb_dim / n_heads + 1) * n_heads);
}

GptConfig GptConfigFromJson(const Json& json, std::string_view source) {
  GptConfig config;
  ApplyJson(GptConfigKeys(), config, json, source);
  try {
    config.Validate();
  } catch (const Error& error) {
    Fail("{}: {}", source, error.what());
  }
  return config;
}

Json ToJson(const GptConfig& config) { return DumpKeys(GptConfigKeys(), config); }

}  // namespace normlab
