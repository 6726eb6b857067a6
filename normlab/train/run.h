#pragma once
// One run as a folder: run.json (what ran, and how it ended), metrics.jsonl (one line a step) and
// model.safetensors (the trained weights). The record is complete enough to say whether two runs may be
// compared, and is written atomically at the start and at the end.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/data/tokens.h"
#include "normlab/train/machine.h"
#include "normlab/train/trainer.h"

namespace normlab {

enum class RunStatus { kRunning, kDone, kDiverged, kInterrupted, kFailed };
std::string_view Name(RunStatus status);

struct RunRecord {
  static constexpr int kSchemaVersion = 1;

  RunStatus status = RunStatus::kRunning;
  Json config;                      // every key with the value in use
  std::string norm_implementation;  // what norm_type resolved to: "fused"
  Json data;                        // files, bytes, hash, tokenizer, tokenizer_hash, windows
  Machine machine;
  int64_t parameters = 0, norm_parameters = 0;
  int64_t steps_done = 0;
  int64_t tokens = 0;
  double time_s = 0;  // training steps only
  std::optional<double> tokens_per_s;
  std::optional<double> train_loss;          // mean of the last tenth of the steps (at least one)
  std::optional<double> test_loss;           // nats
  std::vector<double> test_block_losses;     // one per held-out window
  std::optional<double> products_bound_s;    // of one step
  std::optional<double> products_share;      // products_bound_s / median step time; nothing above 1
  size_t peak_bytes = 0;                     // device memory planned for this run, scratch included
  std::optional<size_t> process_peak_bytes;  // high-water mark of the process: may include other runs
  std::optional<Divergence> divergence;
  std::string error;       // of a failed run
  std::string started_at;  // UTC, ISO 8601
};
Json ToJson(const RunRecord& record);

// Which text a run or a study saw: files, number of ids and their hash, tokenizer and its hash.
Json DataIdentity(const TokenSource& tokens);

RunRecord RunRecordFromJson(const Json& json, std::string_view source);

// The record of a folder; nothing where it has none.
std::optional<RunRecord> ReadRunRecord(const std::filesystem::path& folder);

// What is told while a run goes on.
struct RunProgress {
  enum class Phase { kPreparing, kTraining, kEvaluating };
  Phase phase = Phase::kPreparing;
  int64_t steps_done = 0, steps = 0;
  double loss = 0;          // smoothed training loss
  double tokens_per_s = 0;  // of the last steps
  std::optional<double> products_share;
  std::optional<double> remaining_s;  // of this run, evaluation included
  double phase_share = 0;             // of kEvaluating
};

struct RunOptions {
  std::filesystem::path folder;  // empty: nothing is written
  int threads = 1;
  bool save_model = true;
  bool measure_bound = true;               // products_bound_s at the start
  std::optional<double> products_bound_s;  // known from an equal run: not measured again
  std::function<void(const RunProgress&)> on_progress;
  std::function<void(const Trainer&)> on_start;  // model and data are ready, nothing has run
  const std::atomic<bool>* stop =
      nullptr;  // set: ends after the step or test window under way, as kInterrupted
};

// Trains, evaluates, writes. A divergence is an outcome (kDiverged), not an error; other failures are thrown
// after the record says kFailed and why.
RunRecord RunTraining(const TrainConfig& config, std::shared_ptr<const TokenSource> tokens,
                      const RunOptions& options);

}  // namespace normlab
