#pragma once
// Watches a run between its steps: writes inside.jsonl (train/inside.h) every N steps and at each loss spike,
// keeps the signals of the last steps so that what moved before a spike is known to the step, and sees where
// the loss stays above its start. It changes no bit of the run, and its time is no part of any step's.
//
// All that it tells is a function of the losses and of what stands inside, so a run that goes on from a
// checkpoint, which carries inside.jsonl and the signals, tells what an uninterrupted one would. Where
// inside.jsonl cannot be written, that is noted once, and training goes on without it.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "normlab/base/files.h"
#include "normlab/stats/first_moved.h"
#include "normlab/stats/loss_course.h"
#include "normlab/train/inside.h"
#include "normlab/train/run_record.h"
#include "normlab/train/trainer.h"

namespace normlab {

// Steps between two samples where nobody says: some 30 of a run.
int64_t DefaultInsideEvery(int64_t steps);

class RunWatch {
 public:
  // `every`: 0: only losses are watched. `folder`: empty: nothing is written. The trainer outlives the watch.
  RunWatch(Trainer& trainer, int64_t every, std::filesystem::path folder,
           std::function<void(const std::string&)> note);

  // Before the first step of a run that goes on: its record as of then, and its losses so far.
  void Resume(const std::filesystem::path& checkpoint, const RunRecord& then, std::span<const double> losses);

  // Makes inside.jsonl in the run's folder what it is before the first step.
  void StartFile(const std::optional<std::filesystem::path>& checkpoint);

  // After a step that was made, before anything else runs the model.
  void After(const StepResult& step);

  // After a step that diverged: keeps what was known of the last step that was made, and returns that step.
  std::optional<int64_t> AfterDivergence();

  void TellTo(RunRecord& record) const;

  // Further files of a checkpoint, by name.
  std::map<std::string, std::string> CheckpointFiles() const;

 private:
  bool IsDue(int64_t step) const;
  std::vector<MovedSignal> Moved() const;
  void Write(const Json& line);

  Trainer& trainer_;
  const int64_t every_;
  const std::filesystem::path folder_;
  const std::function<void(const std::string&)> note_;
  std::vector<Signal> signals_;
  std::deque<stats::SignalsOfStep> recent_;
  stats::SpikeWatch spikes_;
  std::vector<std::vector<MovedSignal>> moved_;  // of each spike
  stats::StartWatch start_;
  Json summary_;
  double time_s_ = 0;
  bool cannot_write_ = false;
};

}  // namespace normlab
