#pragma once
// A comparison in plain English: what was found, by how much, how sure, and what was not shown. Every
// interval is named with its level, its pairing and n; "undecided" never reads as "the same" and says what
// would decide it; "equivalent" never reads as "equal". The level named is that of the study as a whole,
// 1 - alpha: simultaneous over its variants and declared looks. Numbers have three significant digits and a
// decimal point whatever the locale. Never throws for a Comparison that Compare made with the same rule.

#include <string>

#include "normlab/stats/comparison.h"

namespace normlab::stats {

struct Words {
  std::string metric = "loss";                 // "lower loss by ..."
  std::string unit = "nats";                   // of the difference; not used with log_ratio
  std::string setup = "this text and set-up";  // "on ..."
  std::string pairing = "paired by seed";      // how runs of the two belong together
};

// "10 to 40 seeds", "at least 10 seeds", "more than a million seeds": with so many, equivalence of equals
// and a difference as large as the margin are each shown in 80% of studies. Empty where more seeds are not
// the answer: no spread, no margin, a diverged run.
std::string SeedsThatDecide(const Comparison& comparison, const ComparisonRule& rule);

std::string Explain(const Comparison& comparison, const ComparisonRule& rule, const Words& words = {});

}  // namespace normlab::stats
