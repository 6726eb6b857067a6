#pragma once
// A duel for people: verdicts first, then ratios, then times, then how it was measured. Within `columns`,
// without escape sequences.

#include <cstddef>
#include <string>

#include "normlab/study/duel_summary.h"

namespace normlab {

// "fused_rmsnorm against handrolled_layernorm: 3.2% less time per step (ratio ...", one paragraph a variant.
std::string DuelVerdicts(const DuelSummary& summary, size_t columns = 80);

// Ratios with intervals, then milliseconds, tokens/s and memory.
std::string DuelTables(const DuelSummary& summary, size_t columns = 80);

// Batches, rounds and the pilot; precision; what disturbed it.
std::string DuelMethod(const DuelSummary& summary, size_t columns = 80);

}  // namespace normlab
