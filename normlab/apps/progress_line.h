#pragma once
// A run and a study in one line each. What matters most stands first: a narrow terminal cuts the end.

#include <optional>
#include <string>

#include "normlab/study/runner.h"
#include "normlab/train/run.h"

namespace normlab::apps {

// "step 45/60  12s left  12,345 tokens/s  products 61%  loss 2.3456"
std::string ProgressLine(const RunProgress& progress);

// "cell 3/15 fused_rmsnorm, seed 1  step 45/60  2m 05s left  ...", the time that of the whole study; where
// several cells run: "cells 3, 4 of 15  2m 05s left  24,690 tokens/s  fused_rmsnorm, seed 1: step 45/60; ..."
std::string ProgressLine(const StudyProgress& progress);

// Watches the losses that progress tells, for early advice: a learning rate that is too high shows long
// before anything becomes non-finite.
class LossWatch {
 public:
  void See(const RunProgress& progress);
  // What to say of a run that ended: its loss is above that of its first step.
  std::optional<std::string> Advice(const RunRecord& record) const;

 private:
  std::optional<double> first_;
};

}  // namespace normlab::apps
