#pragma once
// Re-centering alone:  y[c] = x[c] - mean.   The half of LayerNorm that RMSNorm leaves out, without the other
// half: an ablation (Zhang and Sennrich 2019, arXiv:1910.07467, section 3 asks what each half is worth).
// Backward:  dx = dy - sum(dy)/cols.
// As in layernorm.h the sum is of differences to x[0], so that a large mean costs no digits.

#include "normlab/norms/norm_spec.h"
#include "normlab/norms/row.h"

namespace normlab {

struct Recenter {
  static constexpr NormInfo kInfo{.name = "recenter",
                                  .formula = "x - mean",
                                  .source = "ablation of Ba et al. 2016, arXiv:1607.06450",
                                  .has_gain = false,
                                  .uses_eps = false};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>&) {
    using S = typename Row::Scalar;
    const S shift = r.x(0);
    const S mean = r.Sum([&](auto c) { return r.x(c) - shift; }) / static_cast<S>(r.cols());
    r.ForEach([&](auto c) { r.SetY(c, r.x(c) - shift - mean); });
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>&) {
    using S = typename Row::Scalar;
    const S mean_dy = r.Sum([&](auto c) { return r.dy(c); }) / static_cast<S>(r.cols());
    r.ForEach([&](auto c) { r.SetDx(c, r.dy(c) - mean_dy); });
  }
};

}  // namespace normlab
