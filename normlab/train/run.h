#pragma once
// One run as a folder: run.json (what ran, and how it ended), metrics.jsonl (one line a step), inside.jsonl
// (what stood inside, every N steps), model.safetensors (the trained weights) and, until it has ended,
// checkpoints (train/checkpoint.h). A run that goes on from one has the bits of a run that never stopped. The
// record is written atomically at the start and at the end.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "normlab/data/tokens.h"
#include "normlab/train/run_record.h"
#include "normlab/train/step_bound.h"
#include "normlab/train/trainer.h"

namespace normlab {

// What is told while a run goes on.
struct RunProgress {
  enum class Phase { kPreparing, kTraining, kSaving, kEvaluating };
  Phase phase = Phase::kPreparing;
  int64_t steps_done = 0, steps = 0;
  double loss = 0;          // smoothed training loss
  double tokens_per_s = 0;  // of the last steps
  std::optional<double> products_share, bound_share;
  std::optional<double> remaining_s;  // of this run, evaluation included
  double phase_share = 0;             // of kEvaluating
};

// When checkpoints are written, beside those of a run that is stopped, and how many stay. A run that is done
// needs none, and removes them.
struct CheckpointPolicy {
  std::optional<int64_t> every_steps;  // 0: never; unset: by time, between any two micro-batches
  double every_s = 600;
  int64_t keep = 2;
  bool keep_after_end = false;
};

struct RunOptions {
  std::filesystem::path folder;  // empty: nothing is written
  int threads = 1;
  int jobs = 1;            // runs at the same time, this one included: for the record
  bool save_model = true;  // the trained weights; of a run that diverged, its last good ones as a checkpoint
  CheckpointPolicy checkpoints;
  std::optional<std::filesystem::path> resume_from;      // a checkpoint
  std::optional<std::filesystem::path> initial_weights;  // safetensors of this model's shape, not random ones
  bool measure_bound = true;                             // products_bound_s at the start
  std::optional<double> products_bound_s;                // known from an equal run: not measured again
  std::optional<double> copy_bytes_per_s;                // of a plain copy here, for the bound
  bool profile = false;                                  // keep the time of each kind of operation
  // Steps between two looks inside (train/run_watch.h), 0: none; unset: as the run that goes on did, or
  // DefaultInsideEvery. Changes no bit of the run.
  std::optional<int64_t> inside_every;
  std::function<void(const RunProgress&)> on_progress;
  std::function<void(const Trainer&)> on_start;    // model and data are ready, nothing is written
  std::function<void(const StepBound&)> on_bound;  // before the first step, where it is measured
  // A checkpoint that could not be written or removed; a loss that stays above its start.
  std::function<void(const std::string&)> on_note;
  // Set: ends after the micro-batch or test window under way, with a checkpoint, as kInterrupted.
  const std::atomic<bool>* stop = nullptr;
};

// Trains, evaluates, writes. A divergence is an outcome (kDiverged), not an error; other failures are thrown
// after the record says kFailed and why. A checkpoint that cannot be used is refused before anything is
// written; one that cannot be written is told to on_note, and training goes on.
RunRecord RunTraining(const TrainConfig& config, std::shared_ptr<const TokenSource> tokens,
                      const RunOptions& options);

}  // namespace normlab
