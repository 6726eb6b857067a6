#pragma once
// What a norm is (NormInfo, fixed per norm), how one site of a model uses it (NormSpec), and the numbers that
// a body reads (NormNumbers).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace normlab {

// Which norm: its place in the list AllNorms of norm_list.h, where KindOf<RmsNorm>() asks for one by type.
enum class NormKind : uint8_t {};

// Who computes it. kFastest lets the device choose: the first of its list that accepts.
enum class NormImplementation { kFastest, kFused, kLibrary, kGeneric, kHandrolled };

constexpr std::string_view Name(NormImplementation implementation) {
  switch (implementation) {
    case NormImplementation::kFastest:
      return "fastest";
    case NormImplementation::kFused:
      return "fused";
    case NormImplementation::kLibrary:
      return "library";
    case NormImplementation::kGeneric:
      return "generic";
    case NormImplementation::kHandrolled:
      return "handrolled";
  }
  return "?";
}

struct NormInfo {
  std::string_view name;     // as in norm_type: "rmsnorm"
  std::string_view formula;  // one line, for `list`
  std::string_view source;   // where the formula comes from
  bool identity = false;     // y = x: no parameters, no statistics, may alias its input
  bool has_gain = true;      // a learned scale per column, starting at 1, not decayed
  bool has_bias = false;     // a learned shift per column, starting at 0, not decayed
  bool has_alpha = false;    // one learned scalar, starting at NormSpec::alpha_init, not decayed
  bool uses_eps = true;
  bool uses_fraction = false;
  int saved_per_row = 0;  // row statistics that Backward needs (fp32; fp64 on the reference device)
  double default_eps = 1e-5;
  NormKind kind{};  // set by the list
};

// Where a 16-bit result is rounded to its storage type: once, after the gain (Gemma, PyTorch's own norms), or
// before the gain and again after it (LLaMA's code). The same thing in fp32.
enum class NormCast { kAfterGain, kBeforeGain };

struct NormSpec {
  NormKind kind{};  // the first of the list: LayerNorm
  NormImplementation implementation = NormImplementation::kFastest;
  double eps = 1e-5;           // >= 0; with 0 an all-zero row gives 0 (or the bias), not 0/0
  bool gain = true;            // false: the norm's gain is left out
  bool bias = true;            // false: the norm's bias is left out
  double weight_offset = 0.0;  // the gain used is weight + weight_offset (1 where it is stored as 1 + g)
  double fraction = 0.0625;    // in (0, 1]: the part of a row that gives the statistic, where `uses_fraction`
  double alpha_init = 0.5;     // what alpha starts at, where `has_alpha`
  NormCast cast = NormCast::kAfterGain;
};

// Columns that a fraction of a row stands for: at least one.
inline int64_t PartialCols(double fraction, int64_t cols) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(fraction * static_cast<double>(cols))), 1, cols);
}

// The numbers a body reads besides its row.
template <class Scalar>
struct NormNumbers {
  Scalar eps;
  int64_t partial_cols = 1;  // PartialCols(fraction, cols)
  bool cast_before_gain = false;
};

template <class Scalar>
NormNumbers<Scalar> NumbersOf(const NormSpec& spec, int64_t cols) {
  return {.eps = static_cast<Scalar>(spec.eps),
          .partial_cols = PartialCols(spec.fraction, cols),
          .cast_before_gain = spec.cast == NormCast::kBeforeGain};
}

}  // namespace normlab
