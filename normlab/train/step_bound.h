#pragma once
// How fast a training step could be at the most: its matrix products, each alone in its fastest form, and the
// memory that it must move at the speed of a plain copy. Neither can a slow step flatter: both are measured
// apart from it.

#include <optional>

#include "normlab/model/gpt.h"
#include "normlab/train/config.h"

namespace normlab {

struct StepBound {
  std::optional<double> products_s;        // nothing where no library could be asked
  double bytes = 0;                        // that one step must move: StepBytes
  std::optional<double> copy_bytes_per_s;  // read and written by a copy; nothing where it was not measured

  std::optional<double> bytes_s() const;
  std::optional<double> seconds() const;  // products and bytes, where both are known
};

// 30 per parameter for AdamW (weight, gradient, two moments read; weight, two moments and a 16-bit copy
// written), and each activation that backward needs, written once and read once.
double StepBytes(const Gpt& model, const TrainConfig& config);

// bound / step. Nothing above 1: then the bound was measured while the machine was busier than now, and says
// nothing.
std::optional<double> ShareOfStep(const std::optional<double>& bound_s, double step_s);

}  // namespace normlab
