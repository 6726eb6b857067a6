#pragma once
// The shape of a GPT and its norms. The JSON keys are those of the article's configuration files, so that
// those files load. The feed-forward layer is 4 times as wide as the model, with tanh-GELU; positions are
// learned.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "normlab/base/config_keys.h"
#include "normlab/norms/norm_spec.h"

namespace normlab {

enum class NormPosition {
  kPre,   // x + f(norm(x)): GPT-2 and later
  kPost,  // norm(x + f(x)): the original transformer
};

// The defaults are the preset tiny.
struct GptConfig {
  static constexpr int64_t kFeedForwardFactor = 4;

  int64_t vocab_size = 256;
  int64_t context_length = 256;  // rows of the position table
  int64_t emb_dim = 128;
  int64_t n_heads = 4;
  int64_t n_layers = 4;
  double drop_rate = 0.0;                          // only 0 so far
  bool qkv_bias = false;                           // bias on queries, keys and values
  bool tie_weights = false;                        // output head = token embedding
  std::string norm_type = "handrolled_layernorm";  // as ParseNormType names it: aliases are replaced
  std::optional<double> norm_eps;                  // unset: NormInfo::default_eps of the norm
  bool norm_gain = true;                           // false: norms go without the gain that they have
  bool norm_bias = true;                           // false: norms go without the bias that they have
  double norm_weight_offset = 0;                   // 1: gains are stored as 1 + g
  double norm_fraction = NormSpec{}.fraction;      // of partial_rmsnorm
  double norm_alpha_init = NormSpec{}.alpha_init;  // of dyt
  std::string norm_cast = "after_gain";            // of 16-bit results; in fp32 both are the same
  std::string norm_position = "pre";
  bool final_norm = true;

  int64_t head_dim() const { return emb_dim / n_heads; }
  int64_t feed_forward_dim() const { return kFeedForwardFactor * emb_dim; }
  NormPosition position() const;
  double NormEps() const;  // the value in use
  NormSpec Norm() const;   // of every site

  // Checks what needs several keys; single values are checked when they are set. Throws Error.
  void Validate() const;

  bool operator==(const GptConfig&) const = default;
};

// The keys of a GptConfig, in the order of help and dump.
std::span<const ConfigKey<GptConfig>> GptConfigKeys();

// Strict: an unknown key, a wrong type or a value out of range is an Error that begins with `source`.
// Keys that are not given keep the defaults. The result is validated.
GptConfig GptConfigFromJson(const Json& json, std::string_view source);
Json ToJson(const GptConfig& config);  // every key, with the values in use

}  // namespace normlab
