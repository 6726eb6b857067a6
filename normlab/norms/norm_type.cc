#include "normlab/norms/norm_type.h"

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"
#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {
constexpr NormImplementation kNamed[] = {NormImplementation::kFused, NormImplementation::kLibrary,
                                         NormImplementation::kGeneric, NormImplementation::kHandrolled};
}  // namespace

std::string Name(const NormType& type) {
  const NormInfo& info = InfoOf(type.kind);
  if (type.implementation == NormImplementation::kFastest || info.identity) return std::string(info.name);
  return fmt::format("{}_{}", Name(type.implementation), info.name);
}

std::vector<std::string> KnownNormTypes() {
  std::vector<std::string> names;
  for (const NormInfo& info : AllNorms::kInfos) {
    names.push_back(std::string(info.name));
    if (info.identity) continue;  // every implementation of the identity is the same
    for (const NormImplementation implementation : kNamed)
      names.push_back(Name(NormType{info.kind, implementation}));
  }
  return names;
}

NormType ParseNormType(std::string_view text) {
  std::string canonical(text);
  if (canonical.starts_with("pytorch_")) canonical.replace(0, 8, "fused_");
  for (const NormInfo& info : AllNorms::kInfos) {
    if (canonical == info.name) return {info.kind, NormImplementation::kFastest};
    if (info.identity) continue;
    for (const NormImplementation implementation : kNamed) {
      const NormType type{info.kind, implementation};
      if (canonical == Name(type)) return type;
    }
  }
  // The kinds alone: not every kind has every implementation, and which run is for the device to say.
  std::string message = fmt::format("unknown norm_type \"{}\"; ", text);
  if (const auto nearest = Nearest(text, KnownNormTypes()))
    message += fmt::format("did you mean \"{}\"? ", *nearest);
  std::string kinds, prefixes;
  for (const NormInfo& info : AllNorms::kInfos)
    kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", info.name);
  for (const NormImplementation implementation : kNamed)
    prefixes += fmt::format("{}{}_", prefixes.empty() ? "" : ", ", Name(implementation));
  Fail("{}known: {}; who computes it may stand before: {}", message, kinds, prefixes);
}

}  // namespace normlab
