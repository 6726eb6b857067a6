#include "normlab/stats/arguments.h"

#include <cmath>

#include "normlab/base/error.h"

namespace normlab::stats {

void RequireValues(std::string_view function, std::span<const double> values, std::size_t at_least) {
  if (values.size() < at_least) {
    Fail("{}: got {} values; it needs at least {}", function, values.size(), at_least);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      Fail("{}: value {} of {} is {}; all must be finite, leave diverged runs out", function, i,
           values.size(), values[i]);
    }
  }
}

void RequireFraction(std::string_view function, std::string_view name, double value) {
  if (!(value > 0 && value < 1)) Fail("{}: {} is {}; it must lie between 0 and 1", function, name, value);
}

void RequirePositive(std::string_view function, std::string_view name, double value) {
  if (!(std::isfinite(value) && value > 0)) {
    Fail("{}: {} is {}; it must be finite and above 0", function, name, value);
  }
}

void RequireNotNegative(std::string_view function, std::string_view name, double value) {
  if (!(std::isfinite(value) && value >= 0)) {
    Fail("{}: {} is {}; it must be finite and not below 0", function, name, value);
  }
}

}  // namespace normlab::stats
