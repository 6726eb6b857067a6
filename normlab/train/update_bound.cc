#include "normlab/train/update_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace normlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargestFloat = static_cast<double>(std::numeric_limits<float>::max());

// At most this much of the root of the second moment is the first one, by Cauchy and Schwarz: m is a sum of
// (1 - beta1) beta1^i g_i, v one of (1 - beta2) beta2^i g_i^2. Twice that leaves room for rounding.
double MomentOverRoot(double beta1, double beta2) {
  if (beta1 * beta1 >= beta2) return kInfinity;
  return 2 * (1 - beta1) / std::sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2));
}

// Roots of what fp32 takes for 0. Where v is that small, m is too, and eps is all that divides it.
constexpr double kVanishingRoot = 1.1e-19;

}  // namespace

UpdateBound UpdateBound::After(const AdamWArgs& update, double gradient) const {
  // The first moment is a weighted mean of itself and the gradient.
  const double moments = std::max(first_moments_, gradient);
  const double rate = update.learning_rate / (1 - std::pow(update.beta1, static_cast<double>(update.step)));
  const double decayed = std::fabs(1 - update.learning_rate * update.weight_decay);
  // Numbers on the way to the result, which the kernel computes in fp32 too.
  if (!(rate * std::max(moments, 1.0) <= kLargestFloat && decayed <= kLargestFloat))
    return {kInfinity, moments};
  const double most = MomentOverRoot(update.beta1, update.beta2);
  const double change = rate * std::min(moments / update.eps, most * (1 + kVanishingRoot / update.eps));
  return {std::max(1.0, decayed) * weights_ + change, moments};
}

bool UpdateBound::FitsFloat() const {
  return weights_ <= kLargestFloat;  // false for NaN
}

}  // namespace normlab
