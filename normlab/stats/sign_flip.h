#pragma once
// Sign-flip permutation test of paired differences: if variant and baseline are exchangeable within a pair,
// every choice of signs of the d_i is equally likely.
//   p = share of the 2^n sign choices with |sum| >= |observed sum|
// Two-sided, the observed choice included. Exact up to 2^20 choices; beyond, `samples` random choices of
// which b are as extreme, and p = (b + 1) / (samples + 1), which never errs on the small side.
// The smallest p that can come out is 2^(1-n): 0.0625 at n = 5.
// Sums within 1e-9 sum|d| of the observed one count as ties: rounding must not turn a tie into a rejection.
// Assumes: symmetry of the differences under the null, nothing else.   Deterministic for a given seed.
// Throws Error if there is no value or one is not finite.
// Source: Fisher 1935, The Design of Experiments, section 21 (Darwin's maize); Phipson & Smyth 2010, Stat.
// Appl. Genet. Mol. Biol. 9(1) (sampled p values).

#include <cstddef>
#include <cstdint>
#include <span>

namespace normlab::stats {

struct SignFlipOptions {
  std::size_t max_exact_pairs = 20;  // 2^20 choices: milliseconds
  std::uint64_t samples = 99'999;    // p in steps of 1e-5
  std::uint64_t seed = 1;            // of a stream of its own; nothing else draws from it
};

struct SignFlip {
  double p_value = 1;
  double smallest_p = 1;  // what p could have been at the least, with this n and method
  bool exact = true;
};

SignFlip SignFlipTest(std::span<const double> differences, const SignFlipOptions& options = {});

}  // namespace normlab::stats
