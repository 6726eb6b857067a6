#pragma once
// The norm implementations that tests go through: every one that the CPU device lists for a norm, on every
// instruction set of this processor.

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/isa.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/norms/norm_type.h"

namespace normlab::test {

// Nothing wider than `isa` while this lives.
class IsaScope {
 public:
  explicit IsaScope(std::string_view isa) { LimitIsa(isa); }
  ~IsaScope() { LimitIsa(""); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;
};

// The implementations that take the spec at this width.
inline std::vector<NormImplementation> ImplementationsFor(const Device& device, const NormSpec& spec,
                                                          int64_t cols) {
  std::vector<NormImplementation> list;
  for (const NormImplementationStatus& status : device.NormImplementations(spec, cols))
    if (!status.refusal) list.push_back(status.implementation);
  return list;
}

// Every norm_type that runs: "layernorm", "fused_layernorm", ... , "no_norm".
inline std::vector<std::string> NormTypesThatRun(const Device& device) {
  std::vector<std::string> names;
  for (const std::string& name : KnownNormTypes()) {
    const NormType type = ParseNormType(name);
    const std::vector<NormImplementation> list = ImplementationsFor(device, {.kind = type.kind}, 64);
    if (type.implementation == NormImplementation::kFastest ||
        std::find(list.begin(), list.end(), type.implementation) != list.end())
      names.push_back(name);
  }
  return names;
}

// Calls f(spec that names the implementation, "fused_layernorm on avx2") for each implementation and
// instruction set.
inline void ForEachImplementation(const Device& device, const NormSpec& spec, int64_t cols,
                                  const std::function<void(const NormSpec&, const std::string&)>& f,
                                  bool every_isa = true) {
  std::vector<std::string> isas = SupportedIsas();
  if (!every_isa || isas.empty()) isas = {""};
  for (const std::string& isa : isas) {
    const IsaScope scope(isa);
    for (const NormImplementation implementation : ImplementationsFor(device, spec, cols)) {
      // oneDNN's instruction set is chosen once for a process, so one run of it says all.
      if (implementation == NormImplementation::kLibrary && isa != isas.back()) continue;
      NormSpec named = spec;
      named.implementation = implementation;
      f(named, fmt::format("{}_{} on {}", Name(implementation), InfoOf(spec.kind).name,
                           isa.empty() ? "the widest" : isa));
    }
  }
}

}  // namespace normlab::test
