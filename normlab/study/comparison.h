#pragma once
// From cells to results: what each variant reached, and how it stands against the baseline. Pure.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/stats/comparison.h"
#include "normlab/stats/explain.h"
#include "normlab/stats/two_way.h"
#include "normlab/study/duel_summary.h"
#include "normlab/study/folder.h"
#include "normlab/study/plan.h"

namespace normlab {

enum class Metric { kTestLoss, kTime, kTokensPerSecond, kPeakBytes };
std::string_view Name(Metric metric);  // "test_loss", "time", "tokens_per_s", "peak_bytes"

// The number of a finished cell; nothing where it does not exist.
std::optional<double> Value(Metric metric, const Cell& cell);

// How many cells are in which state.
struct Counts {
  size_t planned = 0, done = 0, diverged = 0, failed = 0, missing = 0;
  bool complete() const { return failed == 0 && missing == 0; }
};

Counts CountCells(const std::vector<Cell>& cells);

// Means are over the cells that are done; nothing where there is none.
struct VariantSummary {
  std::string name;
  Counts counts;
  std::optional<double> test_loss, test_loss_sd;      // the latter from two seeds on
  std::optional<stats::Interval> test_loss_interval;  // 95%, of the mean: Student's t, this variant alone
  std::optional<double> time_s, peak_bytes, products_share;
  std::optional<double> tokens_per_s;  // all tokens over all time, so that it agrees with time_s
};

struct MetricComparison {
  size_t variant = 0, baseline = 0;  // indices into the plan
  Metric metric = Metric::kTestLoss;
  stats::ComparisonRule rule;
  stats::Comparison
      result;  // of kPeakBytes only n, means, difference and ratio: memory is counted, not judged
  bool judged = true;
  bool interim = false;  // cells are still to run: labelled, and no verdict to quote
  size_t left_out = 0;   // pairs whose times were not measured on equal machines, threads and jobs
  std::optional<stats::TwoWay> text;  // of the loss: carries the sampling of the held-out text too
  size_t text_blocks = 0;             // over which it is
  std::string explanation;            // plain English; empty where not judged
};

struct StudyResults {
  StudyPlan plan;
  std::vector<Cell> cells;  // variant by variant, seed by seed
  Counts counts;
  std::vector<VariantSummary> variants;
  std::vector<MetricComparison> comparisons;  // metric by metric, variants in their order
  std::optional<Machine> machine;             // of the cells: the first finished one's
  bool machines_differ = false;               // not SameSpeed, among the finished cells
  std::optional<DuelSummary> duel;            // what times are judged by; without one they are not

  const MetricComparison* Find(size_t variant, Metric metric) const;  // null for a baseline
  // Variants, as indices:
  std::vector<size_t> Worse() const;                  // a loss is worse, or more runs diverged
  std::vector<size_t> Slower() const;                 // a time is judged longer
  std::vector<size_t> Unjudged(Metric metric) const;  // no verdict at all

 private:
  std::vector<size_t> VariantsWhere(const std::function<bool(const MetricComparison&)>& holds) const;
};

// A duel that is not of this plan does not count.
StudyResults Evaluate(const StudyPlan& plan, const std::vector<Cell>& cells,
                      const DuelRecord* duel = nullptr);

// True where a verdict can be read that could not be read at the look before: at least two seeds
// finished in the baseline and a variant, and something finished that was no part of the look before.
bool LookTaken(const StudyPlan& plan, const std::vector<Cell>& cells);

}  // namespace normlab
