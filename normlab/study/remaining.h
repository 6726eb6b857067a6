#pragma once
// How long the rest of a study will take, from what its cells took so far. Pure.

#include <cstddef>
#include <optional>
#include <vector>

#include "normlab/study/plan.h"
#include "normlab/train/run_record.h"

namespace normlab {

// How many training steps the evaluation of a run lasts, by the `data` of its record. An evaluated window
// costs about a third of a trained one: forward alone.
double EvaluationSteps(const Json& data, const TrainConfig& config);

// What a finished run took from start to end; its record has the time of its steps.
double SecondsOf(const RunRecord& record, const TrainConfig& config);

// steps x tokens x parameters, for RemainingTime.
std::vector<double> WorkOfVariants(const StudyPlan& plan);

// A cell at work.
struct RunningCell {
  size_t variant = 0;
  double elapsed_s = 0;
  std::optional<double> remaining_s;  // its own estimate
};

class RemainingTime {
 public:
  // work[v]: how much a cell of variant v has to do relative to the others, for example steps x tokens x
  // parameters. It is used only until a cell of that variant has run.
  explicit RemainingTime(std::vector<double> work);

  // A cell of `variant` took so long from start to end, its evaluation included.
  void Add(size_t variant, double seconds);

  // Predicted seconds of a cell; nothing before anything is known.
  std::optional<double> Cell(size_t variant) const;

  // Seconds until everything is done: the running cells, then `waiting` ones (variants, in order), each of
  // which begins where one of `jobs` places becomes free. At most `jobs` cells run.
  std::optional<double> Total(const std::vector<RunningCell>& running, const std::vector<size_t>& waiting,
                              size_t jobs = 1) const;

 private:
  std::vector<double> work_, seconds_;
  std::vector<size_t> count_;
};

}  // namespace normlab
