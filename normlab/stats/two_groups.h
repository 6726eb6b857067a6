#pragma once
// Whether a sample falls into two groups, far apart: times of a machine that runs at two speeds have a median
// that says little.
//   the sorted sample is cut where the sum of squares within both parts is least;
//   D = |mean_1 - mean_2| / sqrt((sd_1^2 + sd_2^2) / 2)
// Two groups: D > 4, and a tenth of the values or more in each. A cut through one normal group gives D
// = 2.65, through a uniform one 3.46: these are not found; nor are a few outliers, which have quartiles and
// the count of interrupted blocks to show them. Assumes: nothing about the distribution; values in an order
// that does not matter.   Pure. Throws Error on values that are not finite. Source: the cut, Otsu 1979, IEEE
// Trans. SMC 9(1); D, Ashman, Bird & Zepf 1994, The Astronomical Journal 108.

#include <cstddef>
#include <optional>
#include <span>

namespace normlab::stats {

struct TwoGroups {
  double low = 0, high = 0;  // means of the groups
  double high_share = 0;     // of the values
  double separation = 0;     // D; infinite where both groups are of equal values
};

// Nothing for fewer than 20 values, and where there is one group.
std::optional<TwoGroups> FindTwoGroups(std::span<const double> values);

}  // namespace normlab::stats
