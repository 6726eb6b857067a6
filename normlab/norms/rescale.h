#pragma once
// Re-scaling alone:  y[c] = x[c] * inv_rms,   inv_rms = 1 / sqrt(sum x^2 / cols + eps): RMSNorm without its
// gain, the ablation that says what the learned scale is worth. The body is RMSNorm's, whose gain is 1 where
// a norm has none.   Source: Zhang and Sennrich 2019, arXiv:1910.07467, eq. 4.

#include "normlab/norms/rmsnorm.h"

namespace normlab {

struct Rescale {
  static constexpr NormInfo kInfo{.name = "rescale",
                                  .formula = "x / sqrt(mean(x^2) + eps)",
                                  .source = "ablation of Zhang and Sennrich 2019, arXiv:1910.07467",
                                  .has_gain = false,
                                  .saved_per_row = RmsNorm::kInfo.saved_per_row};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    RmsNorm::Forward(r, numbers);
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    RmsNorm::Backward(r, numbers);
  }
};

}  // namespace normlab
