#pragma once
// What stood inside the runs of a study, over their seeds, in the few numbers and sentences that its results
// carry. docs/insides.md has the definitions.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "normlab/study/comparison.h"
#include "normlab/study/folder.h"
#include "normlab/train/run_record.h"

namespace normlab {

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
