#pragma once
// A closed interval of real numbers, as every estimate here reports its uncertainty.
// All questions answer false for NaN bounds, so a broken number never supports a claim.

namespace normlab::stats {

struct Interval {
  double low = 0;
  double high = 0;

  bool Excludes(double value) const { return low > value || high < value; }
  bool Holds(double value) const { return low <= value && value <= high; }
  // Strictly inside (-margin, margin): touching the margin is not inside.
  bool Within(double margin) const { return low > -margin && high < margin; }
};

}  // namespace normlab::stats
