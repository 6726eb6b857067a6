#pragma once
// One question to a norm, on the host: the inputs, exact in fp32, of one forward and one backward call, and
// how the tensors lie in memory. Random problems are pure functions of a seed and a case number.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "normlab/base/bfloat16.h"
#include "normlab/base/float16.h"
#include "normlab/base/random.h"
#include "normlab/kernels/device.h"
#include "normlab/norms/norm_list.h"

namespace normlab::test {

using Values = std::vector<double>;

inline std::vector<NormKind> AllKinds() {
  std::vector<NormKind> kinds;
  for (const NormInfo& info : AllNorms::kInfos) kinds.push_back(info.kind);
  return kinds;
}

inline double RoundToF32(double value) { return static_cast<double>(static_cast<float>(value)); }

// `value` as a storage type holds it. Exact for sums of two such values: fp32 has more than twice their
// digits, so rounding to it first does not show (Figueroa 1995).
inline double RoundTo(DType dtype, double value) {
  const float single = static_cast<float>(value);
  if (dtype == DType::kBF16) return BFloat16::FromFloat(single).ToFloat();
  if (dtype == DType::kF16) return Float16::FromFloat(single).ToFloat();
  return single;
}

// Half the distance from 1 to the next number: the largest relative error of one rounding.
inline double UnitOf(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}
// The same at the small end, where numbers lie evenly.
inline double SmallestErrorOf(DType dtype) { return dtype == DType::kF16 ? 0x1p-25 : 0; }

// One of the sets of storage types that device.h allows.
struct NormStorage {
  const char* name = "f32";
  DType low = DType::kF32;  // the 16-bit type of the set
  bool low_stream = false, low_y = false, low_copy = false;

  DType stream() const { return low_stream ? low : DType::kF32; }  // residual, sum, dx
  DType y() const { return low_y ? low : DType::kF32; }            // y, dy
  DType x(bool residual) const { return residual ? y() : stream(); }
  bool operator==(const NormStorage&) const = default;
};

inline const std::vector<NormStorage>& LowStorages() {
  static const std::vector<NormStorage> list = {
      {.name = "bf16", .low = DType::kBF16, .low_stream = true, .low_y = true},
      {.name = "f16", .low = DType::kF16, .low_stream = true, .low_y = true},
      {.name = "bf16 around an fp32 stream", .low = DType::kBF16, .low_y = true, .low_copy = true},
      {.name = "f16 around an fp32 stream", .low = DType::kF16, .low_y = true, .low_copy = true},
      {.name = "f32 with a bf16 dx_low", .low = DType::kBF16, .low_copy = true},
      {.name = "f32 with an f16 dx_low", .low = DType::kF16, .low_copy = true},
      {.name = "bf16 around an fp32 stream, without dx_low", .low = DType::kBF16, .low_y = true}};
  return list;
}

struct NormProblem {
  NormSpec spec;
  int64_t rows = 0, cols = 0;
  Values x{}, residual{};   // [rows, cols]; residual empty: none
  Values weight{}, bias{};  // [cols], or empty where the spec has none
  Values alpha{};           // [1], or empty where the norm has none
  Values dy{};              // [rows, cols]
  Values dx_before{};       // [rows, cols], what accumulate_dx adds to
  Values dweight_before{}, dbias_before{}, dalpha_before{};
  bool accumulate_dx = false, accumulate_dparams = false;
  NormStorage storage{};

  bool has_weight() const { return InfoOf(spec.kind).has_gain && spec.gain; }
  bool has_bias() const { return InfoOf(spec.kind).has_bias && spec.bias; }
  bool has_alpha() const { return InfoOf(spec.kind).has_alpha; }

  // The tensor that is normalized: x, or residual + x as it is stored.
  Values Normalized() const {
    Values sum = x;
    for (size_t i = 0; i < residual.size(); ++i) sum[i] = RoundTo(storage.stream(), residual[i] + x[i]);
    return sum;
  }
  double Gain(int64_t c) const { return (weight.empty() ? 1.0 : weight[c] + spec.weight_offset); }
};

// Where the tensors of a problem lie.
struct NormLayout {
  enum class Alias { kNone, kX, kOther };
  int64_t misalignment = 0, row_gap = 0;
  Alias y = Alias::kNone;    // kX: y is x (without residual), or sum (identity with residual)
  Alias sum = Alias::kNone;  // kX: sum is x, kOther: sum is the residual
  Alias dx = Alias::kNone;   // kX: dx is x, kOther: dx is dy
};

inline std::string ToString(const NormLayout& layout) {
  const auto alias = [](NormLayout::Alias a) {
    return a == NormLayout::Alias::kNone ? 0 : a == NormLayout::Alias::kX ? 1 : 2;
  };
  return fmt::format("misaligned {} gap {} alias y{} sum{} dx{}", layout.misalignment, layout.row_gap,
                     alias(layout.y), alias(layout.sum), alias(layout.dx));
}

inline std::string ToString(const NormProblem& p) {
  return fmt::format("{} {}x{} in {} eps {} offset {} fraction {}{}{}{}{}{}{}", InfoOf(p.spec.kind).name,
                     p.rows, p.cols, p.storage.name, p.spec.eps, p.spec.weight_offset, p.spec.fraction,
                     p.has_weight() ? "" : " no-gain", p.has_bias() ? "" : " no-bias",
                     p.residual.empty() ? "" : " residual", p.accumulate_dx ? " dx+=" : "",
                     p.accumulate_dparams ? " dparams+=" : "",
                     p.spec.cast == NormCast::kBeforeGain ? " cast before gain" : "");
}

// What random problems vary besides the shape.
struct NormChoices {
  double mean = 0, spread = 1;  // of the rows of x
  bool residual = false, accumulate_dx = false, accumulate_dparams = false;
};

// Everything random and nothing special: weights about 1 (about 0 where an offset of 1 is added), biases, dy
// and what is accumulated onto are normal; alpha is such that alpha * x is about a half.
inline NormProblem RandomNormProblem(NormSpec spec, int64_t rows, int64_t cols, NormChoices choices,
                                     uint64_t seed, const NormStorage& storage = {}) {
  NormProblem p{.spec = spec, .rows = rows, .cols = cols, .storage = storage};
  const auto fill = [&](const char* name, int64_t count, double mean, double spread,
                        DType dtype = DType::kF32) {
    const RandomStream stream(seed, name);
    Values values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = RoundTo(dtype, mean + spread * stream.Normal(i));
    return values;
  };
  p.x = fill("x", rows * cols, choices.mean, choices.spread, storage.x(choices.residual));
  if (choices.residual)
    p.residual = fill("residual", rows * cols, choices.mean, choices.spread, storage.stream());
  if (p.has_weight())
    p.weight = fill("weight", cols, 1 - spec.weight_offset, 0.3), p.dweight_before = fill("dw", cols, 0, 1);
  if (p.has_bias()) p.bias = fill("bias", cols, 0, 1), p.dbias_before = fill("db", cols, 0, 1);
  if (p.has_alpha()) {
    p.alpha = fill("alpha", 1, 0.5, 0.1), p.dalpha_before = fill("da", 1, 0, 1);
    p.alpha[0] = RoundToF32(p.alpha[0] / std::max(1.0, std::hypot(choices.mean, choices.spread)));
  }
  p.dy = fill("dy", rows * cols, 0, 1, storage.y());
  p.dx_before = fill("dx", rows * cols, 0, 1, storage.stream());
  p.accumulate_dx = choices.accumulate_dx;
  p.accumulate_dparams = choices.accumulate_dparams;
  return p;
}

// What came back.
struct NormAnswer {
  Values sum{};  // empty without residual
  Values y{}, dx{}, dweight{}, dbias{}, dalpha{};
  bool low_is_rounded_dx = true;  // dx_low, where there is one, is dx rounded to its type
  bool guards_intact = true;      // nothing outside the outputs was written, no input was changed
};

}  // namespace normlab::test
