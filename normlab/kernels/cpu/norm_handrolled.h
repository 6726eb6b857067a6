#pragma once
// The hand-rolled norms as programs: the list of passes that an eager framework with automatic
// differentiation makes of the article's own classes, which the runner in norm_handrolled.cc executes as it
// stands.
//
//   LayerNorm: mean = x.mean(-1, keepdim); var = x.var(-1, keepdim, unbiased=False)
//              norm_x = (x - mean) / sqrt(var + eps);  return scale * norm_x + shift
//   RMSNorm:   rms = sqrt(mean(x ** 2, -1, keepdim) + eps);  return (x / rms) * scale
//
// One pass is one operation of the framework: it reads its operands from memory and writes its result there.
// Reads and writes are counted in matrices of rows * cols elements; vectors count nothing.
//
// 16-bit rows go as under automatic mixed precision: what is normalized, dy and the branch that is added to
// an fp32 stream are converted to fp32 by passes of their own, everything between is fp32, and y, dx and
// dx_low are converted back by passes of their own. Only the addition of a 16-bit residual stays in 16 bits.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "normlab/kernels/cpu/cpu_context.h"
#include "normlab/kernels/device.h"

namespace normlab::cpu {

// What a pass works on. Matrices [rows, cols] come first, then one value per row, then one per column.
enum class Operand : uint8_t {
  kNothing,
  // of the caller, as they are stored
  kX,
  kResidual,
  kStored,  // what is normalized: x, or residual + x
  kStoredY,
  kStoredDy,
  kStoredDx,
  kDxLow,
  // in fp32: the caller's own where they are that, else copies
  kBranch,  // x as it is added to the residual; of 16 bits where that is
  kInput,   // what is normalized
  kY,
  kDy,
  kDx,
  kScaled,    // norm_x as the gain meets it
  kGradient,  // the gradient of the norm alone: dx, or a temporary to be added to it
  // saved for backward
  kCentered,
  kNormalized,
  // temporaries, reused once nothing refers to them, as a caching allocator does
  kTemp0,
  kTemp1,
  kTemp2,
  kTemp3,
  kTemp4,
  // per row
  kRowStd,  // saved: the root, std or rms
  kRow0,
  kRow1,
  kRow2,
  // per column
  kScale,
  kShift,
  kDscale,
  kDshift,
};

constexpr bool IsMatrix(Operand o) { return o > Operand::kNothing && o <= Operand::kTemp4; }
constexpr bool IsPerRow(Operand o) { return o >= Operand::kRowStd && o <= Operand::kRow2; }

enum class PassKind : uint8_t {
  // to = a op b; b is a matrix, one value per row or one per column
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  // to = op a
  kNegate,
  kSquare,
  kTwice,
  kCopy,
  kConvert,  // to another storage type
  kRound,    // to what 16 bits hold, in fp32
  kSpread,   // to[r, c] = a[r] / cols
  // to[r] = op a[r, :]
  kRowMean,
  kRowVariance,
  kRowSum,
  // to[c] = sum of a[:, c]
  kColumnSum,
  // from row values to row values
  kRowAddEps,        // a + eps
  kRowRoot,          // sqrt(a)
  kRowRootGradient,  // a / (2 b)
  kRowTwiceMean,     // a * 2 / cols
};

enum class PassWhen : uint8_t {
  kAlways,
  kWithResidual,
  kAccumulating,
  // where something has 16 bits
  kLowBranch,  // x, beside an fp32 residual
  kLowInput,   // what is normalized
  kLowY,
  kLowDy,
  kLowDx,
  kAccumulatingLowDx,
  kWithDxLow,
  kRounding,  // y, and the spec rounds before the gain
};
constexpr unsigned Bit(PassWhen when) { return 1u << static_cast<unsigned>(when); }

// What holds of a call: a sum of Bit()s, kAlways among them. [norm_handrolled.cc]
unsigned PassesOf(const NormForwardArgs& args);
unsigned PassesOf(const NormBackwardArgs& args);

struct Pass {
  std::string_view name;
  PassKind kind;
  Operand a, b, to;
  int reads, writes;
  PassWhen when = PassWhen::kAlways;
};

// In the order in which they run; empty for a kind that has no hand-rolled form. [norm_handrolled_passes.cc]
std::span<const Pass> HandrolledPasses(NormKind kind, bool backward);

// What a pass really moved: matrix elements loaded and stored by its loops.
struct PassCount {
  std::string_view name;
  int64_t elements_read = 0, elements_written = 0;
};

// The entry's functions with a count of every pass that ran, for the test that holds the list against it.
void HandrolledForward(CpuContext& context, const NormForwardArgs& args,
                       std::vector<PassCount>* counts = nullptr);
void HandrolledBackward(CpuContext& context, const NormBackwardArgs& args,
                        std::vector<PassCount>* counts = nullptr);

}  // namespace normlab::cpu
