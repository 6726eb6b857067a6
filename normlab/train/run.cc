#include "normlab/train/run.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <span>

#include "normlab/base/files.h"
#include "normlab/base/safetensors.h"
#include "normlab/kernels/cpu/cpu_device.h"

namespace normlab {
namespace {

std::string UtcNow() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::optional<size_t> ProcessPeakBytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

double Median(std::vector<double> values) {
  NL_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Json DataRecord(const TokenSource& tokens, const Split& split) {
  Json json = DataIdentity(tokens);
  json["train_tokens"] = split.train.size();
  json["train_windows"] = split.train_windows();
  json["held_out_tokens"] = split.held_out.size();
  json["held_out_windows"] = split.held_out_starts.size();
  return json;
}

Json MetricsLine(const StepResult& step) {
  return {{"step", step.step + 1},
          {"loss", ToJson(step.loss)},
          {"grad_norm", ToJson(step.gradient_norm)},
          {"learning_rate", ToJson(step.learning_rate)},
          {"time_s", ToJson(step.time_s)},
          {"tokens_per_s", ToJson(static_cast<double>(step.tokens) / step.time_s)}};
}

// What a run's speed looks like from its latest steps, for progress and for the time left.
class Pace {
 public:
  void Add(const StepResult& step) {
    smoothed_loss_ = recent_.empty() ? step.loss : 0.9 * smoothed_loss_ + 0.1 * step.loss;
    recent_.push_back(step.time_s);
    if (recent_.size() > 16) recent_.pop_front();
    tokens_ = step.tokens;
  }
  double loss() const { return smoothed_loss_; }
  double step_s() const { return Median({recent_.begin(), recent_.end()}); }
  double tokens_per_s() const { return static_cast<double>(tokens_) / step_s(); }

 private:
  std::deque<double> recent_;
  double smoothed_loss_ = 0;
  int64_t tokens_ = 0;
};

class Run {
 public:
  Run(const TrainConfig& config, std::shared_ptr<const TokenSource> tokens, const RunOptions& options)
      : options_(options),
        device_(MakeCpuDevice({.threads = options.threads})),
        trainer_(*device_, config, std::move(tokens)) {
    record_.config = ToJson(config);
    record_.norm_implementation = Name(trainer_.model().norm_implementation());
    record_.data = DataRecord(trainer_.tokens(), trainer_.split());
    record_.machine = DescribeMachine(*device_);
    record_.parameters = trainer_.model().parameters().count();
    record_.norm_parameters = trainer_.model().parameters().norm_count();
    record_.started_at = UtcNow();
  }

  RunRecord Go() {
    if (options_.on_start) options_.on_start(trainer_);
    if (!options_.folder.empty()) CreateDirectories(options_.folder);
    WriteRecord();
    try {
      Prepare();
      Train();
      if (record_.status == RunStatus::kRunning) Evaluate();
    } catch (const std::exception& e) {
      // A finished run stays finished where only its weights could not be saved.
      if (record_.status != RunStatus::kDone) record_.status = RunStatus::kFailed;
      record_.error = e.what();
      TakeMemory();
      WriteRecord();
      throw;
    }
    TakeMemory();
    WriteRecord();
    return record_;
  }

 private:
  void Prepare() {
    Report(RunProgress::Phase::kPreparing);
    record_.products_bound_s = options_.products_bound_s;
    if (options_.measure_bound && !record_.products_bound_s)
      record_.products_bound_s = trainer_.ProductsBound();
    trainer_.WarmUp();
  }

  void Train() {
    const TrainConfig& config = trainer_.config();
    std::optional<LineFile> metrics;
    if (!options_.folder.empty()) {
      std::filesystem::remove(options_.folder / "metrics.jsonl");
      metrics.emplace(options_.folder / "metrics.jsonl");
    }
    std::vector<double> losses, times;
    while (trainer_.next_step() < config.steps) {
      if (Stopped()) {
        record_.status = RunStatus::kInterrupted;
        break;
      }
      const StepResult step = trainer_.Step();
      if (metrics) metrics->Append(DumpJson(MetricsLine(step)));
      if (step.divergence) {
        record_.divergence = step.divergence;
        record_.status = RunStatus::kDiverged;
        break;
      }
      record_.steps_done = step.step + 1;
      record_.tokens += step.tokens;
      record_.time_s += step.time_s;
      losses.push_back(step.loss);
      times.push_back(step.time_s);
      pace_.Add(step);
      Report(RunProgress::Phase::kTraining);
    }
    if (times.empty()) return;
    record_.tokens_per_s = static_cast<double>(record_.tokens) / record_.time_s;
    record_.products_share = ProductsShare(Median(times));
    const size_t last = std::max<size_t>(1, losses.size() / 10);
    double sum = 0;
    for (const double loss : std::span(losses).last(last)) sum += loss;
    record_.train_loss = sum / static_cast<double>(last);
  }

  void Evaluate() {
    const std::optional<Evaluation> result = trainer_.Evaluate([&](double share) {
      phase_share_ = share;
      Report(RunProgress::Phase::kEvaluating);
      return share == 1 || !Stopped();
    });
    if (!result) {
      record_.status = RunStatus::kInterrupted;
      return;
    }
    const Evaluation& evaluation = *result;
    record_.test_block_losses = evaluation.block_losses;
    if (!std::isfinite(evaluation.loss)) {
      record_.divergence =
          Divergence{.step = record_.steps_done, .what = "test loss", .value = evaluation.loss};
      record_.status = RunStatus::kDiverged;
      return;
    }
    record_.test_loss = evaluation.loss;
    record_.status = RunStatus::kDone;
    if (!options_.save_model || options_.folder.empty()) return;
    // The result is safe before the weights are written: a full disk must not cost it.
    TakeMemory();
    WriteRecord();
    SaveModel();
  }

  // Above 1 the bound was measured while the machine was busier than now, and says nothing.
  std::optional<double> ProductsShare(double step_s) const {
    if (!record_.products_bound_s || *record_.products_bound_s > step_s) return std::nullopt;
    return *record_.products_bound_s / step_s;
  }

  bool Stopped() const { return options_.stop != nullptr && *options_.stop; }

  void SaveModel() {
    std::vector<TensorToWrite> tensors;
    std::vector<std::vector<float>> memory;  // fp32 copies of one tensor each: the views are the device's
    const ParameterList& parameters = trainer_.model().parameters();
    memory.reserve(parameters.all().size());
    for (const Parameter& parameter : parameters.all()) {
      std::vector<double> values(static_cast<size_t>(parameter.elements()));
      device_->ReadBack(trainer_.model().Weight(parameter.name), values);
      memory.emplace_back(values.begin(), values.end());
      tensors.push_back({.name = parameter.name,
                         .dtype = DType::kF32,
                         .shape = parameter.shape,
                         .bytes = std::as_bytes(std::span(memory.back()))});
    }
    WriteSafetensors(options_.folder / "model.safetensors", tensors,
                     {{"config", DumpJson(record_.config)},
                      {"tokenizer", trainer_.tokens().info().tokenizer},
                      {"tokenizer_hash", trainer_.tokens().info().tokenizer_hash}});
  }

  void Report(RunProgress::Phase phase) {
    if (!options_.on_progress) return;
    RunProgress progress{.phase = phase,
                         .steps_done = trainer_.next_step(),
                         .steps = trainer_.config().steps,
                         .phase_share = phase == RunProgress::Phase::kEvaluating ? phase_share_ : 0};
    if (record_.steps_done > 0) {
      progress.loss = pace_.loss();
      progress.tokens_per_s = pace_.tokens_per_s();
      progress.products_share = ProductsShare(pace_.step_s());
      // An evaluated window costs about a third of a trained one: forward alone.
      const double eval_s = pace_.step_s() / 3 *
                            static_cast<double>(trainer_.split().held_out_starts.size()) /
                            static_cast<double>(trainer_.config().batch);
      progress.remaining_s = pace_.step_s() * static_cast<double>(progress.steps - progress.steps_done) +
                             eval_s * (1 - progress.phase_share);
    }
    options_.on_progress(progress);
  }

  void TakeMemory() {
    record_.peak_bytes = device_->peak_bytes();
    record_.process_peak_bytes = ProcessPeakBytes();
  }

  void WriteRecord() const {
    if (!options_.folder.empty())
      WriteFileAtomic(options_.folder / "run.json", DumpJson(ToJson(record_), 2) + "\n");
  }

  const RunOptions& options_;
  std::unique_ptr<Device> device_;
  Trainer trainer_;
  RunRecord record_;
  Pace pace_;
  double phase_share_ = 0;
};

}  // namespace

RunRecord RunTraining(const TrainConfig& config, std::shared_ptr<const TokenSource> tokens,
                      const RunOptions& options) {
  return Run(config, std::move(tokens), options).Go();
}

}  // namespace normlab
