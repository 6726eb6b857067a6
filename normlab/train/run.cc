#include "normlab/train/run.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <span>

#include "normlab/base/files.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/profiling_device.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run_folder.h"
#include "normlab/train/run_watch.h"
#include "normlab/train/tensor_file.h"

namespace normlab {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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

// What metrics.jsonl tells of the steps before a resumption.
struct PastSteps {
  std::vector<double> losses, times;
};

PastSteps ReadMetrics(const std::filesystem::path& path) {
  PastSteps past;
  const std::string text = ReadFile(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const Json line = ParseJson(std::string_view(text).substr(begin, end - begin), path.string());
    past.losses.push_back(NumberFromJson(line.at("loss"), "loss"));
    past.times.push_back(NumberFromJson(line.at("time_s"), "time_s"));
    begin = end + 1;
  }
  return past;
}

// What a run's speed looks like from its latest steps, for progress and for the time left.
class Pace {
 public:
  void Add(double loss, double time_s, int64_t tokens) {
    smoothed_loss_ = recent_.empty() ? loss : 0.9 * smoothed_loss_ + 0.1 * loss;
    recent_.push_back(time_s);
    if (recent_.size() > 16) recent_.pop_front();
    tokens_ = tokens;
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
        profiling_device_(*device_),
        trainer_(options.profile ? static_cast<Device&>(profiling_device_) : *device_, config,
                 std::move(tokens)) {
    record_.config = ToJson(config);
    record_.norm_implementation = Name(trainer_.model().norm_implementation());
    record_.data = DataRecord(trainer_.tokens(), trainer_.split());
    record_.machine = DescribeMachine(*device_, options.jobs);
    record_.parameters = trainer_.model().parameters().count();
    record_.norm_parameters = trainer_.model().parameters().norm_count();
    record_.started_at = UtcNow();
  }

  RunRecord Go() {
    // What may be refused comes before anything is written.
    if (options_.resume_from) Resume(*options_.resume_from);
    if (!watch_) Watch(DefaultInsideEvery(trainer_.config().steps));
    if (options_.initial_weights) TakeWeights(*options_.initial_weights);
    if (options_.on_start) options_.on_start(trainer_);
    StartFolder();
    try {
      Prepare();
      Train();
      if (record_.status == RunStatus::kRunning) Evaluate();
      if (record_.status == RunStatus::kInterrupted) SaveState();
      if (record_.status == RunStatus::kDiverged && options_.save_model) SaveState();
      // Before the record says "done": whoever is killed in between finds a run that goes on, and is done
      // again.
      if (record_.status == RunStatus::kDone && options_.save_model) SaveModel();
    } catch (const std::exception& e) {
      // A finished run stays finished where only its weights could not be saved.
      if (record_.status != RunStatus::kDone) record_.status = RunStatus::kFailed;
      record_.error = e.what();
      CompleteRecord();
      WriteRecord();
      throw;
    }
    CompleteRecord();
    WriteRecord();
    CleanUp();
    return record_;
  }

 private:
  void Resume(const std::filesystem::path& checkpoint) {
    const CheckpointState state = ReadCheckpointState(checkpoint);
    for (const std::string& note : RequireMatch(checkpoint, state, record_)) Note(note);
    VerifyCheckpoint(checkpoint, state);
    past_ = ReadMetrics(checkpoint / kMetricsFile);
    if (static_cast<int64_t>(past_.losses.size()) != state.position.step)
      Fail("the checkpoint \"{}\" is of step {}, and its {} has {} lines: take another one",
           checkpoint.string(), state.position.step, kMetricsFile, past_.losses.size());
    trainer_.WarmUp();
    RestoreCheckpoint(checkpoint, state, trainer_);
    saved_ = state.position;
    const RunRecord& then = state.record;
    record_.started_at = then.started_at;
    record_.machine.jobs = std::max(record_.machine.jobs, then.machine.jobs);  // its time is of both
    record_.initial_weights = then.initial_weights;
    record_.steps_done = then.steps_done;
    record_.tokens = then.tokens;
    record_.time_s = then.time_s;
    record_.resumed_from = then.resumed_from;
    record_.resumed_from.push_back(state.position.step);
    Watch(then.inside_every.value_or(DefaultInsideEvery(trainer_.config().steps)));
    watch_->Resume(checkpoint, then, past_.losses);
    for (size_t i = 0; i < past_.losses.size(); ++i)
      pace_.Add(past_.losses[i], past_.times[i], trainer_.config().TokensPerStep());
  }

  void Watch(int64_t every_by_default) {
    watch_.emplace(trainer_, options_.inside_every.value_or(every_by_default), options_.folder,
                   [this](const std::string& text) { Note(text); });
    watch_->TellTo(record_);
  }

  void TakeWeights(const std::filesystem::path& path) {
    const FlatTensors weights[] = {{"", trainer_.model().weights()}};
    ReadTensorFile(path, *device_, trainer_.model().parameters(), weights, std::nullopt, NonFinite::kRefused);
    trainer_.MoveTo(trainer_.position());  // the weights are others now
    record_.initial_weights = {{"path", path.string()}, {"hash", FileHash(path)}};
  }

  // Leaves nothing there of an attempt that did not finish but what this run goes on with.
  void StartFolder() {
    if (options_.folder.empty()) return;
    CreateDirectories(options_.folder);
    RemoveTemporaries(options_.folder);
    if (options_.resume_from)
      WriteFileAtomic(options_.folder / kMetricsFile, ReadFile(*options_.resume_from / kMetricsFile));
    else
      std::filesystem::remove(options_.folder / kMetricsFile);
    watch_->StartFile(options_.resume_from);
    std::filesystem::remove(options_.folder / kModelFile);
    WriteRecord();
  }

  void Prepare() {
    Report(RunProgress::Phase::kPreparing);
    record_.products_bound_s = options_.products_bound_s;
    if (options_.measure_bound && !record_.products_bound_s)
      record_.products_bound_s = trainer_.ProductsBound();
    const StepBound bound{.products_s = record_.products_bound_s,
                          .bytes = StepBytes(trainer_.model(), trainer_.config()),
                          .copy_bytes_per_s = options_.copy_bytes_per_s};
    record_.copy_bytes_per_s = bound.copy_bytes_per_s;
    record_.bound_s = bound.seconds();
    if (options_.on_bound && bound.products_s) options_.on_bound(bound);
    if (!options_.resume_from) trainer_.WarmUp();
    saved_at_s_ = Now();
  }

  void Train() {
    const TrainConfig& config = trainer_.config();
    std::optional<LineFile> metrics;
    if (!options_.folder.empty()) metrics.emplace(options_.folder / kMetricsFile);
    std::vector<double>&losses = past_.losses, &times = past_.times;
    while (trainer_.next_step() < config.steps) {
      if (Stopped()) {
        record_.status = RunStatus::kInterrupted;
        break;
      }
      profiling_device_.Keep(true);
      const std::optional<StepResult> result =
          trainer_.StepOrPause([&] { return Stopped() || SaveIsDue(/*after_step=*/false); });
      profiling_device_.Keep(false);
      if (!result) {
        if (!Stopped()) SaveState();
        continue;
      }
      const StepResult& step = *result;
      if (metrics) metrics->Append(DumpJson(MetricsLine(step)));
      if (step.divergence) {
        record_.divergence = step.divergence;
        record_.divergence->last_inside_step = watch_->AfterDivergence();
        record_.status = RunStatus::kDiverged;
        break;
      }
      record_.steps_done = step.step + 1;
      record_.tokens += step.tokens;
      record_.time_s += step.time_s;
      losses.push_back(step.loss);
      times.push_back(step.time_s);
      pace_.Add(step.loss, step.time_s, step.tokens);
      watch_->After(step);
      Report(RunProgress::Phase::kTraining);
      if (SaveIsDue(/*after_step=*/true)) SaveState();
    }
    record_.profile = profiling_device_.Times();
    if (times.empty()) return;
    record_.tokens_per_s = static_cast<double>(record_.tokens) / record_.time_s;
    record_.products_share = ShareOfStep(record_.products_bound_s, Median(times));
    record_.bound_share = ShareOfStep(record_.bound_s, Median(times));
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
  }

  bool Stopped() const { return options_.stop != nullptr && *options_.stop; }

  // Checkpoints are no part of any step's time. After the last step there is nothing more to lose.
  bool SaveIsDue(bool after_step) const {
    const CheckpointPolicy& policy = options_.checkpoints;
    if (options_.folder.empty() || trainer_.next_step() == trainer_.config().steps) return false;
    if (!policy.every_steps) return Now() - saved_at_s_ >= policy.every_s;
    return after_step && *policy.every_steps > 0 && trainer_.next_step() % *policy.every_steps == 0;
  }

  // Where the disk is full or read-only, training goes on: the checkpoints that were there still are.
  void SaveState() {
    const TrainPosition& position = trainer_.position();
    const bool nothing_new = position.step == saved_.step && position.micro_batches == saved_.micro_batches;
    if (options_.folder.empty() || nothing_new) return;
    Report(RunProgress::Phase::kSaving);  // gigabytes take their time
    RunRecord record = record_;           // a run that goes on from here has neither ended nor diverged
    watch_->TellTo(record);
    record.status = RunStatus::kRunning;
    record.divergence.reset();
    const bool saved = TryTo(fmt::format("no checkpoint of step {}", position.step), [&] {
      SaveCheckpoint(options_.folder, trainer_, record, watch_->CheckpointFiles());
    });
    if (saved) {
      saved_ = position;
      TryTo("an older checkpoint stays",
            [&] { PruneCheckpoints(options_.folder, position, options_.checkpoints.keep); });
    }
    saved_at_s_ = Now();
  }

  // Does what a run can do without. Where it fails, `consequence` and the reason are told.
  template <class Act>
  bool TryTo(const std::string& consequence, const Act& act) const {
    try {
      act();
      return true;
    } catch (const Error& error) {
      Note(fmt::format("{}: {}", consequence, error.what()));
    } catch (const std::filesystem::filesystem_error& error) {
      Note(fmt::format("{}: {}", consequence, error.what()));
    }
    return false;
  }

  void CleanUp() {
    const bool done = record_.status == RunStatus::kDone;
    const bool diverged = record_.status == RunStatus::kDiverged;
    if (options_.folder.empty() || !(done || (diverged && !options_.save_model))) return;
    if (options_.checkpoints.keep_after_end) return;
    TryTo("checkpoints stay", [&] { RemoveCheckpoints(options_.folder); });  // the result is safe
  }

  void SaveModel() {
    if (options_.folder.empty()) return;
    const FlatTensors weights[] = {{"", trainer_.model().weights()}};
    WriteTensorFile(options_.folder / kModelFile, *device_, trainer_.model().parameters(), weights,
                    DType::kF32, NonFinite::kRefused,
                    {{"config", DumpJson(record_.config)},
                     {"tokenizer", trainer_.tokens().info().tokenizer},
                     {"tokenizer_hash", trainer_.tokens().info().tokenizer_hash}});
  }

  void Note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
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
      progress.products_share = ShareOfStep(record_.products_bound_s, pace_.step_s());
      progress.bound_share = ShareOfStep(record_.bound_s, pace_.step_s());
      // An evaluated window costs about a third of a trained one: forward alone.
      const double eval_s = pace_.step_s() / 3 *
                            static_cast<double>(trainer_.split().held_out_starts.size()) /
                            static_cast<double>(trainer_.config().batch);
      progress.remaining_s = pace_.step_s() * static_cast<double>(progress.steps - progress.steps_done) +
                             eval_s * (1 - progress.phase_share);
    }
    options_.on_progress(progress);
  }

  void CompleteRecord() {
    watch_->TellTo(record_);
    record_.peak_bytes = device_->peak_bytes();
    record_.process_peak_bytes = ProcessPeakBytes();
  }

  void WriteRecord() const {
    if (!options_.folder.empty())
      WriteFileAtomic(options_.folder / kRecordFile, DumpJson(ToJson(record_), 2) + "\n");
  }

  const RunOptions& options_;
  std::unique_ptr<Device> device_;
  ProfilingDevice profiling_device_;
  Trainer trainer_;
  RunRecord record_;
  std::optional<RunWatch> watch_;
  PastSteps past_;  // of all parts of the run
  Pace pace_;
  double phase_share_ = 0;
  TrainPosition saved_;  // of the last checkpoint; step 0 needs none
  double saved_at_s_ = 0;
};

}  // namespace

RunRecord RunTraining(const TrainConfig& config, std::shared_ptr<const TokenSource> tokens,
                      const RunOptions& options) {
  return Run(config, std::move(tokens), options).Go();
}

}  // namespace normlab
