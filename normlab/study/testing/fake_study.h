#pragma once
// For tests: studies whose cells are made up instead of trained.

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "normlab/base/files.h"
#include "normlab/study/runner.h"

namespace normlab {

inline Machine FakeMachine() {
  return {.cpu = "Test CPU",
          .isa = "avx2",
          .threads = 2,
          .cpus = 2,
          .onednn = "2.6.3",
          .build = "normlab 0.1.0, GNU 12.2.0, Release",
          .device = "cpu"};
}

inline Json FakeData(const std::string& hash = "abc") {
  return {{"files", {{{"path", "/somewhere/text.txt"}, {"bytes", 1000}}}},
          {"tokens", 1000},
          {"hash", hash},
          {"tokenizer", "bytes"},
          {"tokenizer_hash", "t"}};
}

// A request over these norms; a model small enough to count its parameters at once.
inline StudyRequest FakeRequest(const std::string& norms, std::vector<uint64_t> seeds) {
  TrainConfig base;
  base.model.emb_dim = 8;
  base.model.n_heads = 2;
  base.model.n_layers = 1;
  base.steps = 10;
  const std::vector<VariedKey> keys = {ParseVariedKey("norm_type=" + norms)};
  StudyRequest request{.grid = MakeGrid(base, keys),
                       .seeds = std::move(seeds),
                       .data = FakeData(),
                       .machine = FakeMachine(),
                       .started_at = "2030-01-01T00:00:00Z"};
  request.norm_implementations.assign(request.grid.variants.size(), "fused");
  return request;
}

// A record of what a cell would be, done, with this loss and time.
inline RunRecord FakeRecord(const TrainConfig& config, double loss, double time_s = 2) {
  RunRecord record{.status = RunStatus::kDone,
                   .config = ToJson(config),
                   .norm_implementation = "fused",
                   .data = FakeData(),
                   .machine = FakeMachine(),
                   .parameters = 100,
                   .norm_parameters = 10,
                   .steps_done = config.steps,
                   .tokens = config.steps * config.TokensPerStep(),
                   .time_s = time_s};
  record.tokens_per_s = static_cast<double>(record.tokens) / time_s;
  record.train_loss = loss - 0.1;
  record.test_loss = loss;
  record.test_block_losses = {loss - 0.5, loss + 0.5};
  record.peak_bytes = 1 << 20;
  record.started_at = "2030-01-01T00:00:01Z";
  return record;
}

inline RunRecord FakeDivergence(const TrainConfig& config) {
  RunRecord record = FakeRecord(config, 0);
  record.status = RunStatus::kDiverged;
  record.test_loss.reset();
  record.test_block_losses.clear();
  record.steps_done = 3;
  record.divergence =
      Divergence{.step = 3, .what = "loss", .tensor = "trf_blocks.0.norm1.scale", .value = NAN};
  return record;
}

// Writes run.json as a real run does.
inline RunRecord Leave(const CellRun& run, const RunRecord& record) {
  WriteFileAtomic(run.folder / "run.json", DumpJson(ToJson(record), 2));
  return record;
}

// Runs cells whose loss is table[norm][seed - 1], and remembers their order as "norm:seed". Several at a
// time.
class FakeCells {
 public:
  explicit FakeCells(std::map<std::string, std::vector<double>> losses) : losses_(std::move(losses)) {}

  CellRunner Runner() {
    return [this](const CellRun& run) {
      const std::string& norm = run.config.model.norm_type;
      {
        const std::lock_guard lock(mutex_);
        ran.push_back(fmt::format("{}:{}", norm, run.config.seed));
      }
      if (before) before(run);
      return Leave(run, FakeRecord(run.config, losses_.at(norm).at(run.config.seed - 1)));
    };
  }

  std::vector<std::string> ran;
  std::function<void(const CellRun&)> before;  // may throw, as a run that fails

 private:
  std::map<std::string, std::vector<double>> losses_;
  std::mutex mutex_;  // of `ran`
};

}  // namespace normlab
