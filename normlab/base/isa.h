#pragma once
// Instruction sets that the SIMD kernels can use. The widest one of the processor is taken unless limited.

#include <string>
#include <string_view>
#include <vector>

namespace normlab {

// Supported here, narrowest first: a subset of "ssse3", "sse4", "avx2", "avx512", "avx512_dl". Empty: the
// compiler's baseline.
std::vector<std::string> SupportedIsas();

// The one in use now.
std::string CurrentIsa();

// Uses nothing wider than `name` from now on, in every kernel. Throws Error for an unknown name or one that
// this processor lacks. Process-wide; call before any kernel runs, or between them in tests; "" lifts the
// limit.
void LimitIsa(std::string_view name);

}  // namespace normlab
