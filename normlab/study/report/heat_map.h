#pragma once
// inside.jsonl of a run (docs/formats.md: what the norms saw and what the tensors did, every so many steps)
// as layer x step maps. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/json.h"

namespace normlab {

// values[row][column], where known[row][column]. Rows are sites of norms or layers, in forward order. Where
// more steps were logged than columns are drawn, a column holds the greatest value of its steps (a value that
// is not finite is greater than all others), and `step` the first of them.
struct HeatMap {
  std::string quantity;  // "input_rms", "input_kurtosis", "input_mean_share", "gradient_norm", "update_ratio"
  std::vector<std::string> rows;
  std::vector<double> step;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<bool>> known;  // false: not logged there
};

// Gradient norm and update ratio of a layer are those of all its tensors together: sqrt of the sum of
// squares, and the root of sum of squared updates / sum of squared weights. Lines that cannot be read are
// passed over.
std::vector<HeatMap> HeatMaps(std::string_view lines, size_t columns = 96);

// An array of {quantity, rows, step, values}; null: not logged; "nan", "inf" as they are.
Json HeatMapsJson(const std::vector<HeatMap>& maps);

}  // namespace normlab
