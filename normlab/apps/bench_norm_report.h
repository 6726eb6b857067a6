#pragma once
// Results of `normlab bench kernels` for people and for programs.

#include <string>
#include <vector>

#include "normlab/apps/bench_norm_run.h"
#include "normlab/base/json.h"

namespace normlab::apps {

// Tables in 80 columns, one for each norm, types and cache.
std::string NormBenchText(const std::vector<NormCaseResult>& results);

// A row per width, with what is below 60% of a neighbour marked; the results are those of a sweep.
std::string SweepText(const std::vector<NormCaseResult>& results);

Json CaseJson(const NormCaseResult& result);
Json SweepJson(const std::vector<NormCaseResult>& results);

}  // namespace normlab::apps
