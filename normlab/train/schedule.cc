#include "normlab/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace normlab {

double Schedule::At(int64_t step) const {
  if (step < warmup_steps)
    return learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const int64_t decay_steps = steps - 1 - warmup_steps;
  const double progress =
      decay_steps <= 0
          ? 1.0
          : std::min(1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps));
  return min_learning_rate +
         (learning_rate - min_learning_rate) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace normlab
