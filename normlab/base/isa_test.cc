#include "normlab/base/isa.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "normlab/base/error.h"

namespace normlab {
namespace {

bool Has(const std::vector<std::string>& names, const char* name) {
  return std::ranges::find(names, name) != names.end();
}

#if defined(__x86_64__)
// What the system saves of the vector registers when it switches threads (XCR0); 0 where it cannot be asked.
uint64_t EnabledState() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsXsave = 1u << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// P-06: normlab reads no processor flags itself. Highway finds the instruction sets, and drops those whose
// registers the system does not save (SupportedTargets reads XCR0 and tests its bits 1, 2, 5, 6, 7). Held
// here against the processor's own word.
TEST(SupportedIsas, NeedTheStateThatTheSystemSaves) {
  const std::vector<std::string> names = SupportedIsas();
  constexpr uint64_t kXmmYmm = 0x6, kOpmaskZmm = 0xe0;
  if ((EnabledState() & kXmmYmm) != kXmmYmm) {
    EXPECT_FALSE(Has(names, "avx2"));
  }
  if ((EnabledState() & (kXmmYmm | kOpmaskZmm)) != (kXmmYmm | kOpmaskZmm)) {
    EXPECT_FALSE(Has(names, "avx512"));
    EXPECT_FALSE(Has(names, "avx512_dl"));
  }
}
#endif

// P-06: what runs is what Highway supports here, minus the limit; a limit never adds anything.
TEST(LimitIsa, LeavesWhatIsSupportedAndNotWider) {
  const int64_t everything = hwy::SupportedTargets();
  const std::vector<std::string> names = SupportedIsas();
  for (size_t i = 0; i < names.size(); ++i) {
    LimitIsa(names[i]);
    EXPECT_EQ(CurrentIsa(), names[i]);
    EXPECT_EQ(SupportedIsas(), std::vector<std::string>(names.begin(), names.begin() + i + 1));
    EXPECT_EQ(hwy::SupportedTargets() & ~everything, 0) << names[i];
    EXPECT_NE(hwy::SupportedTargets(), 0) << names[i];
  }
  LimitIsa("");
  EXPECT_EQ(hwy::SupportedTargets(), everything);
  EXPECT_EQ(SupportedIsas(), names);
}

// P-06: a processor without AVX-512 state, as Highway would report it, offers none and refuses to be told to.
TEST(LimitIsa, RefusesWhatTheProcessorLacks) {
  const std::vector<std::string> names = SupportedIsas();
  if (names.size() < 2) GTEST_SKIP() << "only the narrowest instruction set here";
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    LimitIsa(names[i]);
    EXPECT_FALSE(Has(SupportedIsas(), names.back().c_str()));
    LimitIsa("");
  }
  EXPECT_THROW(LimitIsa("avx1024"), Error);
  EXPECT_EQ(SupportedIsas(), names);
}

}  // namespace
}  // namespace normlab
