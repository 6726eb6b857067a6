#pragma once
// What a norm is (NormInfo, fixed per kind) and how one site of a model uses it (NormSpec).

#include <cstdint>
#include <optional>
#include <string_view>

namespace normlab {

enum class NormKind { kNone, kLayerNorm, kRmsNorm };

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
  NormKind kind;
  std::string_view name;     // as in norm_type: "rmsnorm"
  std::string_view formula;  // one line, for `list`
  std::string_view source;   // where the formula comes from
  bool identity = false;     // y = x: no parameters, no statistics, may alias its input
  bool has_gain = true;      // a learned scale per column, starting at 1, not decayed
  bool has_bias = false;     // a learned shift per column, starting at 0, not decayed
  int saved_per_row = 0;     // row statistics that Backward needs (fp32; fp64 on the reference device)
  double default_eps = 1e-5;
};

struct NormSpec {
  NormKind kind = NormKind::kLayerNorm;
  NormImplementation implementation = NormImplementation::kFastest;
  double eps = 1e-5;           // >= 0; with 0 an all-zero row gives 0 (or the bias), not 0/0
  bool gain = true;            // false: the kind's gain is left out
  bool bias = true;            // false: the kind's bias is left out
  double weight_offset = 0.0;  // the gain used is weight + weight_offset (1 where it is stored as 1 + g)
};

// The numbers a Row body reads.
template <class Scalar>
struct NormNumbers {
  Scalar eps;
};

}  // namespace normlab
