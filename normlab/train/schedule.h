#pragma once
// The learning rate of each step: linear warm-up, then a cosine down to the minimum.
//   step < warmup:   learning_rate * (step + 1) / warmup        (the first rate is above zero)
//   else:            min + (learning_rate - min) * (1 + cos(pi p)) / 2,  p = (step - warmup) / (steps - 1 -
//   warmup)
// so step == warmup has the full rate and step == steps - 1 the minimum (the only step after warm-up has the
// minimum too). Steps beyond the last keep the minimum. Source of the cosine: Loshchilov and Hutter 2017,
// arXiv:1608.03983, eq. 5.

#include <cstdint>

namespace normlab {

struct Schedule {
  double learning_rate = 0, min_learning_rate = 0;
  int64_t warmup_steps = 1, steps = 1;

  double At(int64_t step) const;  // step from 0
};

}  // namespace normlab
