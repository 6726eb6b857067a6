#pragma once
// How large AdamW can make a weight. An update that leaves fp32 must be known before it is made: the weights
// that it would destroy are the last good ones. The bound is arithmetic on a few numbers; it is wider than
// what happens, and still far inside fp32 for every run that can learn.

#include "normlab/kernels/device.h"

namespace normlab {

class UpdateBound {
 public:
  // Of tensors whose Euclidean norms these are: no element is larger.
  UpdateBound(double weights, double first_moments) : weights_(weights), first_moments_(first_moments) {}

  // After the update by a gradient with this Euclidean norm, scaled.
  UpdateBound After(const AdamWArgs& update, double gradient) const;

  bool FitsFloat() const;

 private:
  double weights_, first_moments_;
};

}  // namespace normlab
