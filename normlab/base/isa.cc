#define HWY_WANT_AVX3_DL  // Highway leaves it out unless asked; kernels of bf16 rows have it
#include "normlab/base/isa.h"

#include <algorithm>
#include <cctype>

#include <hwy/targets.h>

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"

namespace normlab {
namespace {

struct Isa {
  const char* name;
  int64_t target;
};
// Highway's targets are bits; a smaller bit is a wider instruction set.
constexpr Isa kIsas[] = {{"ssse3", HWY_SSSE3},
                         {"sse4", HWY_SSE4},
                         {"avx2", HWY_AVX2},
                         {"avx512", HWY_AVX3},
                         {"avx512_dl", HWY_AVX3_DL}};

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  const int64_t supported = hwy::SupportedTargets();
  for (const Isa& isa : kIsas)
    if ((supported & isa.target) != 0 && (HWY_ATTAINABLE_TARGETS & isa.target) != 0)
      names.push_back(isa.name);
  return names;
}

std::string CurrentIsa() {
  const auto names = SupportedIsas();
  return names.empty() ? "scalar" : names.back();
}

void LimitIsa(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  if (name.empty()) return;
  const auto names = SupportedIsas();
  if (std::find(names.begin(), names.end(), name) == names.end())
    Fail("unknown or unsupported instruction set {}", UnknownName(name, names));
  int64_t allowed = 0;
  for (const Isa& isa : kIsas) {
    allowed |= isa.target;
    if (isa.name == name) break;
  }
  hwy::SetSupportedTargetsForTest(allowed & hwy::SupportedTargets());
}

}  // namespace normlab
