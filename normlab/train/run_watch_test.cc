#include "normlab/train/run_watch.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/base/testing/files.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/testing/small_run.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;
using test::SmallConfig;
using test::SmallText;
using testing::TempFolder;

std::vector<Json> Lines(const fs::path& run) {
  std::vector<Json> lines;
  const std::string text = ReadFile(run / "inside.jsonl");
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    lines.push_back(ParseJson(text.substr(begin, text.find('\n', begin) - begin), "inside.jsonl"));
  return lines;
}

std::vector<int64_t> Steps(const fs::path& run) {
  std::vector<int64_t> steps;
  for (const Json& line : Lines(run)) steps.push_back(line["step"].get<int64_t>());
  return steps;
}

// Something that happens to the model after some step.
struct Incident {
  int64_t after_step = 0;
  std::string tensor;
  double value = 0;  // all elements become this
};

// A run in a folder; with `stop_after`, stopped there.
RunRecord Train(const fs::path& folder, const TrainConfig& config, RunOptions options,
                const Incident& incident = {}, int64_t stop_after = -1) {
  std::atomic<bool> stop = false;
  const Trainer* trainer = nullptr;
  options.folder = folder;
  options.measure_bound = false;
  options.stop = &stop;
  options.on_start = [&](const Trainer& started) { trainer = &started; };
  options.on_progress = [&](const RunProgress& now) {
    if (now.phase != RunProgress::Phase::kTraining) return;
    stop = now.steps_done == stop_after;
    if (now.steps_done != incident.after_step) return;
    const View weight = trainer->model().Weight(incident.tensor);
    trainer->device().Fill(weight.Reshaped({weight.elements()}), incident.value);
  };
  return RunTraining(config, SmallText(), options);
}

//
TEST(RunWatch, LookingInsideChangesNoBitOfTheRun) {
  const TempFolder never, always;
  for (const char* dtype : {"dtype=f32", "dtype=bf16"}) {
    const RunRecord a = Train(never.path(), SmallConfig({dtype}), {.inside_every = 0});
    const RunRecord b = Train(always.path(), SmallConfig({dtype}), {.inside_every = 1});
    EXPECT_EQ(FileHash(never / "model.safetensors"), FileHash(always / "model.safetensors"));
    EXPECT_EQ(a.test_block_losses, b.test_block_losses);
    EXPECT_FALSE(fs::exists(never / "inside.jsonl"));
    EXPECT_EQ(b.inside_every, 1);
    EXPECT_GT(b.inside_time_s, 0);
    EXPECT_TRUE(a.inside.is_null());
    EXPECT_EQ(b.inside["step"], 12);
    EXPECT_EQ(b.inside["norms"].size(), 5u);
  }
}

TEST(RunWatch, SamplesAreTheFirstEveryNthAndTheLastStep) {
  const TempFolder run;
  Train(run.path(), SmallConfig({"steps=13"}), {.inside_every = 5});
  EXPECT_EQ(Steps(run.path()), (std::vector<int64_t>{1, 5, 10, 13}));
  EXPECT_EQ(DefaultInsideEvery(300), 10);
  EXPECT_EQ(DefaultInsideEvery(301), 11);
  EXPECT_EQ(DefaultInsideEvery(1), 5);
}

TEST(RunWatch, AResumedRunsFileAndSpikesAreThoseOfAnUninterruptedOne) {
  const TempFolder straight;
  const TrainConfig config = SmallConfig({"steps=48", "learning_rate=0.01", "norm_type=rmsnorm"});
  const Incident incident{.after_step = 40, .tensor = "trf_blocks.1.ff.layers.2.bias", .value = 5};
  const RunRecord want = Train(straight.path(), config, {.inside_every = 7}, incident);
  ASSERT_EQ(want.spikes.size(), 1u);
  for (const int64_t stop_after : {3, 7, 35, 39, 41, 45}) {
    const TempFolder stopped;
    Train(stopped.path(), config, {.inside_every = 7}, incident, stop_after);
    {
      LineFile torn(stopped / "inside.jsonl");
      torn.Append("{\"step\": 46, \"of a part\": \"that was lost\"}");
    }
    const RunRecord got =
        Train(stopped.path(), config, {.resume_from = LatestCheckpoint(stopped.path())}, incident);
    EXPECT_EQ(ReadFile(stopped / "inside.jsonl"), ReadFile(straight / "inside.jsonl")) << stop_after;
    EXPECT_EQ(got.spikes, want.spikes) << stop_after;
    EXPECT_EQ(got.inside, want.inside);
    EXPECT_EQ(got.inside_every, 7) << "as it began";
  }
}

//
TEST(RunWatch, LookingInsideCanBeSwitchedOnAndOffAtAResumption) {
  const TempFolder run;
  const TrainConfig config = SmallConfig({"steps=20"});
  Train(run.path(), config, {.inside_every = 0}, {}, 8);
  EXPECT_FALSE(fs::exists(run / "inside.jsonl"));
  Train(run.path(), config, {.resume_from = LatestCheckpoint(run.path()), .inside_every = 3}, {}, 15);
  EXPECT_EQ(Steps(run.path()), (std::vector<int64_t>{9, 12, 15}));
  Train(run.path(), config, {.resume_from = LatestCheckpoint(run.path()), .inside_every = 0});
  EXPECT_EQ(Steps(run.path()), (std::vector<int64_t>{9, 12, 15}));
}

// a bias of block 1 is made large after step 40. The activations behind it move at step 41, and the
// loss with them; nothing before it does.
TEST(RunWatch, ASpikeIsLookedIntoAndSaysWhatMovedFirst) {
  const TempFolder run;
  const RunRecord record =
      Train(run.path(), SmallConfig({"steps=60", "learning_rate=0.01", "norm_type=rmsnorm"}),
            {.inside_every = 50}, {.after_step = 40, .tensor = "trf_blocks.1.ff.layers.2.bias", .value = 5});
  ASSERT_EQ(record.spikes.size(), 1u);
  const SpikeRecord& spike = record.spikes[0];
  EXPECT_EQ(spike.loss.step, 41);
  EXPECT_GT(spike.loss.loss, spike.loss.before + 0.05);
  ASSERT_FALSE(spike.moved.empty()) << DumpJson(ToJson(spike));
  EXPECT_LE(spike.moved.size(), SpikeRecord::kMostMoved);
  // Attention may be on the move on its own before; of what moves now, the input behind that bias comes
  // first.
  const auto first_now =
      std::ranges::find_if(spike.moved, [](const MovedSignal& signal) { return signal.step == 41; });
  ASSERT_NE(first_now, spike.moved.end());
  EXPECT_EQ(first_now->what + " of " + first_now->name, "input_rms of final_norm");
  for (const MovedSignal& signal : spike.moved)
    EXPECT_NE(signal.name + signal.what, "trf_blocks.1.norm2input_rms") << "it stands before that bias";
  EXPECT_EQ(Steps(run.path()), (std::vector<int64_t>{1, 41, 50, 60}));
  EXPECT_EQ(Lines(run.path())[1]["why"], "spike");

  const Json json = ParseJson(ReadFile(run / "run.json"), "run.json")["spikes"][0];
  EXPECT_EQ(json["first"], json["moved"][0]);
  EXPECT_EQ(ReadRunRecord(run.path())->spikes, record.spikes);
}

TEST(RunWatch, SpikesAreSeenWithoutLookingInside) {
  const TempFolder run;
  const RunRecord record =
      Train(run.path(), SmallConfig({"steps=60", "learning_rate=0.01", "norm_type=rmsnorm"}),
            {.inside_every = 0}, {.after_step = 40, .tensor = "trf_blocks.1.ff.layers.2.bias", .value = 5});
  ASSERT_EQ(record.spikes.size(), 1u);
  EXPECT_TRUE(record.spikes[0].moved.empty());
  EXPECT_TRUE(ToJson(record.spikes[0])["first"].is_null());
}

// T-33
TEST(RunWatch, ADivergenceNamesTheFirstPlaceAndTheLastFiniteNumbersAreKept) {
  const TempFolder run;
  const RunRecord record =
      Train(run.path(), SmallConfig({"steps=60"}), {.inside_every = 20},
            {.after_step = 30, .tensor = "trf_blocks.1.att.out_proj.bias", .value = NAN});
  ASSERT_EQ(record.status, RunStatus::kDiverged);
  ASSERT_TRUE(record.divergence.has_value());
  EXPECT_EQ(record.divergence->step, 30);  // from 0
  EXPECT_EQ(record.divergence->activation, "trf_blocks.1.norm2, input");
  EXPECT_EQ(record.divergence->last_inside_step, 30);
  EXPECT_SAYS(record.divergence->ToString(),
              {"step 31", "first non-finite activation: trf_blocks.1.norm2, input"});
  EXPECT_EQ(Steps(run.path()), (std::vector<int64_t>{1, 20, 30}));
  const Json last = Lines(run.path()).back();
  EXPECT_EQ(last["why"], "divergence");
  EXPECT_TRUE(last["norms"][0]["input"]["kurtosis"].is_null());
  for (const Json& norm : last["norms"]) EXPECT_TRUE(norm["input"]["rms"].is_number());
  size_t finite = 0;
  for (const Json& tensor : last["tensors"]) {
    EXPECT_TRUE(tensor["gradient_norm"].is_number());
    EXPECT_TRUE(tensor["update_norm"].is_number());
    finite += tensor["weight_norm"].is_number();
  }
  EXPECT_EQ(finite, last["tensors"].size() - 1) << "but for the tensor that this test broke";
  EXPECT_EQ(record.inside["step"], 20);
  const RunRecord read = *ReadRunRecord(run.path());
  EXPECT_EQ(read.divergence->activation, record.divergence->activation);
  EXPECT_EQ(read.divergence->last_inside_step, 30);
}

// T-37
TEST(RunWatch, ALossThatStaysAboveItsStartIsToldEarly) {
  const TempFolder run;
  std::vector<std::string> notes;
  int64_t steps_done = 0;
  const TrainConfig config =
      SmallConfig({"steps=60", "learning_rate=3", "warmup_fraction=0", "norm_type=no_norm"});
  RunOptions options{.folder = run.path(), .measure_bound = false};
  options.on_progress = [&](const RunProgress& now) { steps_done = now.steps_done; };
  options.on_note = [&](const std::string& note) {
    notes.push_back(note);
    EXPECT_LT(steps_done, 40);
  };
  const RunRecord record = RunTraining(config, SmallText(), options);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_SAYS(notes[0], {"above the 5.5", "since step", "20 steps", "learning_rate"});
  ASSERT_TRUE(record.loss_above_start_since.has_value());
  EXPECT_LT(*record.loss_above_start_since, 20);
  EXPECT_EQ(ReadRunRecord(run.path())->loss_above_start_since, record.loss_above_start_since);
}

TEST(RunWatch, AFileThatCannotBeWrittenCostsNothingElse) {
  const TempFolder run;
  std::string notes;
  RunOptions options{.folder = run.path(), .measure_bound = false, .inside_every = 1};
  options.on_progress = [&](const RunProgress& now) {
    if (now.steps_done != 5) return;
    fs::remove(run / "inside.jsonl");
    fs::create_directory(run / "inside.jsonl");
  };
  options.on_note = [&](const std::string& note) { notes += note + "\n"; };
  const RunRecord record = RunTraining(SmallConfig(), SmallText(), options);
  EXPECT_EQ(record.status, RunStatus::kDone);
  EXPECT_SAYS(notes, {"inside.jsonl ends at step 6", "folder"});
  EXPECT_EQ(std::ranges::count(notes, '\n'), 1);
}

// A record of a version that knew nothing of all this is read.
TEST(RunWatch, RecordsWithoutTheseFieldsAreRead) {
  const TempFolder run;
  Train(run.path(), SmallConfig(), {});
  Json json = ParseJson(ReadFile(run / "run.json"), "run.json");
  for (const char* key : {"inside_every", "inside_time_s", "inside", "spikes", "loss_above_start_since"}) {
    ASSERT_TRUE(json.contains(key)) << key;
    json.erase(key);
  }
  const RunRecord record = RunRecordFromJson(json, "old");
  EXPECT_FALSE(record.inside_every.has_value());
  EXPECT_TRUE(record.spikes.empty());
}

}  // namespace
}  // namespace normlab
