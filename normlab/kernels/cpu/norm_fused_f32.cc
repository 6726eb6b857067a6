// The fused kernels for fp32 rows.
#define HWY_DISABLED_TARGETS HWY_AVX3_DL  // which would add nothing but time to compile
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/norm_fused_f32.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include "normlab/kernels/cpu/norm_fused.h"
#include "normlab/kernels/cpu/norm_fused_sets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

void FusedForwardRowsF32(const NormForwardRows& rows, FusedKind norm, const float* gain, const float* bias,
                         int64_t begin, int64_t end) {
  FusedForwardSets<float>(rows, norm, gain, bias, begin, end);
}
void FusedBackwardRowsF32(const NormBackwardRows& rows, FusedKind norm, const float* gain,
                          const ParameterPartials& partials, int64_t chunk, int64_t begin, int64_t end) {
  FusedBackwardSets<float>(rows, norm, gain, partials, chunk, begin, end);
}
void IdentityForwardRowsF32(const NormForwardRows& rows, int64_t begin, int64_t end) {
  IdentityForwardSets<float>(rows, begin, end);
}
void IdentityBackwardRowsF32(const NormBackwardRows& rows, int64_t begin, int64_t end) {
  IdentityBackwardSets<float>(rows, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {
namespace {

HWY_EXPORT(FusedForwardRowsF32);
HWY_EXPORT(FusedBackwardRowsF32);
HWY_EXPORT(IdentityForwardRowsF32);
HWY_EXPORT(IdentityBackwardRowsF32);

}  // namespace

FusedKernels FusedKernelsF32() {
  return {.forward = HWY_DYNAMIC_DISPATCH(FusedForwardRowsF32),
          .backward = HWY_DYNAMIC_DISPATCH(FusedBackwardRowsF32),
          .identity_forward = HWY_DYNAMIC_DISPATCH(IdentityForwardRowsF32),
          .identity_backward = HWY_DYNAMIC_DISPATCH(IdentityBackwardRowsF32)};
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
