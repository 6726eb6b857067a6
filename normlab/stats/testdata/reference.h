#pragma once
// Samples that several tests use.

#include <array>

namespace normlab::stats::reference {

// Darwin's maize: height of the crossed minus the self-fertilised plant, in eighths of an inch.
// Source: Darwin 1876; Fisher 1935, The Design of Experiments, table 3.
inline constexpr std::array<double, 15> kDarwin = {49, -67, 8,  16, 6,  23, 28, 41,
                                                   14, 29,  56, 24, 75, 60, -48};

// Losses of two variants with the same five seeds: they differ by far less than the seeds do.
inline constexpr std::array<double, 5> kA = {3.10, 3.12, 3.08, 3.15, 3.11};
inline constexpr std::array<double, 5> kB = {3.08, 3.11, 3.05, 3.13, 3.10};

}  // namespace normlab::stats::reference
