#include "normlab/norms/norm_list.h"

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"

namespace normlab {
namespace {
constexpr NormImplementation kNamed[] = {NormImplementation::kFused, NormImplementation::kGeneric,
                                         NormImplementation::kHandrolled};
}  // namespace

const NormInfo& InfoOf(NormKind kind) {
  const size_t place = static_cast<size_t>(kind);
  NL_CHECK_LE(place + 1, AllNorms::kInfos.size());
  return AllNorms::kInfos[place];
}

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
  const std::vector<std::string> known = KnownNormTypes();
  Fail("unknown norm_type {}", UnknownName(text, known));
}

}  // namespace normlab
