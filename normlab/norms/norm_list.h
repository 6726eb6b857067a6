#pragma once
// Every norm that normlab knows. An entry here makes a norm known to list, train, compare, the reports and
// the tests.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "normlab/norms/norm_spec.h"

// The norms: one line each, here and in AllNorms.
#include "normlab/norms/dyt.h"
#include "normlab/norms/layernorm.h"
#include "normlab/norms/no_norm.h"
#include "normlab/norms/partial_rmsnorm.h"
#include "normlab/norms/recenter.h"
#include "normlab/norms/rescale.h"
#include "normlab/norms/rmsnorm.h"

namespace normlab {

template <class... Norms>
struct NormList {
  // The infos in order, each with its place as its kind.
  static constexpr std::array<NormInfo, sizeof...(Norms)> kInfos = [] {
    std::array<NormInfo, sizeof...(Norms)> infos{Norms::kInfo...};
    for (size_t i = 0; i < infos.size(); ++i) infos[i].kind = static_cast<NormKind>(i);
    return infos;
  }();

  template <class Norm>
  static constexpr NormKind KindOf() {
    static_assert((std::is_same_v<Norm, Norms> || ...), "not in the list");
    size_t place = 0;
    (void)((std::is_same_v<Norm, Norms> || (++place, false)) || ...);
    return static_cast<NormKind>(place);
  }

  // Calls f(Norm{}) for the norm of this kind and returns its result.
  template <class F>
  static decltype(auto) Visit(NormKind kind, F&& f);

  // Calls f(Norm{}) for each norm in order.
  template <class F>
  static void ForEach(F&& f) {
    (f(Norms{}), ...);
  }
};

using AllNorms = NormList<LayerNorm, RmsNorm, PartialRmsNorm, Recenter, Rescale, Dyt, NoNorm>;

// The kind of a norm of the list: KindOf<RmsNorm>().
template <class Norm>
constexpr NormKind KindOf() {
  return AllNorms::KindOf<Norm>();
}

const NormInfo& InfoOf(NormKind kind);

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

namespace internal {
template <class F, class First, class... Rest>
decltype(auto) VisitNorm(size_t place, F& f) {
  if constexpr (sizeof...(Rest) == 0) {
    return f(First{});
  } else {
    if (place == 0) return f(First{});
    return VisitNorm<F, Rest...>(place - 1, f);
  }
}
}  // namespace internal

template <class... Norms>
template <class F>
decltype(auto) NormList<Norms...>::Visit(NormKind kind, F&& f) {
  return internal::VisitNorm<F, Norms...>(static_cast<size_t>(kind), f);
}

}  // namespace normlab
