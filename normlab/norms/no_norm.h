#pragma once
// The identity: y = x. The control of every study of norms: what does the model lose without one?

#include "normlab/norms/norm_spec.h"
#include "normlab/norms/row.h"

namespace normlab {

struct NoNorm {
  static constexpr NormInfo kInfo{.name = "no_norm",
                                  .formula = "x",
                                  .source = "-",
                                  .identity = true,
                                  .has_gain = false,
                                  .uses_eps = false};

  template <class Row>
  NL_HD static NL_INLINE void Forward(Row& r, const NormNumbers<typename Row::Scalar>&) {
    r.ForEach([&](auto c) { r.SetY(c, r.x(c)); });
  }

  template <class Row>
  NL_HD static NL_INLINE void Backward(Row& r, const NormNumbers<typename Row::Scalar>&) {
    r.ForEach([&](auto c) { r.SetDx(c, r.dy(c)); });
  }
};

}  // namespace normlab
