#pragma once
// The names of norms: what a configuration calls norm_type, an implementation and a norm in one word.

#include <string>
#include <string_view>
#include <vector>

#include "normlab/norms/norm_spec.h"

namespace normlab {

// A norm_type of a configuration: "fused_rmsnorm", "layernorm", "no_norm". "pytorch_" is accepted for
// "fused_", as in the article's files. Throws Error that names the unknown text and the nearest known one.
struct NormType {
  NormKind kind{};
  NormImplementation implementation = NormImplementation::kFastest;
  bool operator==(const NormType&) const = default;
};
NormType ParseNormType(std::string_view text);
std::string Name(const NormType& type);

// Every accepted norm_type, aliases excluded, in the order of `list`.
std::vector<std::string> KnownNormTypes();

}  // namespace normlab
