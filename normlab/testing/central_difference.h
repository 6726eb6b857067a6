#pragma once
// Derivatives from values alone, to judge gradients that were derived by hand.

#include <cstdint>

namespace normlab::test {

// f'(0) by the five-point stencil: error h^4/30 f'''''(0), plus the rounding of f divided by h (1.5 of them
// at most: (8 + 8 + 1 + 1) / 12).
template <class F>
double CentralDifference(F&& f, double h) {
  const double far = f(2 * h) - f(-2 * h);
  const double near = f(h) - f(-h);
  return (8 * near - far) / (12 * h);
}

}  // namespace normlab::test
