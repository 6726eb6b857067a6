// The passes of the hand-rolled norms, with their reads and writes in matrices of rows * cols:
//
//                        forward              backward
//   layernorm            6 reads + 4 writes   21 reads + 13 writes
//   rmsnorm              4 reads + 3 writes   17 reads + 12 writes
//   residual addition    2 reads + 1 write    2 reads + 1 write (the gradient sum, accumulate_dx)
//   each conversion      1 read  + 1 write    1 read  + 1 write (where something has 16 bits)
//
// Backward follows PyTorch's autograd (tools/autograd/derivatives.yaml, FunctionsManual.cpp) formula by
// formula:
//   a * b     grad * b, grad * a; then a sum to the shape of the smaller operand
//   a / b     grad / b for a;  -grad * ((a / b) / b) for b: four operations and a sum
//   a - b     grad for a (no operation);  -grad for b, and a sum
//   sqrt      grad / (2 * result)
//   mean      grad spread over the row, divided by its length
//   var       (2 / n) * grad * (x - x.mean()): the mean is taken again
//   x ** 2    grad * (2 * x.pow(1)), where pow(1) is a copy
// and x, used several times, gets its gradients added one by one. Nodes run in the engine's order: latest
// first. Saved: layernorm x - mean, norm_x and std; rmsnorm x / rms and rms (x itself is the caller's).
#include "normlab/kernels/cpu/norm_handrolled.h"
#include "normlab/norms/norm_list.h"

namespace normlab::cpu {
namespace {

using enum Operand;
using K = PassKind;

constexpr Pass kBranchToFp32{"branch to fp32", K::kConvert, kX, kNothing,
                             kBranch,          1,           1,  PassWhen::kLowBranch};
constexpr Pass kAddResidual{"residual + x", K::kAdd, kResidual, kBranch,
                            kStored,        2,       1,         PassWhen::kWithResidual};
constexpr Pass kInputToFp32{"x to fp32", K::kConvert, kStored, kNothing, kInput, 1, 1, PassWhen::kLowInput};
constexpr Pass kRoundNormalized{"norm_x rounded to 16 bits", K::kRound, kNormalized, kNothing, kScaled, 1, 1,
                                PassWhen::kRounding};
constexpr Pass kYTo16Bits{"y to 16 bits", K::kConvert, kY, kNothing, kStoredY, 1, 1, PassWhen::kLowY};

constexpr Pass kDyToFp32{"dy to fp32", K::kConvert, kStoredDy, kNothing, kDy, 1, 1, PassWhen::kLowDy};
constexpr Pass kDxToFp32{"dx to fp32", K::kConvert, kStoredDx, kNothing,
                         kDx,          1,           1,         PassWhen::kAccumulatingLowDx};
constexpr Pass kAddGradient{"dx += gradient", K::kAdd, kDx, kGradient, kDx, 2, 1, PassWhen::kAccumulating};
constexpr Pass kDxTo16Bits{"dx to 16 bits", K::kConvert, kDx, kNothing, kStoredDx, 1, 1, PassWhen::kLowDx};
constexpr Pass kDxLowOfDx{"dx_low = dx to 16 bits", K::kConvert, kDx, kNothing, kDxLow, 1, 1,
                          PassWhen::kWithDxLow};

constexpr Pass kLayerNormForward[] = {
    kBranchToFp32,
    kAddResidual,
    kInputToFp32,
    {"mean", K::kRowMean, kInput, kNothing, kRow0, 1, 0},
    {"var", K::kRowVariance, kInput, kNothing, kRow1, 1, 0},
    {"x - mean", K::kSubtract, kInput, kRow0, kCentered, 1, 1},
    {"var + eps", K::kRowAddEps, kRow1, kNothing, kRow1, 0, 0},
    {"std = sqrt", K::kRowRoot, kRow1, kNothing, kRowStd, 0, 0},
    {"norm_x = (x - mean) / std", K::kDivide, kCentered, kRowStd, kNormalized, 1, 1},
    kRoundNormalized,
    {"scale * norm_x", K::kMultiply, kScaled, kScale, kTemp0, 1, 1},
    {"+ shift", K::kAdd, kTemp0, kShift, kY, 1, 1},
    kYTo16Bits,
};

constexpr Pass kLayerNormBackward[] = {
    kInputToFp32,
    kDyToFp32,
    kRoundNormalized,
    {"dshift = sum of dy", K::kColumnSum, kDy, kNothing, kDshift, 1, 0},
    {"dy * norm_x", K::kMultiply, kDy, kScaled, kTemp0, 2, 1},
    {"g = dy * scale", K::kMultiply, kDy, kScale, kTemp1, 1, 1},
    {"dscale = sum of dy * norm_x", K::kColumnSum, kTemp0, kNothing, kDscale, 1, 0},
    {"gc = g / std", K::kDivide, kTemp1, kRowStd, kTemp2, 1, 1},
    {"-g", K::kNegate, kTemp1, kNothing, kTemp0, 1, 1},
    {"(x - mean) / std", K::kDivide, kCentered, kRowStd, kTemp3, 1, 1},
    {"/ std", K::kDivide, kTemp3, kRowStd, kTemp4, 1, 1},
    {"-g * ...", K::kMultiply, kTemp0, kTemp4, kTemp3, 2, 1},
    {"dstd = row sum", K::kRowSum, kTemp3, kNothing, kRow0, 1, 0},
    {"dvar = dstd / (2 std)", K::kRowRootGradient, kRow0, kRowStd, kRow0, 0, 0},
    {"-gc", K::kNegate, kTemp2, kNothing, kTemp0, 1, 1},
    {"dmean = row sum", K::kRowSum, kTemp0, kNothing, kRow1, 1, 0},
    {"(2 / n) * dvar", K::kRowTwiceMean, kRow0, kNothing, kRow0, 0, 0},
    {"mean, again", K::kRowMean, kInput, kNothing, kRow2, 1, 0},
    {"x - mean, again", K::kSubtract, kInput, kRow2, kTemp0, 1, 1},
    {"* (2 / n) dvar", K::kMultiply, kTemp0, kRow0, kTemp1, 1, 1},
    {"gc += from var", K::kAdd, kTemp2, kTemp1, kTemp2, 2, 1},
    {"dmean spread / n", K::kSpread, kRow1, kNothing, kTemp0, 0, 1},
    {"gradient = gc + from mean", K::kAdd, kTemp2, kTemp0, kGradient, 2, 1},
    kDxToFp32,
    kAddGradient,
    kDxTo16Bits,
    kDxLowOfDx,
};

constexpr Pass kRmsNormForward[] = {
    kBranchToFp32,
    kAddResidual,
    kInputToFp32,
    {"x ** 2", K::kSquare, kInput, kNothing, kTemp0, 1, 1},
    {"mean", K::kRowMean, kTemp0, kNothing, kRow0, 1, 0},
    {"+ eps", K::kRowAddEps, kRow0, kNothing, kRow0, 0, 0},
    {"rms = sqrt", K::kRowRoot, kRow0, kNothing, kRowStd, 0, 0},
    {"norm_x = x / rms", K::kDivide, kInput, kRowStd, kNormalized, 1, 1},
    kRoundNormalized,
    {"norm_x * scale", K::kMultiply, kScaled, kScale, kY, 1, 1},
    kYTo16Bits,
};

constexpr Pass kRmsNormBackward[] = {
    kInputToFp32,
    kDyToFp32,
    kRoundNormalized,
    {"g = dy * scale", K::kMultiply, kDy, kScale, kTemp1, 1, 1},
    {"dy * norm_x", K::kMultiply, kDy, kScaled, kTemp0, 2, 1},
    {"dscale = sum of dy * norm_x", K::kColumnSum, kTemp0, kNothing, kDscale, 1, 0},
    {"gx = g / rms", K::kDivide, kTemp1, kRowStd, kTemp2, 1, 1},
    {"-g", K::kNegate, kTemp1, kNothing, kTemp0, 1, 1},
    {"x / rms", K::kDivide, kInput, kRowStd, kTemp3, 1, 1},
    {"/ rms", K::kDivide, kTemp3, kRowStd, kTemp4, 1, 1},
    {"-g * ...", K::kMultiply, kTemp0, kTemp4, kTemp3, 2, 1},
    {"drms = row sum", K::kRowSum, kTemp3, kNothing, kRow0, 1, 0},
    {"dmean = drms / (2 rms)", K::kRowRootGradient, kRow0, kRowStd, kRow0, 0, 0},
    {"dmean spread / n", K::kSpread, kRow0, kNothing, kTemp0, 0, 1},
    {"x.pow(1)", K::kCopy, kInput, kNothing, kTemp1, 1, 1},
    {"2 * ...", K::kTwice, kTemp1, kNothing, kTemp3, 1, 1},
    {"* dmean", K::kMultiply, kTemp0, kTemp3, kTemp1, 2, 1},
    {"gradient = gx + from square", K::kAdd, kTemp2, kTemp1, kGradient, 2, 1},
    kDxToFp32,
    kAddGradient,
    kDxTo16Bits,
    kDxLowOfDx,
};

// The identity module returns its input: the copies only run where the caller gave memory of its own for the
// result.
constexpr Pass kIdentityForward[] = {
    kBranchToFp32,
    kAddResidual,
    {"y = x", K::kCopy, kStored, kNothing, kStoredY, 1, 1},
};
constexpr Pass kIdentityBackward[] = {
    {"gradient = dy", K::kCopy, kStoredDy, kNothing, kGradient, 1, 1},
    {"dx += gradient", K::kAdd, kStoredDx, kGradient, kStoredDx, 2, 1, PassWhen::kAccumulating},
    {"dx_low = dx to 16 bits", K::kConvert, kStoredDx, kNothing, kDxLow, 1, 1, PassWhen::kWithDxLow},
};

// The counts written above are those of the operands.
constexpr bool CountsAgree(std::span<const Pass> passes) {
  for (const Pass& pass : passes)
    if (pass.reads != IsMatrix(pass.a) + IsMatrix(pass.b) || pass.writes != IsMatrix(pass.to)) return false;
  return true;
}
static_assert(CountsAgree(kLayerNormForward) && CountsAgree(kLayerNormBackward));
static_assert(CountsAgree(kRmsNormForward) && CountsAgree(kRmsNormBackward));
static_assert(CountsAgree(kIdentityForward) && CountsAgree(kIdentityBackward));

// The totals of the table at the head, without the residual's passes.
constexpr bool TotalIs(std::span<const Pass> passes, int reads, int writes) {
  for (const Pass& pass : passes) {
    if (pass.when != PassWhen::kAlways) continue;
    reads -= pass.reads;
    writes -= pass.writes;
  }
  return reads == 0 && writes == 0;
}
static_assert(TotalIs(kLayerNormForward, 6, 4) && TotalIs(kLayerNormBackward, 21, 13));
static_assert(TotalIs(kRmsNormForward, 4, 3) && TotalIs(kRmsNormBackward, 17, 12));

}  // namespace

std::span<const Pass> HandrolledPasses(NormKind kind, bool backward) {
  if (kind == KindOf<LayerNorm>())
    return backward ? std::span<const Pass>(kLayerNormBackward) : kLayerNormForward;
  if (kind == KindOf<RmsNorm>()) return backward ? std::span<const Pass>(kRmsNormBackward) : kRmsNormForward;
  if (kind == KindOf<NoNorm>()) return backward ? std::span<const Pass>(kIdentityBackward) : kIdentityForward;
  return {};
}

}  // namespace normlab::cpu
