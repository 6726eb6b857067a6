#pragma once
// Every norm that normlab knows. One line here makes a norm known to list, train, compare, the reports and
// the conformance test.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/norms/layernorm.h"
#include "normlab/norms/no_norm.h"
#include "normlab/norms/norm_spec.h"
#include "normlab/norms/rmsnorm.h"

namespace normlab {

template <class... Norms>
struct NormList {
  static constexpr std::array<NormInfo, sizeof...(Norms)> kInfos{Norms::kInfo...};

  // Calls f(Norm{}) for the norm of this kind and returns its result.
  template <class F>
  static decltype(auto) Visit(NormKind kind, F&& f);

  // Calls f(Norm{}) for each norm in order.
  template <class F>
  static void ForEach(F&& f) {
    (f(Norms{}), ...);
  }
};

using AllNorms = NormList<LayerNorm, RmsNorm, NoNorm>;

const NormInfo& InfoOf(NormKind kind);

// A norm_type of a configuration: "fused_rmsnorm", "layernorm", "no_norm". "pytorch_" is accepted for
// "fused_", as in the article's files. Throws Error that names the unknown text and the nearest known one.
struct NormType {
  NormKind kind = NormKind::kLayerNorm;
  NormImplementation implementation = NormImplementation::kFastest;
  bool operator==(const NormType&) const = default;
};
NormType ParseNormType(std::string_view text);
std::string Name(const NormType& type);

// Every accepted norm_type, aliases excluded, in the order of `list`.
std::vector<std::string> KnownNormTypes();

namespace internal {
template <class F, class First, class... Rest>
decltype(auto) VisitNorm(NormKind kind, F& f) {
  if constexpr (sizeof...(Rest) == 0) {
    return f(First{});
  } else {
    if (kind == First::kInfo.kind) return f(First{});
    return VisitNorm<F, Rest...>(kind, f);
  }
}
}  // namespace internal

template <class... Norms>
template <class F>
decltype(auto) NormList<Norms...>::Visit(NormKind kind, F&& f) {
  return internal::VisitNorm<F, Norms...>(kind, f);
}

}  // namespace normlab
