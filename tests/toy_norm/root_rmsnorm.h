#pragma once
// A norm that nobody asked for, added as CONTRIBUTING.md says: this header, one include and one entry in
// norm_list.h, and golden answers. The toy_norm_test compiles the norms and kernels with it and runs every
// test of norms on it.
//
//   y[c] = gain[c] * x[c] / sqrt(rms),   rms = sqrt(u),   u = sum x^2 / cols + eps
// Backward, with scale = u^(-1/4) and g = dy * gain:
//   dx = scale * (g - x * sum(g * x) / (2 * cols * u)),   dgain += dy * x * scale.

#include "normlab/norms/norm_spec.h"
#include "normlab/norms/row.h"

namespace normlab {

struct RootRmsNorm {
  static constexpr NormInfo kInfo{.name = "root_rmsnorm",
                                  .formula = "gain * x / sqrt(rms)",
                                  .source = "made up for a test",
                                  .saved_per_row = 2};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S mean_square = r.Sum([&](auto c) { return r.x(c) * r.x(c); }) / static_cast<S>(r.cols());
    const S u = mean_square + numbers.eps;
    const S inv_rms = r.Rsqrt(u);
    const S scale = r.Rsqrt(u * inv_rms);  // u / rms is the rms
    r.Save(0, scale);
    r.Save(1, inv_rms);
    r.ForEach([&](auto c) { r.SetY(c, BeforeGain(r, numbers, r.x(c) * scale) * r.gain(c)); });
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S scale = r.Saved(0), inv_rms = r.Saved(1);
    const S sum_gx = r.Sum([&](auto c) { return r.dy(c) * r.gain(c) * r.x(c); });
    const S pull = sum_gx * inv_rms * inv_rms / static_cast<S>(2 * r.cols());
    r.ForEach([&](auto c) {
      const S dy = r.dy(c), x = r.x(c);
      r.AddDgain(c, dy * BeforeGain(r, numbers, x * scale));
      r.SetDx(c, scale * (dy * r.gain(c) - x * pull));
    });
  }
};

}  // namespace normlab
