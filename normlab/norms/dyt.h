#pragma once
// Dynamic Tanh:  y[c] = gain[c] * tanh(alpha * x[c]) + bias[c], alpha one learned scalar a site. No
// statistic: each element stands alone.   Source: Zhu et al. 2025, arXiv:2503.10622, eq. 3 and algorithm 1.
// Backward, with t = tanh(alpha * x) and g = dy * gain * (1 - t^2):
//   dx = alpha * g,   dgain += dy * t,   dbias += dy,   dalpha += sum(g * x).
// 1 - t^2 is (1 - t)(1 + t), which keeps its digits where t is near 1. Saturated: t = 1, every gradient but
// dgain and dbias is 0.

#include "normlab/norms/norm_spec.h"
#include "normlab/norms/row.h"

namespace normlab {

struct Dyt {
  static constexpr NormInfo kInfo{.name = "dyt",
                                  .formula = "gain * tanh(alpha * x) + bias",
                                  .source = "Zhu et al. 2025, arXiv:2503.10622",
                                  .has_bias = true,
                                  .has_alpha = true,
                                  .uses_eps = false};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S alpha = r.alpha();
    r.ForEach(
        [&](auto c) { r.SetY(c, BeforeGain(r, numbers, r.Tanh(alpha * r.x(c))) * r.gain(c) + r.bias(c)); });
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S alpha = r.alpha();
    const auto slope = [](S t) { return (static_cast<S>(1.0) - t) * (static_cast<S>(1.0) + t); };
    r.AddDalpha(r.Sum([&](auto c) { return r.dy(c) * r.gain(c) * slope(r.Tanh(alpha * r.x(c))) * r.x(c); }));
    r.ForEach([&](auto c) {
      const S t = r.Tanh(alpha * r.x(c));
      const S dy = r.dy(c);
      r.AddDgain(c, dy * BeforeGain(r, numbers, t));
      r.AddDbias(c, dy);
      r.SetDx(c, alpha * (dy * r.gain(c) * slope(t)));
    });
  }
};

}  // namespace normlab
