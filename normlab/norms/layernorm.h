#pragma once
// LayerNorm:  y[c] = gain[c] * (x[c] - mean) * inv_std + bias[c],   inv_std = 1 / sqrt(var + eps),
// var = sum (x - mean)^2 / cols (biased).   Source: Ba, Kiros, Hinton 2016, arXiv:1607.06450, eq. 3-4.
// Backward, with xhat = (x - mean) * inv_std and g = dy * gain:
//   dx = inv_std * (g - sum(g)/cols - xhat * sum(g * xhat)/cols),   dgain += dy * xhat,   dbias += dy.
// All sums are of differences to x[0], and the variance is taken about the mean in a second pass: in fp32 a
// mean that is large against the spread cannot be held itself, and E[x^2] - mean^2 would lose every digit.
// What is saved as the mean is therefore mean - x[0].

#include "normlab/norms/norm_spec.h"
#include "normlab/norms/row.h"

namespace normlab {

struct LayerNorm {
  static constexpr NormInfo kInfo{.name = "layernorm",
                                  .formula = "gain * (x - mean) / sqrt(var + eps) + bias",
                                  .source = "Ba et al. 2016, arXiv:1607.06450",
                                  .has_bias = true,
                                  .saved_per_row = 2};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S cols = static_cast<S>(r.cols());
    const S shift = r.x(0);
    const S mean = r.Sum([&](auto c) { return r.x(c) - shift; }) / cols;
    const S var = r.Sum([&](auto c) { return (r.x(c) - shift - mean) * (r.x(c) - shift - mean); }) / cols;
    const S inv_std = r.Rsqrt(var + numbers.eps);
    r.Save(0, mean);
    r.Save(1, inv_std);
    r.ForEach([&](auto c) {
      const S xhat = BeforeGain(r, numbers, (r.x(c) - shift - mean) * inv_std);
      r.SetY(c, xhat * r.gain(c) + r.bias(c));
    });
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>& numbers) {
    using S = typename Row::Scalar;
    const S cols = static_cast<S>(r.cols());
    const S shift = r.x(0), mean = r.Saved(0), inv_std = r.Saved(1);
    const S mean_g = r.Sum([&](auto c) { return r.dy(c) * r.gain(c); }) / cols;
    const S mean_gx =
        r.Sum([&](auto c) { return r.dy(c) * r.gain(c) * ((r.x(c) - shift - mean) * inv_std); }) / cols;
    r.ForEach([&](auto c) {
      const S xhat = (r.x(c) - shift - mean) * inv_std;
      const S dy = r.dy(c);
      r.AddDgain(c, dy * BeforeGain(r, numbers, xhat));
      r.AddDbias(c, dy);
      r.SetDx(c, inv_std * (dy * r.gain(c) - mean_g - xhat * mean_gx));
    });
  }
};

}  // namespace normlab
