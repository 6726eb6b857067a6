// The fused kernels for the sets of types with f16.
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // which would add nothing but time to compile
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/norm_fused_f16.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include "normlab/kernels/cpu/norm_fused.h"
#include "normlab/kernels/cpu/norm_fused_sets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

void FusedForwardRowsF16(const NormForwardRows& rows, FusedKind norm, const float* gain, const float* bias,
                         int64_t begin, int64_t end) {
  FusedForwardSets<Float16>(rows, norm, gain, bias, begin, end);
}
void FusedBackwardRowsF16(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                          const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  FusedBackwardSets<Float16>(rows, norm, gain, partials, chunk, begin, end);
}
void IdentityForwardRowsF16(const NormForwardRows& rows, int64_t begin, int64_t end) {
  IdentityForwardSets<Float16>(rows, begin, end);
}
void IdentityBackwardRowsF16(const NormBackwardRows& rows, int64_t begin, int64_t end) {
  IdentityBackwardSets<Float16>(rows, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {
namespace {

HWY_EXPORT(FusedForwardRowsF16);
HWY_EXPORT(FusedBackwardRowsF16);
HWY_EXPORT(IdentityForwardRowsF16);
HWY_EXPORT(IdentityBackwardRowsF16);

}  // namespace

FusedKernels FusedKernelsF16() {
  return {.forward = HWY_DYNAMIC_DISPATCH(FusedForwardRowsF16),
          .backward = HWY_DYNAMIC_DISPATCH(FusedBackwardRowsF16),
          .identity_forward = HWY_DYNAMIC_DISPATCH(IdentityForwardRowsF16),
          .identity_backward = HWY_DYNAMIC_DISPATCH(IdentityBackwardRowsF16)};
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
