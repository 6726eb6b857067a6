#include "normlab/train/run_watch.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "normlab/base/text.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSignalsFile = "signals.json";
// One look at the preset tiny costs 4% of a step: nearer than this, looking would cost more than 1% or 2%.
constexpr int64_t kSamples = 30, kLeastGap = 5;
constexpr size_t kRecentSteps = static_cast<size_t>(stats::kLevelSteps + stats::kMoveSteps);

// Adds the time of its life.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  ~Timed() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

int64_t DefaultInsideEvery(int64_t steps) { return std::max(kLeastGap, (steps + kSamples - 1) / kSamples); }

RunWatch::RunWatch(Trainer& trainer, int64_t every, fs::path folder,
                   std::function<void(const std::string&)> note)
    : trainer_(trainer), every_(every), folder_(std::move(folder)), note_(std::move(note)) {
  NL_CHECK(every >= 0);
  if (every > 0) signals_ = SignalsOf(trainer);
}

void RunWatch::Resume(const fs::path& checkpoint, const RunRecord& then, std::span<const double> losses) {
  for (const double loss : losses) {
    spikes_.See(loss);
    start_.See(loss);
  }
  for (const SpikeRecord& spike : then.spikes) moved_.push_back(spike.moved);
  moved_.resize(spikes_.spikes().size());
  summary_ = then.inside;
  time_s_ = then.inside_time_s;
  const fs::path path = checkpoint / kSignalsFile;
  if (every_ == 0 || KindOf(path) == PathKind::kNothing) return;
  const Json json = ParseJson(ReadFile(path), path.string());
  for (const Json& step : json.at("steps")) {
    stats::SignalsOfStep& kept = recent_.emplace_back();
    kept.step = step.at("step").get<int64_t>();
    for (const Json& value : step.at("values")) kept.values.push_back(NumberFromJson(value, "values"));
    if (kept.values.size() != signals_.size())
      Fail("\"{}\" has {} signals where the run has {}; take another checkpoint", path.string(),
           kept.values.size(), signals_.size());
  }
}

void RunWatch::StartFile(const std::optional<fs::path>& checkpoint) {
  if (folder_.empty()) return;
  if (checkpoint && KindOf(*checkpoint / kInsideFile) != PathKind::kNothing)
    WriteFileAtomic(folder_ / kInsideFile, ReadFile(*checkpoint / kInsideFile));
  else
    fs::remove(folder_ / kInsideFile);
}

// The first step shows what initial weights make of the text, the last one what the run ended with.
bool RunWatch::IsDue(int64_t step) const {
  return every_ > 0 && (step == 1 || step % every_ == 0 || step == trainer_.config().steps);
}

void RunWatch::After(const StepResult& result) {
  const Timed timed(time_s_);
  const int64_t step = result.step + 1;
  if (start_.See(result.loss) && note_)
    note_(
        fmt::format("the training loss has been above the {:.4f} of its first step since step {}, for {} "
                    "steps: nothing is "
                    "learned; a smaller learning_rate or a longer warmup_fraction may help",
                    start_.first(), *start_.since(), stats::StartWatch::kSteps));
  const bool spike = spikes_.See(result.loss);
  if (every_ > 0) {
    recent_.push_back({.step = step, .values = ReadSignals(trainer_)});
    if (recent_.size() > kRecentSteps) recent_.pop_front();
  }
  if (spike) moved_.push_back(Moved());
  if (!IsDue(step) && !(spike && every_ > 0)) return;
  const Inside inside = LookInside(trainer_);
  summary_ = SummaryToJson(inside);
  Write(ToJson(inside, IsDue(step) ? "interval" : "spike"));
}

std::optional<int64_t> RunWatch::AfterDivergence() {
  const Timed timed(time_s_);
  if (recent_.empty()) return std::nullopt;  // nothing is kept, or no step was made here
  const stats::SignalsOfStep& last = recent_.back();
  if (summary_.value("step", int64_t{0}) != last.step)  // else all is there
    Write(LastFiniteToJson(trainer_, last.step, last.values));
  return last.step;
}

std::vector<MovedSignal> RunWatch::Moved() const {
  std::vector<MovedSignal> moved;
  const std::vector<stats::SignalsOfStep> steps(recent_.begin(), recent_.end());
  for (const stats::Move& move : stats::MovesBefore(steps)) {
    const Signal& signal = signals_[move.signal];
    moved.push_back({.what = signal.what, .name = signal.name, .step = move.step, .ratio = move.ratio});
  }
  // Within a step, activations come before gradients, and these before updates.
  const auto place = [](const MovedSignal& signal) {
    return std::tuple(signal.step, signal.what == "update_norm", signal.what == "gradient_norm");
  };
  std::ranges::stable_sort(moved, [&](const auto& a, const auto& b) { return place(a) < place(b); });
  if (moved.size() > SpikeRecord::kMostMoved) moved.resize(SpikeRecord::kMostMoved);
  return moved;
}

void RunWatch::Write(const Json& line) {
  if (folder_.empty() || cannot_write_) return;
  try {
    LineFile(folder_ / kInsideFile).Append(DumpJson(line));
  } catch (const Error& error) {
    cannot_write_ = true;
    if (note_) note_(fmt::format("{} ends at step {}: {}", kInsideFile, trainer_.next_step(), error.what()));
  }
}

void RunWatch::TellTo(RunRecord& record) const {
  record.inside_every = every_;
  record.inside_time_s = time_s_;
  record.inside = summary_;
  record.loss_above_start_since = start_.since();
  record.spikes.clear();
  for (size_t i = 0; i < moved_.size(); ++i)
    record.spikes.push_back({.loss = spikes_.spikes()[i], .moved = moved_[i]});
}

std::map<std::string, std::string> RunWatch::CheckpointFiles() const {
  std::map<std::string, std::string> files;
  if (KindOf(folder_ / kInsideFile) != PathKind::kNothing)
    files[kInsideFile] = ReadFile(folder_ / kInsideFile);
  if (recent_.empty()) return files;
  Json steps = Json::array();
  for (const stats::SignalsOfStep& step : recent_) {
    Json values = Json::array();
    for (const double value : step.values) values.push_back(ToJson(value));
    steps.push_back({{"step", step.step}, {"values", std::move(values)}});
  }
  files[kSignalsFile] = DumpJson({{"steps", std::move(steps)}}) + "\n";
  return files;
}

}  // namespace normlab
