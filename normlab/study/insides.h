#pragma once
// What stood inside the runs of a study, over their seeds: the curves of inside.jsonl per variant, for heat
// maps of layer x step, and the few sentences that the table carries. docs/insides.md has the definitions.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "normlab/study/comparison.h"
#include "normlab/study/folder.h"
#include "normlab/study/plan.h"
#include "normlab/train/run_record.h"

namespace normlab {

// One statistic of one place: a value for each of VariantInsides::steps, the mean over the seeds that have a
// finite number there; nothing where none has.
using InsideSeries = std::vector<std::optional<double>>;

// A norm site or a tensor.
struct InsidePlace {
  std::string name;
  // By their path in a line of inside.jsonl: "input.rms", "input.mean_share", "output.kurtosis",
  // "saturated_share" of a site; "gradient_norm", "update_ratio" of a tensor.
  std::map<std::string, InsideSeries, std::less<>> series;
};

struct VariantInsides {
  std::string variant;
  std::vector<int64_t> steps;  // from 1, rising: every step that some seed was sampled at by its interval
  std::vector<size_t> seeds;   // how many were, at each
  std::vector<InsidePlace> sites, tensors;  // in forward order
};

// Of every variant of the plan, in its order; with no steps where no finished cell has an inside.jsonl.
// `folder` is the study's. Throws Error where one cannot be read.
std::vector<VariantInsides> ReadInsides(const std::filesystem::path& folder, const StudyPlan& plan,
                                        const std::vector<Cell>& cells);

// The spikes of a variant's finished runs.
struct SpikeSummary {
  size_t runs = 0, runs_with_spikes = 0, spikes = 0, not_recovered = 0;
  std::optional<double> median_recovery;  // steps, of those that recovered
};
SpikeSummary SummarizeSpikes(const std::vector<Cell>& cells, size_t variant);

// At the last sample, the median over the norm sites (of all finished seeds of a variant, or of one run) of
// the share of the mean in an input's mean square; nothing where no run was looked into.
std::optional<double> MedianMeanShare(const std::vector<Cell>& cells, size_t variant);
std::optional<double> MedianMeanShare(const RunRecord& record);

// "step 103: loss 2.40 to 3.10; update_norm of trf_blocks.0.att.W_query.weight moved first, at step 100
// (x2.0); over after 9 steps"
std::string Describe(const SpikeRecord& spike);

// The paragraph of the table; empty where there is nothing to say.
std::string InsidesText(const StudyResults& results, size_t columns);

}  // namespace normlab
