#pragma once
// Curves over the steps of a run, thinned for drawing so that nothing a reader must see is lost: the least
// and the greatest value of every stretch stay, and what is not finite is told beside. Pure.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace normlab {

// Values by step, steps rising; a value may be NaN or infinite.
struct Curve {
  std::vector<double> step, value;
};

// Indices, rising, of at most 2 x stretches + 2 values whose line has the extent of the whole in every
// stretch: the first and the last finite value, and the least and the greatest of each stretch. All finite
// ones where they are no more than that. Values that are not finite are never kept.
std::vector<size_t> KeptForDrawing(std::span<const double> values, size_t stretches);

// Steps whose value is not finite. Ranges that the drawing could not tell apart are one: `count` says how
// many steps it holds.
struct NotFinite {
  double from = 0, to = 0;
  size_t count = 0;
  std::string what;  // the first one: "nan", "inf" or "-inf"
  bool operator==(const NotFinite&) const = default;
};
std::vector<NotFinite> NotFiniteRanges(const Curve& curve, size_t stretches);

// "nan from step 1 (80 of 100 steps)"; empty where every value is finite.
std::string NotFiniteText(const Curve& curve);

// Runs of one variant step by step. Steps that one of them lacks are left out; where a value is not finite,
// all four are NaN, as nothing is averaged away.
struct CurveOverSeeds {
  size_t n = 0;  // runs
  std::vector<double> step;
  std::vector<double> mean, sd, least, greatest;  // sd is NaN for one run
};
CurveOverSeeds OverSeeds(std::span<const Curve> runs);

// variant - baseline at the steps that both have.
Curve Difference(const Curve& variant, const Curve& baseline);

}  // namespace normlab
