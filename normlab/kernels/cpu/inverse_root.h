#pragma once
// The root that every norm of the CPU divides by, as norms/row.h says it.

#include <cmath>
#include <limits>

#include "normlab/norms/row.h"

namespace normlab::cpu {

// 1 / sqrt(v); 0 for 0: with eps = 0 a row without spread gives 0, not 0 * infinity; NaN for infinity, so
// that squares which overflowed (|x| above 1.8e19) show instead of turning the row into zeros.
NL_INLINE float InverseRoot(float v) {
  if (v == 0.0f) return 0.0f;
  if (v == std::numeric_limits<float>::infinity()) return std::numeric_limits<float>::quiet_NaN();
  return 1.0f / std::sqrt(v);
}

}  // namespace normlab::cpu
