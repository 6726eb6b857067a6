#pragma once
// The verdict on the speed of a variant against a baseline, from the batches of a duel (batched_ratio.h). The
// rule is that of comparison.h, with batches in place of seeds and without its test of signs:
//   M_j = median log ratio of batch j, j = 1..B;  alpha_v = alpha / (K L);  m = log(1 + margin)
//   I_D = mean(M) +- t(1 - alpha_v/2, B-1) s/sqrt(B),   I_E = mean(M) +- t(1 - alpha_v, B-1) s/sqrt(B)
//   B < 6 none · I_E inside (-m, m) equivalent, else I_D without 0 better or worse, else undecided
// Six: that all of five batches point the same way happens to equals in 2^-4 = 6% of duels, so that with
// fewer a verdict would rest on the shape of Student's distribution alone.
// Assumes: batches independent and alike (each places memory afresh).   Pure.
// Throws Error as comparison.h does, and for a rule without log_ratio.
// Source: Schuirmann 1987 (two one-sided tests); Kalibera & Jones 2013, "Rigorous benchmarking in reasonable
// time", ISMM (replicate at the level that varies); Mytkowicz et al. 2009, "Producing wrong data without
// doing anything obviously wrong!", ASPLOS (memory layout as a bias).

#include <cstddef>
#include <span>
#include <string>

#include "normlab/stats/comparison.h"

namespace normlab::stats {

inline constexpr std::size_t kFewestJudgedBatches = 6;

// n is the number of batches, `test` is "duel"; means, and what only makes sense for seeds, are empty.
// kBetter: lower, or with higher_is_better, higher.
Comparison CompareBatches(std::span<const double> medians, const ComparisonRule& rule);

struct BatchWords {
  std::string less = "less time per step", more = "more time per step";
  std::string quantity = "time per step";
  std::size_t rounds_per_batch = 0;
};

// One sentence: what was found, by how much, how sure. Never throws for what CompareBatches made with this
// rule.
std::string ExplainBatches(const Comparison& comparison, const ComparisonRule& rule,
                           const BatchWords& words = {});

}  // namespace normlab::stats
