// A run that stopped and went on has the bits of one that did not.

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <sstream>

#include <gtest/gtest.h>

#include "normlab/base/safetensors.h"
#include "normlab/base/testing/files.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/testing/near.h"
#include "normlab/testing/small_run.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;
using test::SmallConfig;
using test::SmallText;
using testing::ErrorOf;
using testing::TempFolder;

// Steps of 4 micro-batches. The training part holds 62 windows: the first epoch ends inside step 8, after its
// third micro-batch, and the second inside step 16.
TrainConfig Config(std::initializer_list<const char*> settings = {}) {
  TrainConfig config =
      SmallConfig({"steps=20", "micro_batch=2", "held_out_fraction=0.9", "held_out_windows=8"});
  for (const char* setting : settings) Set(config, setting);
  return config;
}

// Remembers where every batch began.
class WatchedTokens : public TokenSource {
 public:
  int64_t size() const override { return tokens_->size(); }
  const TokensInfo& info() const override { return tokens_->info(); }
  void Copy(int64_t begin, std::span<int32_t> out) const override {
    starts.push_back(begin);
    tokens_->Copy(begin, out);
  }
  mutable std::vector<int64_t> starts;

 private:
  std::shared_ptr<const TokenSource> tokens_ = SmallText();
};

// A trainer and what its steps told.
struct Part {
  explicit Part(int threads = 2, const TrainConfig& config = Config())
      : device(MakeCpuDevice({.threads = threads})), trainer(*device, config, tokens) {}

  void To(int64_t steps) {
    while (trainer.next_step() < steps) {
      const StepResult step = trainer.Step();
      told.insert(told.end(), {step.loss, step.learning_rate, step.gradient_norm});
    }
  }

  std::vector<double> State() const {
    std::vector<double> all;
    for (const View& view : {trainer.model().weights(), trainer.first_moments(), trainer.second_moments()}) {
      std::vector<double> values(static_cast<size_t>(view.elements()));
      device->ReadBack(view, values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::shared_ptr<WatchedTokens> tokens = std::make_shared<WatchedTokens>();
  std::unique_ptr<Device> device;
  Trainer trainer;
  std::vector<double> told;
};

struct Stop {
  int64_t step, micro_batches;
};

// T-01, for any storage of the activations.
class Resume : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Storage, Resume,
                         ::testing::Values("dtype=f32", "dtype=bf16", "dtype=bf16 residual_dtype=bf16"));

TrainConfig Stored(const std::string& settings) {
  TrainConfig config = Config();
  std::istringstream words(settings);
  for (std::string setting; words >> setting;) Set(config, setting);
  return config;
}

TEST_P(Resume, GivesTheBitsOfAnUninterruptedRun) {
  const TrainConfig config = Stored(GetParam());
  Part straight(2, config);
  straight.To(20);
  // Between steps; inside one; where an epoch ends; and inside the first step.
  for (const Stop stop : {Stop{10, 0}, Stop{10, 2}, Stop{7, 3}, Stop{8, 0}, Stop{0, 1}}) {
    const TempFolder run;
    WriteFileAtomic(run / "metrics.jsonl", "");
    Part first(2, config);
    first.To(stop.step);
    if (stop.micro_batches > 0) {
      const auto there = [&] { return first.trainer.position().micro_batches == stop.micro_batches; };
      ASSERT_FALSE(first.trainer.StepOrPause(there).has_value());
    }
    SaveCheckpoint(run.path(), first.trainer, {});

    Part second(/*threads=*/3, config);
    const fs::path checkpoint = *LatestCheckpoint(run.path());
    second.trainer.WarmUp();
    RestoreCheckpoint(checkpoint, ReadCheckpointState(checkpoint), second.trainer);
    second.To(20);
    std::vector<double> told = first.told;
    told.insert(told.end(), second.told.begin(), second.told.end());
    EXPECT_TRUE(test::SameBits(told, straight.told, "loss, rate, gradient norm")) << stop.step;
    EXPECT_TRUE(test::SameBits(second.State(), straight.State(), "weights and moments")) << stop.step;
  }
}

// T-02
TEST(ResumedRun, DrawsTheBatchesThatWouldHaveComeAndTestsOnTheSameText) {
  Part straight;
  straight.To(20);
  const std::vector<int64_t> all = straight.tokens->starts;
  straight.tokens->starts.clear();
  straight.trainer.Evaluate();
  ASSERT_EQ(all.size(), 20u * 8 * 2);  // inputs and targets of each sequence
  const std::vector<int64_t> before(all.begin(), all.begin() + 160), after(all.begin() + 160, all.end());
  EXPECT_NE(before, after);

  const TempFolder run;
  WriteFileAtomic(run / "metrics.jsonl", "");
  Part first;
  first.To(10);
  EXPECT_EQ(first.tokens->starts, before);
  SaveCheckpoint(run.path(), first.trainer, {});
  const fs::path checkpoint = *LatestCheckpoint(run.path());
  for (int time = 0; time < 2; ++time) {  // twice from the same checkpoint
    Part second;
    RestoreCheckpoint(checkpoint, ReadCheckpointState(checkpoint), second.trainer);
    second.To(20);
    EXPECT_EQ(second.tokens->starts, after);
    second.tokens->starts.clear();
    second.trainer.Evaluate();
    EXPECT_EQ(second.tokens->starts, straight.tokens->starts);
  }
}

// Columns of metrics.jsonl that do not tell time.
std::vector<double> Columns(const fs::path& run) {
  std::vector<double> values;
  const std::string text = ReadFile(run / "metrics.jsonl");
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    const Json line = ParseJson(text.substr(begin, text.find('\n', begin) - begin), "line");
    for (const char* key : {"step", "loss", "grad_norm", "learning_rate"})
      values.push_back(NumberFromJson(line[key], key));
  }
  return values;
}

void ExpectSameRun(const fs::path& a, const RunRecord& record_a, const fs::path& b,
                   const RunRecord& record_b) {
  EXPECT_EQ(record_a.status, RunStatus::kDone);
  EXPECT_TRUE(test::SameBits(Columns(a), Columns(b), "metrics"));
  EXPECT_TRUE(test::SameBits(record_a.test_block_losses, record_b.test_block_losses, "test losses"));
  EXPECT_EQ(record_a.train_loss, record_b.train_loss);
  EXPECT_EQ(record_a.test_loss, record_b.test_loss);
  EXPECT_EQ(record_a.tokens, record_b.tokens);
  EXPECT_EQ(record_a.steps_done, record_b.steps_done);
  EXPECT_EQ(FileHash(a / "model.safetensors"), FileHash(b / "model.safetensors"));
}

// T-01: a run as a folder, stopped twice: after a step, and before its test.
TEST(ResumedRun, ARunThatWasStoppedEndsLikeOneThatWasNot) {
  const TempFolder straight, stopped;
  const RunRecord want =
      RunTraining(Config(), SmallText(), {.folder = straight.path(), .measure_bound = false});
  std::atomic<bool> stop = false;
  int64_t stop_after = 6;
  RunOptions options{.folder = stopped.path(), .measure_bound = false, .stop = &stop};
  options.on_progress = [&](const RunProgress& now) { stop = now.steps_done >= stop_after; };
  const RunRecord first = RunTraining(Config(), SmallText(), options);
  EXPECT_EQ(first.status, RunStatus::kInterrupted);
  EXPECT_EQ(first.steps_done, 6);
  {
    LineFile torn(stopped / "metrics.jsonl");  // a later step that a lost part of the run wrote
    torn.Append("{\"step\": 7}");
  }

  stop_after = 20;
  options.resume_from = LatestCheckpoint(stopped.path());
  const RunRecord second = RunTraining(Config(), SmallText(), options);
  EXPECT_EQ(second.status, RunStatus::kInterrupted);
  EXPECT_EQ(second.steps_done, 20);
  EXPECT_GT(second.time_s, first.time_s);

  stop_after = 1000;
  options.threads = 3;
  options.resume_from = LatestCheckpoint(stopped.path());
  const RunRecord third = RunTraining(Config(), SmallText(), options);
  ExpectSameRun(stopped.path(), third, straight.path(), want);
  EXPECT_EQ(third.time_s, second.time_s);  // nothing was trained in this part
  EXPECT_EQ(third.resumed_from, (std::vector<int64_t>{6, 20}));
  EXPECT_EQ(ReadRunRecord(stopped.path())->resumed_from, third.resumed_from);
  EXPECT_FALSE(fs::exists(CheckpointsOf(stopped.path()))) << "a finished run needs none";
}

// T-01: inside the accumulation window of a step.
TEST(ResumedRun, EveryCheckpointBetweenMicroBatchesLeadsToTheSameEnd) {
  const TempFolder straight;
  const TrainConfig config = Config({"steps=3"});
  const RunRecord want = RunTraining(config, SmallText(),
                                     {.folder = straight.path(),
                                      .checkpoints = {.every_s = 0, .keep = 99, .keep_after_end = true},
                                      .measure_bound = false});
  const CheckpointList list = ListCheckpoints(straight.path());
  ASSERT_EQ(list.complete.size(), 11u);  // 3 steps of 4 micro-batches, the end left out
  for (const fs::path& checkpoint : list.complete) {
    SCOPED_TRACE(checkpoint);
    const TempFolder other;
    const RunRecord got = RunTraining(
        config, SmallText(), {.folder = other.path(), .resume_from = checkpoint, .measure_bound = false});
    ExpectSameRun(other.path(), got, straight.path(), want);
  }
}

TEST(ResumedRun, CheckpointsComeAtTheStepsAskedForAndTheLastOnesStay) {
  const TempFolder run;
  std::vector<std::string> seen;
  RunOptions options{.folder = run.path(),
                     .checkpoints = {.every_steps = 5, .keep = 2, .keep_after_end = true},
                     .measure_bound = false};
  RunTraining(Config(), SmallText(), options);
  for (const fs::path& checkpoint : ListCheckpoints(run.path()).complete)
    seen.push_back(checkpoint.filename());
  EXPECT_EQ(seen, (std::vector<std::string>{"step-00000010", "step-00000015"}));
  const TempFolder none;
  options = {.folder = none.path(),
             .checkpoints = {.every_steps = 0, .keep_after_end = true},
             .measure_bound = false};
  RunTraining(Config(), SmallText(), options);
  EXPECT_FALSE(fs::exists(CheckpointsOf(none.path())));
}

// C-08: the limit on the size of files stands for a full disk.
TEST(ResumedRun, AFullDiskCostsACheckpointAndNotTheRun) {
  const TempFolder run;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  std::string notes;
  const RunRecord record = RunTraining(Config(), SmallText(),
                                       {.folder = run.path(),
                                        .save_model = false,
                                        .checkpoints = {.every_steps = 4, .keep = 2, .keep_after_end = true},
                                        .measure_bound = false,
                                        .on_progress =
                                            [&](const RunProgress& now) {
                                              rlimit small = before;
                                              small.rlim_cur =
                                                  30'000;  // enough for run.json and metrics.jsonl
                                              if (now.steps_done == 9) ::setrlimit(RLIMIT_FSIZE, &small);
                                            },
                                        .on_note = [&](const std::string& note) { notes += note + "\n"; }});
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(record.status, RunStatus::kDone);
  EXPECT_SAYS(notes, {"no checkpoint of step 12", "no checkpoint of step 16", "ulimit"});
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(CheckpointsOf(run.path()))) {
    ++entries;
    EXPECT_FALSE(IsTemporary(entry.path())) << entry.path();
    VerifyCheckpoint(entry.path(), ReadCheckpointState(entry.path()));
  }
  EXPECT_EQ(entries, 2u);  // of steps 4 and 8
}

TEST(ResumedRun, ADamagedCheckpointIsRefusedBeforeAnythingIsWritten) {
  const TempFolder run;
  RunOptions options{.folder = run.path(),
                     .checkpoints = {.every_steps = 5, .keep_after_end = true},
                     .measure_bound = false};
  RunTraining(Config(), SmallText(), options);
  const fs::path checkpoint = *LatestCheckpoint(run.path());
  fs::resize_file(checkpoint / "optimizer.safetensors", 1000);
  std::vector<std::string> before, after;
  const auto hashes = [&] {
    std::vector<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(run.path()))
      if (entry.is_regular_file()) all.push_back(entry.path().string() + FileHash(entry.path()));
    std::sort(all.begin(), all.end());
    return all;
  };
  before = hashes();
  options.resume_from = checkpoint;
  EXPECT_SAYS(ErrorOf([&] { RunTraining(Config(), SmallText(), options); }),
              {"optimizer.safetensors has 1000 bytes", "step-00000010"});
  options.resume_from = ListCheckpoints(run.path()).complete.front();
  EXPECT_SAYS(ErrorOf([&] { RunTraining(Config({"learning_rate=0.1"}), SmallText(), options); }),
              {"learning_rate = 0.002 there, learning_rate = 0.1 asked for"});
  after = hashes();
  EXPECT_EQ(after, before);
}

bool AllFinite(const fs::path& file) {
  for (const auto& [name, tensor] : ReadSafetensors(file).tensors)
    for (const double value : tensor.Values())
      if (!std::isfinite(value)) return false;
  return true;
}

// T-11, T-13: the rate grows until the loss is no number; the update that would follow is not made.
TEST(ResumedRun, ADivergedRunLeavesItsLastGoodWeights) {
  const TempFolder run;
  const TrainConfig config =
      Config({"norm_type=no_norm", "learning_rate=1e6", "grad_clip=0", "warmup_fraction=0", "steps=50"});
  const RunRecord record = RunTraining(
      config, SmallText(), {.folder = run.path(), .checkpoints = {.every_steps = 0}, .measure_bound = false});
  ASSERT_EQ(record.status, RunStatus::kDiverged);
  ASSERT_GT(record.steps_done, 0);
  const std::optional<fs::path> last = LatestCheckpoint(run.path());
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->filename(), CheckpointName({.step = record.steps_done}));
  EXPECT_TRUE(AllFinite(*last / "model.safetensors"));
  EXPECT_FALSE(fs::exists(run / "model.safetensors"));

  const TempFolder again;
  const RunRecord repeated = RunTraining(
      config, SmallText(), {.folder = again.path(), .resume_from = *last, .measure_bound = false});
  EXPECT_EQ(repeated.status, RunStatus::kDiverged);
  EXPECT_EQ(repeated.divergence->ToString(), record.divergence->ToString());
  EXPECT_EQ(Columns(again.path()).size(), Columns(run.path()).size());
}

// T-13: weights that are spoilt at step 30 are never saved; the finite ones of step 20 stay.
TEST(ResumedRun, SpoiltWeightsNeverReplaceGoodOnes) {
  const TempFolder run;
  const Trainer* trainer = nullptr;
  std::string notes;
  const RunRecord record =
      RunTraining(Config({"steps=60"}), SmallText(),
                  {.folder = run.path(),
                   .checkpoints = {.every_steps = 10, .keep = 2},
                   .measure_bound = false,
                   .on_progress =
                       [&](const RunProgress& now) {
                         if (now.steps_done != 30 || now.phase != RunProgress::Phase::kTraining) return;
                         const View weight = trainer->model().Weight("trf_blocks.0.norm2.scale");
                         std::vector<double> values(static_cast<size_t>(weight.elements()), std::nan(""));
                         trainer->device().Upload(values, weight);
                       },
                   .on_start = [&](const Trainer& started) { trainer = &started; },
                   .on_note = [&](const std::string& note) { notes += note; }});
  EXPECT_EQ(record.status, RunStatus::kDiverged);
  EXPECT_EQ(record.steps_done, 30);
  EXPECT_SAYS(notes, {"no checkpoint of step 30", "trf_blocks.0.norm2.scale", "nan"});
  const fs::path last = *LatestCheckpoint(run.path());
  EXPECT_EQ(last.filename(), "step-00000020");
  EXPECT_TRUE(AllFinite(last / "model.safetensors"));
}

TEST(InitialWeights, AreTrainedFromWithAFreshOptimizer) {
  const TempFolder first, second;
  RunTraining(Config(), SmallText(), {.folder = first.path(), .measure_bound = false});
  const fs::path weights = first / "model.safetensors";
  const RunRecord from = RunTraining(
      Config(), SmallText(), {.folder = second.path(), .initial_weights = weights, .measure_bound = false});
  EXPECT_EQ(from.initial_weights["hash"], FileHash(weights));
  EXPECT_EQ(ReadRunRecord(second.path())->initial_weights, from.initial_weights);
  EXPECT_LT(Columns(second.path())[1], 0.9 * Columns(first.path())[1]) << "the first loss, after training";
  // T-26
  EXPECT_SAYS(ErrorOf([&] {
                RunTraining(Config({"emb_dim=64"}), SmallText(),
                            {.initial_weights = weights, .measure_bound = false});
              }),
              {"\"tok_emb.weight\"", "[256, 32]", "[256, 64]"});
}

}  // namespace
}  // namespace normlab
