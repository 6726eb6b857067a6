#pragma once
// What a duel found, from its record: times of a step, ratios with intervals, verdicts, and how it was
// measured. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "normlab/stats/batch_verdict.h"
#include "normlab/stats/interval.h"
#include "normlab/stats/two_groups.h"
#include "normlab/study/duel_record.h"

namespace normlab {

// Of one step, over all blocks of all batches.
struct StepTimes {
  double median = 0, mean = 0, first_quartile = 0, third_quartile = 0;  // seconds
};

struct DuelVariant {
  std::string name, norm_implementation;
  std::optional<StepTimes> step_s;         // nothing where no batch is complete
  std::optional<stats::TwoGroups> groups;  // of the blocks' times a step: the median says little then
  std::optional<double> tokens_per_s;      // tokens / exp(mean over batches of the median log time)
  std::optional<stats::Interval> tokens_per_s_interval;  // 95% for each variant, by inverse times
  size_t peak_bytes = 0;
  size_t interrupted_blocks = 0, blocks = 0, first_in_round = 0;

  // Against the baseline, which is named; nothing for a baseline itself.
  std::string baseline;
  std::optional<stats::Comparison> time, tokens_rate;
  std::string explanation;                         // of `time`
  std::optional<double> half_width;                // reached, as a fraction of the ratio
  std::optional<double> autocorrelation;           // lag 1, of the rounds' log ratios
  std::vector<double> round_ratios, batch_ratios;  // time / time of the baseline
};

struct DuelSummary {
  std::string started_at;
  Machine machine;
  DuelSettings settings;
  stats::ComparisonRule rule;
  int64_t steps_per_block = 1;
  size_t pilot_rounds = 0;  // excluded from everything
  DuelPilot pilot;
  size_t batches = 0, rounds_per_batch = 0;
  bool cut = false, stopped = false;
  std::vector<DuelVariant> variants;

  std::optional<double> half_width;       // reached: the widest of the variants', as a fraction
  std::optional<double> autocorrelation;  // the largest of the variants', by size
  std::optional<double> stolen_s;         // processor time that others got during the rounds
  size_t stolen_rounds = 0;               // rounds with any
  std::optional<double> least_mhz, most_mhz;
  std::optional<double> busy_cpus;       // with other programs, when it started
  std::optional<double> seconds_needed;  // about so many for a verdict, or for the precision, if it was cut

  size_t rounds() const { return batches * rounds_per_batch; }
  const std::string& baseline() const { return variants[settings.baseline].name; }
  bool one_baseline() const;  // all are compared with that one
  size_t interrupted_blocks() const;
};

DuelSummary Summarize(const DuelRecord& record);

// `duel` of results.json.
Json ToJson(const DuelSummary& summary);

// The record with what follows from it: duel.json, and what `normlab duel` writes.
Json DuelJson(const DuelRecord& record);

}  // namespace normlab
