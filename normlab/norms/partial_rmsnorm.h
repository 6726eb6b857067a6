#pragma once
// Partial RMSNorm:  y[c] = gain[c] * x[c] * inv_rms,   inv_rms = 1 / sqrt(sum over c < k of x[c]^2 / k +
// eps), with k = ceil(cols * fraction): the statistic is estimated from the first columns and scales the
// whole row. Source: Zhang and Sennrich 2019, arXiv:1910.07467, section 3.2 (pRMSNorm, there with 6.25%).
// Backward, with xhat = x * inv_rms and g = dy * gain, the sum running over all columns:
//   dx = inv_rms * (g - [c < k] * xhat * sum(g * xhat)/k),   dgain += dy * xhat.

#include "normlab/norms/norm_spec.h"
#include "normlab/norms/row.h"

namespace normlab {

struct PartialRmsNorm {
  static constexpr NormInfo kInfo{.name = "partial_rmsnorm",
                                  .formula = "gain * x / sqrt(mean of the first columns' x^2 + eps)",
                                  .source = "Zhang and Sennrich 2019, arXiv:1910.07467, section 3.2",
                                  .uses_fraction = true,
                                  .saved_per_row = 1};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const int64_t k = numbers.partial_cols;
    const S mean_square = r.SumFirst(k, [&](auto c) { return r.x(c) * r.x(c); }) / static_cast<S>(k);
    const S inv_rms = r.Rsqrt(mean_square + numbers.eps);
    r.Save(0, inv_rms);
    r.ForEach([&](auto c) { r.SetY(c, BeforeGain(r, numbers, r.x(c) * inv_rms) * r.gain(c)); });
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const int64_t k = numbers.partial_cols;
    const S inv_rms = r.Saved(0);
    const S mean_gx =
        r.Sum([&](auto c) { return r.dy(c) * r.gain(c) * (r.x(c) * inv_rms); }) / static_cast<S>(k);
    r.ForEach([&](auto c) {
      const S xhat = r.x(c) * inv_rms;
      const S dy = r.dy(c), g = dy * r.gain(c);
      r.AddDgain(c, dy * BeforeGain(r, numbers, xhat));
      r.SetDx(c, inv_rms * (c < k ? g - xhat * mean_gx : g));
    });
  }
};

}  // namespace normlab
