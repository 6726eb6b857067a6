#pragma once
// What the runs of a study logged step by step, as the report draws it. Reads only; files that another
// process is writing, or that are missing, give what is there.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/study/comparison.h"
#include "normlab/study/report/curve.h"

namespace normlab {

// Of metrics.jsonl. A line that cannot be read (the last may be half written) is passed over and counted.
struct StepLog {
  Curve loss, gradient_norm;
  size_t unreadable = 0;
};
StepLog ParseStepLog(std::string_view lines);

struct CellLog {
  size_t variant = 0, seed = 0;  // indices into the plan
  StepLog steps;
  Json spikes;     // of run.json; an array, empty where there is none
  Json heat_maps;  // of inside.jsonl (heat_map.h); an array, empty where there is none
};

// One a cell, in the order of results.cells.
std::vector<CellLog> ReadLogs(const std::filesystem::path& folder, const StudyResults& results);

// "series" of the page's data:
//   curves      per variant and quantity: `mean` over the runs that are done (step, mean, sd, least,
//   greatest),
//               their number `n`, Student's `t` for 95%, and every run (seed, status, step, value,
//               not_finite, spikes)
//   differences the same of variant minus baseline, paired by seed and step
//   heat_maps   per variant, of the first seed that has any
//   profiles    per variant, seconds a step of each kind of operation, mean over the runs that kept them
// Curves are thinned (curve.h) and rounded to 7 digits; null in a curve: a gap, as values there are not
// finite.
Json SeriesJson(const StudyResults& results, const std::vector<CellLog>& logs);

}  // namespace normlab
