#include "normlab/train/step_bound.h"

namespace normlab {

std::optional<double> StepBound::bytes_s() const {
  if (!copy_bytes_per_s) return std::nullopt;
  return bytes / *copy_bytes_per_s;
}

std::optional<double> StepBound::seconds() const {
  const auto memory_s = bytes_s();
  if (!products_s || !memory_s) return std::nullopt;
  return *products_s + *memory_s;
}

double StepBytes(const Gpt& model, const TrainConfig& config) {
  constexpr double kAdamWBytes = 30;
  const int64_t passes = config.batch / config.MicroBatch();
  return kAdamWBytes * static_cast<double>(model.parameters().count()) +
         2 * static_cast<double>(passes) * static_cast<double>(model.saved_bytes());
}

std::optional<double> ShareOfStep(const std::optional<double>& bound_s, double step_s) {
  if (!bound_s || *bound_s > step_s) return std::nullopt;
  return *bound_s / step_s;
}

}  // namespace normlab
