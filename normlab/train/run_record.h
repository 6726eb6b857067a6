#pragma once
// What ran and how it ended: run.json, and the part of a checkpoint that says what it belongs to. Complete
// enough to say whether two runs may be compared, or one may go on from the other.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/data/tokens.h"
#include "normlab/kernels/profiling_device.h"
#include "normlab/train/machine.h"
#include "normlab/train/spike_record.h"
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
  std::optional<double> copy_bytes_per_s;    // of a plain copy, measured before the run
  std::optional<double> bound_s;             // products and memory of one step (step_bound.h)
  std::optional<double> bound_share;         // bound_s / median step time; nothing above 1
  std::vector<OperationTime> profile;        // of the training steps, where it was asked for
  size_t peak_bytes = 0;                     // device memory planned for this run, scratch included
  std::optional<size_t> process_peak_bytes;  // high-water mark of the process: may include other runs
  std::optional<Divergence> divergence;
  std::optional<int64_t> inside_every;  // steps between two samples of what is inside; 0: none
  double inside_time_s = 0;             // that watching the run took, in no step's time
  Json inside;                          // null, or the norm sites at the last sample (SummaryToJson)
  std::vector<SpikeRecord> spikes;      // of the training loss
  // The step (from 1) since which the training loss has stayed above that of the first one, at the end of the
  // run, where that is long enough to say that nothing was learned (stats/loss_course.h).
  std::optional<int64_t> loss_above_start_since;
  std::string error;                  // of a failed run
  std::string started_at;             // UTC, ISO 8601
  Json initial_weights;               // null, or the file that training started from and its hash
  std::vector<int64_t> resumed_from;  // steps that were done at each resumption
};
Json ToJson(const RunRecord& record);

// Which text a run or a study saw: files, number of ids and their hash, tokenizer and its hash.
Json DataIdentity(const TokenSource& tokens);

RunRecord RunRecordFromJson(const Json& json, std::string_view source);

// The record of a folder; nothing where it has none.
std::optional<RunRecord> ReadRunRecord(const std::filesystem::path& folder);

}  // namespace normlab
