#pragma once
// Argument checks that the functions of this folder share. Each names the function that was called, what it
// was given and what it takes. A value that is not finite is refused: a diverged run is an outcome of its own
// (see comparison.h) and never a number to average.

#include <cstddef>
#include <span>
#include <string_view>

namespace normlab::stats {

// Throws Error unless there are at least `at_least` values and all are finite.
void RequireValues(std::string_view function, std::span<const double> values, std::size_t at_least);

// Throws Error unless 0 < value < 1 (levels, powers).
void RequireFraction(std::string_view function, std::string_view name, double value);

// Throws Error unless value is finite and > 0.
void RequirePositive(std::string_view function, std::string_view name, double value);

// Throws Error unless value is finite and >= 0.
void RequireNotNegative(std::string_view function, std::string_view name, double value);

}  // namespace normlab::stats
