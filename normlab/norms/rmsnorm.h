#pragma once
// RMSNorm:  y[c] = gain[c] * x[c] * inv_rms,   inv_rms = 1 / sqrt(sum x^2 / cols + eps).
// Source: Zhang and Sennrich 2019, arXiv:1910.07467, eq. 4 (eps inside the root, as all users do).
// Backward, with xhat = x * inv_rms and g = dy * gain:
//   dx = inv_rms * (g - xhat * sum(g * xhat)/cols),   dgain += dy * xhat.

#include "normlab/norms/norm_spec.h"
#include "normlab/norms/row.h"

namespace normlab {

struct RmsNorm {
  static constexpr NormInfo kInfo{.name = "rmsnorm",
                                  .formula = "gain * x / sqrt(mean(x^2) + eps)",
                                  .source = "Zhang and Sennrich 2019, arXiv:1910.07467",
                                  .saved_per_row = 1};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S mean_square = r.Sum([&](auto c) { return r.x(c) * r.x(c); }) / static_cast<S>(r.cols());
    const S inv_rms = r.Rsqrt(mean_square + numbers.eps);
    r.Save(0, inv_rms);
    r.ForEach([&](auto c) { r.SetY(c, BeforeGain(r, numbers, r.x(c) * inv_rms) * r.gain(c)); });
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S inv_rms = r.Saved(0);
    const S mean_gx =
        r.Sum([&](auto c) { return r.dy(c) * r.gain(c) * (r.x(c) * inv_rms); }) / static_cast<S>(r.cols());
    r.ForEach([&](auto c) {
      const S xhat = r.x(c) * inv_rms;
      const S dy = r.dy(c);
      r.AddDgain(c, dy * BeforeGain(r, numbers, xhat));
      r.SetDx(c, inv_rms * (dy * r.gain(c) - xhat * mean_gx));
    });
  }
};

}  // namespace normlab
