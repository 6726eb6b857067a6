// Which implementation of a norm runs on the CPU: an ordered list, the first that accepts wins, each refusal
// has a reason. Nothing is cached: NORMLAB_FORCE_NORM is read at each call, so tests can change it.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"
#include "normlab/kernels/cpu/norm_kernels.h"

namespace normlab::cpu {
namespace {

constexpr const char* kForceVariable = "NORMLAB_FORCE_NORM";

const NormImplementationEntry* FindEntry(NormImplementation implementation) {
  for (const NormImplementationEntry* entry : NormImplementationOrder())
    if (entry->implementation == implementation) return entry;
  return nullptr;
}

[[noreturn]] void Refuse(const NormSpec& spec, NormImplementation implementation, const std::string& reason) {
  const std::string_view kind = InfoOf(spec.kind).name;
  Fail("{}_{} cannot run here: {}; use {}_{} or {}", Name(implementation), kind, reason,
       Name(NormImplementation::kGeneric), kind, kind);
}

}  // namespace

std::span<const NormImplementationEntry* const> NormImplementationOrder() {
  // The generic body refuses nothing, so kFastest never comes as far as the library's and the hand-rolled
  // form.
  static const std::array<const NormImplementationEntry*, 4> order = {&FusedNorm(), &GenericNorm(),
                                                                      &LibraryNorm(), &HandrolledNorm()};
  return order;
}

NormImplementation ForcedImplementation() {
  const char* forced = std::getenv(kForceVariable);
  if (forced == nullptr || *forced == '\0') return NormImplementation::kFastest;
  std::vector<std::string> names;
  for (const NormImplementationEntry* entry : NormImplementationOrder()) {
    names.emplace_back(Name(entry->implementation));
    if (names.back() == forced) return entry->implementation;
  }
  Fail("{} names an unknown implementation {}", kForceVariable, UnknownName(forced, names));
}

const NormImplementationEntry& ResolveNorm(const NormSpec& spec, int64_t cols) {
  NormImplementation wanted = spec.implementation;
  if (wanted == NormImplementation::kFastest) wanted = ForcedImplementation();
  if (wanted == NormImplementation::kFastest) {
    for (const NormImplementationEntry* entry : NormImplementationOrder())
      if (!entry->refuses(spec, cols)) return *entry;
    NL_CHECK(!"the generic norm refused");
  }
  const NormImplementationEntry* entry = FindEntry(wanted);
  if (entry == nullptr)
    Refuse(spec, wanted, fmt::format("this build has no {} norms on the CPU", Name(wanted)));
  if (const auto refusal = entry->refuses(spec, cols)) Refuse(spec, wanted, *refusal);
  return *entry;
}

}  // namespace normlab::cpu
