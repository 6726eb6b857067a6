#pragma once
// Memory full of numbers like those of training, fast: for benchmarks, whose arithmetic must meet neither
// denormals nor NaN, which bit patterns drawn at random are full of and which can make a kernel several times
// slower.

#include <cstdint>

#include "normlab/base/view.h"

namespace normlab {

// A dense f32, bf16 or f16 view becomes standard normal numbers out of a table of 65,536, which starts where
// `seed` says. Threads write the rows that the row norms will give them.
void FillNormal(int threads, uint64_t seed, const View& to);

}  // namespace normlab
