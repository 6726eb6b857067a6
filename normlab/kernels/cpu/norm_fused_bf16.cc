// The fused kernels for the sets of types with bf16.
#define HWY_WANT_AVX3_DL                // Highway leaves it out unless asked; here it stands for AVX-512-BF16
#define HWY_DISABLED_TARGETS HWY_SSSE3  // which would add little but time to compile
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/norm_fused_bf16.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include "normlab/kernels/cpu/norm_fused.h"
#include "normlab/kernels/cpu/norm_fused_sets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3_DL
using Low = NativeBFloat16;
#else
using Low = BFloat16;
#endif

void FusedForwardRowsBf16(const NormForwardRows& rows, FusedKind norm, const float* gain, const float* bias,
                          int64_t begin, int64_t end) {
  FusedForwardSets<Low>(rows, norm, gain, bias, begin, end);
}
void FusedBackwardRowsBf16(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                           const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  FusedBackwardSets<Low>(rows, norm, gain, partials, chunk, begin, end);
}
void IdentityForwardRowsBf16(const NormForwardRows& rows, int64_t begin, int64_t end) {
  IdentityForwardSets<Low>(rows, begin, end);
}
void IdentityBackwardRowsBf16(const NormBackwardRows& rows, int64_t begin, int64_t end) {
  IdentityBackwardSets<Low>(rows, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {
namespace {

HWY_EXPORT(FusedForwardRowsBf16);
HWY_EXPORT(FusedBackwardRowsBf16);
HWY_EXPORT(IdentityForwardRowsBf16);
HWY_EXPORT(IdentityBackwardRowsBf16);

}  // namespace

FusedKernels FusedKernelsBf16() {
  // Before the first dispatch of the process the table would give its chooser instead of a kernel.
  if (!hwy::GetChosenTarget().IsInitialized()) hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  FusedKernels kernels{.forward = HWY_DYNAMIC_DISPATCH(FusedForwardRowsBf16),
                       .backward = HWY_DYNAMIC_DISPATCH(FusedBackwardRowsBf16),
                       .identity_forward = HWY_DYNAMIC_DISPATCH(IdentityForwardRowsBf16),
                       .identity_backward = HWY_DYNAMIC_DISPATCH(IdentityBackwardRowsBf16)};
#if (HWY_TARGETS & HWY_AVX3) && (HWY_TARGETS & HWY_AVX3_DL)
  // Ice Lake has the one and not the other.
  if (kernels.forward == N_AVX3_DL::FusedForwardRowsBf16 && !__builtin_cpu_supports("avx512bf16"))
    kernels = {.forward = N_AVX3::FusedForwardRowsBf16,
               .backward = N_AVX3::FusedBackwardRowsBf16,
               .identity_forward = N_AVX3::IdentityForwardRowsBf16,
               .identity_backward = N_AVX3::IdentityBackwardRowsBf16};
#endif
  return kernels;
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
