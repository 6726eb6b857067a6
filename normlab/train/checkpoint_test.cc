#include "normlab/train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "normlab/base/hash.h"
#include "normlab/base/safetensors.h"
#include "normlab/base/testing/files.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/testing/near.h"
#include "normlab/testing/small_run.h"
#include "normlab/train/tensor_file.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;
using test::SmallConfig;
using test::SmallText;
using testing::ErrorOf;
using testing::TempFolder;

// A trainer in a run's folder, as RunTraining would hold it.
struct Place {
  explicit Place(const TrainConfig& config = SmallConfig({"micro_batch=2"}), uint64_t text = 3)
      : device(MakeCpuDevice({.threads = 2})), trainer(*device, config, SmallText(text)) {
    WriteFileAtomic(run / "metrics.jsonl", "{}\n");
    record.config = ToJson(config);
    record.norm_implementation = Name(trainer.model().norm_implementation());
    record.data = DataIdentity(trainer.tokens());
    record.machine = DescribeMachine(*device);
  }

  // Trains up to a position.
  void Train(int64_t steps, int64_t micro_batches = 0) {
    while (trainer.next_step() < steps) trainer.Step();
    if (micro_batches > 0) {
      const auto there = [&] { return trainer.position().micro_batches == micro_batches; };
      ASSERT_FALSE(trainer.StepOrPause(there).has_value());
    }
  }

  fs::path Save(int64_t keep = 9) {
    SaveCheckpoint(run.path(), trainer, record);
    PruneCheckpoints(run.path(), trainer.position(), keep);
    return CheckpointsOf(run.path()) / CheckpointName(trainer.position());
  }

  std::vector<double> Values(const View& view) const {
    std::vector<double> values(static_cast<size_t>(view.elements()));
    device->ReadBack(view, values);
    return values;
  }

  TempFolder run;
  std::unique_ptr<Device> device;
  Trainer trainer;
  RunRecord record;
};

// Opens a checkpoint as a resumed run does.
void Load(const fs::path& checkpoint, Place& into) {
  const CheckpointState state = ReadCheckpointState(checkpoint);
  RequireMatch(checkpoint, state, into.record);
  VerifyCheckpoint(checkpoint, state);
  into.trainer.WarmUp();
  RestoreCheckpoint(checkpoint, state, into.trainer);
}

std::vector<std::string> Names(const std::vector<fs::path>& paths) {
  std::vector<std::string> names;
  for (const fs::path& path : paths) names.push_back(path.filename().string());
  return names;
}

void FlipBit(const fs::path& path, size_t byte, int bit = 0x10) {
  std::string bytes = ReadFile(path);
  bytes.at(byte) = static_cast<char>(bytes.at(byte) ^ bit);
  std::ofstream(path, std::ios::binary) << bytes;
}

// Makes state.json agree with the files again, so that what is tested comes after the checksums.
void Stamp(const fs::path& checkpoint) {
  CheckpointState state = ReadCheckpointState(checkpoint);
  for (auto& [name, stamp] : state.files)
    stamp = {.bytes = fs::file_size(checkpoint / name), .hash = FileHash(checkpoint / name)};
  WriteCheckpointState(checkpoint, state);
}

void SetWeight(const Place& place, const char* name, double value) {
  const View weight = place.trainer.model().Weight(name);
  std::vector<double> values = place.Values(weight);
  values[3] = value;
  place.device->Upload(values, weight);
}

TEST(Checkpoint, RestoresEveryBitInsideAStep) {
  Place place;
  place.Train(3, 2);
  const fs::path checkpoint = place.Save();
  EXPECT_EQ(checkpoint.filename(), "step-00000003-micro-0002");
  Place other;
  Load(checkpoint, other);
  EXPECT_EQ(other.trainer.position(), place.trainer.position());
  const auto same = [&](const View& a, const View& b, const char* what) {
    EXPECT_TRUE(test::SameBits(other.Values(a), place.Values(b), what));
    EXPECT_TRUE(std::ranges::any_of(place.Values(b), [](double value) { return value != 0; })) << what;
  };
  same(other.trainer.model().weights(), place.trainer.model().weights(), "weights");
  same(other.trainer.model().gradients(), place.trainer.model().gradients(), "gradients");
  same(other.trainer.first_moments(), place.trainer.first_moments(), "m");
  same(other.trainer.second_moments(), place.trainer.second_moments(), "v");
}

TEST(Checkpoint, BetweenStepsNeedsNoGradients) {
  Place place;
  place.Train(2);
  const fs::path checkpoint = place.Save();
  EXPECT_EQ(checkpoint.filename(), "step-00000002");
  EXPECT_FALSE(fs::exists(checkpoint / "gradients.safetensors"));
  const CheckpointState state = ReadCheckpointState(checkpoint);
  EXPECT_EQ(state.files.size(), 3u);
  EXPECT_EQ(state.record.config, place.record.config);
}

TEST(Checkpoint, KeepsTheLastOnesAndCleansWhatAKilledWriterLeft) {
  Place place;
  const fs::path stale = CheckpointsOf(place.run.path()) / ".normlab-tmp-0123";
  fs::create_directories(stale);
  WriteFileAtomic(stale / "model.safetensors", "half");
  for (int step = 1; step <= 4; ++step) {
    place.Train(step);
    place.Save(2);
  }
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_EQ(Names(ListCheckpoints(place.run.path()).complete),
            (std::vector<std::string>{"step-00000003", "step-00000004"}));
  place.Train(4, 1);
  place.Save(2);
  EXPECT_EQ(Names(ListCheckpoints(place.run.path()).complete),
            (std::vector<std::string>{"step-00000004", "step-00000004-micro-0001"}));
}

TEST(Checkpoint, LaterOnesOfAnAbandonedPartAreUseless) {
  Place place;
  for (int step = 1; step <= 3; ++step) {
    place.Train(step);
    place.Save();
  }
  Place resumed;
  Load(CheckpointsOf(place.run.path()) / "step-00000001", resumed);
  resumed.Train(2);
  SaveCheckpoint(place.run.path(), resumed.trainer, place.record);
  PruneCheckpoints(place.run.path(), resumed.trainer.position(), 9);
  EXPECT_EQ(Names(ListCheckpoints(place.run.path()).complete),
            (std::vector<std::string>{"step-00000001", "step-00000002"}));
}

// C-10: a stale temporary and a newer empty folder.
TEST(Checkpoint, TheLatestIsTheLastCompleteOneAndOthersAreReported) {
  Place place;
  EXPECT_FALSE(LatestCheckpoint(place.run.path()).has_value());
  place.Train(1);
  place.Save();
  place.Train(2);
  const fs::path complete = place.Save();
  fs::create_directories(CheckpointsOf(place.run.path()) / "step-00000200");
  fs::create_directories(CheckpointsOf(place.run.path()) / "step-100.tmp");
  fs::create_directories(CheckpointsOf(place.run.path()) / ".normlab-tmp-1");
  std::string note;
  EXPECT_EQ(LatestCheckpoint(place.run.path(), [&](const std::string& text) { note += text; }), complete);
  EXPECT_SAYS(note,
              {"step-00000200", "no model.safetensors, optimizer.safetensors, state.json", "step-00000002"});
}

// C-11
TEST(Checkpoint, AFlippedBitIsNamedWithTheFileAndTheWayOut) {
  Place place;
  place.Train(1);
  place.Save();
  place.Train(2, 1);
  const fs::path good = place.Save();
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "gradients.safetensors",
                           "metrics.jsonl", "state.json"}) {
    const size_t size = fs::file_size(good / name);
    for (const size_t byte : {size_t{0}, size / 2, size - 2}) {
      const TempFolder copy;
      fs::copy(CheckpointsOf(place.run.path()), copy / "checkpoints", fs::copy_options::recursive);
      const fs::path checkpoint = copy / "checkpoints" / good.filename().string();
      FlipBit(checkpoint / name, byte);
      Place other;
      EXPECT_SAYS(ErrorOf([&] { Load(checkpoint, other); }),
                  {checkpoint.string(), name, "delete this folder to go on", "--resume", "step-00000001"})
          << byte;
    }
  }
}

// C-11: the lowest bit makes another digit of a digit, and another letter of a letter.
TEST(Checkpoint, NoBitOfTheStateCanChangeUnseen) {
  Place place;
  place.Train(1);
  const fs::path checkpoint = place.Save();
  const size_t size = fs::file_size(checkpoint / "state.json");
  for (size_t byte = 0; byte + 1 < size; byte += 11) {  // the last one is a newline, which says nothing
    FlipBit(checkpoint / "state.json", byte, 1);
    EXPECT_SAYS(ErrorOf([&] { ReadCheckpointState(checkpoint); }), {"cannot be used", "state.json"}) << byte;
    FlipBit(checkpoint / "state.json", byte, 1);
  }
  EXPECT_NO_THROW(ReadCheckpointState(checkpoint));
}

TEST(Checkpoint, AFileThatIsCutOrMissingIsNamed) {
  Place place;
  place.Train(1);
  const fs::path checkpoint = place.Save();
  const fs::path model = checkpoint / "model.safetensors";
  fs::resize_file(model, fs::file_size(model) - 4);
  EXPECT_SAYS(ErrorOf([&] { Load(checkpoint, place); }),
              {"model.safetensors has ", "bytes", "damaged", "no earlier one", "start again"});
}

// C-09: files of two checkpoints in one folder.
TEST(Checkpoint, AMixOfTwoCheckpointsIsRefused) {
  Place place;
  place.Train(1);
  const fs::path first = place.Save();
  place.Train(2);
  const fs::path second = place.Save();
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    fs::copy_file(first / name, second / name, fs::copy_options::overwrite_existing);
    EXPECT_SAYS(ErrorOf([&] { Load(second, place); }),
                {name, "is of step 1", "state.json of step 2", "mixed", "step-00000001"});
    place.Save();
  }
}

// T-13
TEST(Checkpoint, WeightsThatAreNotFiniteAreNeitherSavedNorTaken) {
  Place place;
  place.Train(1);
  const fs::path good = place.Save();
  place.Train(2);
  const double infinity = std::numeric_limits<double>::infinity();
  SetWeight(place, "trf_blocks.1.norm1.scale", infinity);
  EXPECT_SAYS(ErrorOf([&] { place.Save(1); }), {"trf_blocks.1.norm1.scale", "inf"});
  EXPECT_EQ(Names(ListCheckpoints(place.run.path()).complete), std::vector<std::string>{"step-00000001"});
  EXPECT_EQ(std::distance(fs::directory_iterator(CheckpointsOf(place.run.path())), {}), 1);

  SafetensorsFile file = ReadSafetensors(good / "model.safetensors");
  TensorData& tensor = file.tensors.at("tok_emb.weight");
  std::vector<double> values = tensor.Values();
  values.back() = std::nan("");
  tensor = TensorData::FromDoubles(DType::kF32, tensor.shape, values);
  WriteSafetensors(good / "model.safetensors", file);
  Stamp(good);
  Place other;
  EXPECT_SAYS(ErrorOf([&] { Load(good, other); }), {"tok_emb.weight", "nan", "delete the folder"});
}

// T-26
TEST(Checkpoint, WeightsAloneSayWhatIsMissingAndHowToUseThem) {
  Place place;
  place.Train(1);
  const fs::path checkpoint = place.Save();
  fs::remove(checkpoint / "optimizer.safetensors");
  EXPECT_SAYS(ErrorOf([&] { Load(checkpoint, place); }), {"optimizer.safetensors is missing"});
  fs::remove(checkpoint / "state.json");
  for (const std::string& message : {ErrorOf([&] { ReadCheckpointState(checkpoint); }),
                                     ErrorOf([&] { LatestCheckpoint(place.run.path()); })})
    EXPECT_SAYS(message, {"no optimizer.safetensors, state.json", "--init-weights", "model.safetensors",
                          "fresh optimizer"});
}

// T-26
TEST(Checkpoint, AnotherRunIsRefusedByKeyAndNothingIsTaken) {
  Place place;
  place.Train(1);
  const fs::path checkpoint = place.Save();
  const auto refusal = [&](std::initializer_list<const char*> settings, uint64_t text = 3) {
    Place other(SmallConfig(settings), text);
    const std::vector<double> before = other.Values(other.trainer.model().weights());
    const std::string message = ErrorOf([&] { Load(checkpoint, other); });
    EXPECT_TRUE(test::SameBits(other.Values(other.trainer.model().weights()), before, "weights"));
    return message;
  };
  EXPECT_SAYS(refusal({"micro_batch=2", "emb_dim=64"}),
              {"emb_dim = 32 there, emb_dim = 64 asked for", "--out"});
  EXPECT_SAYS(refusal({"micro_batch=2", "beta1=0.8"}), {"beta1 = 0.9 there", "0.8"});
  EXPECT_SAYS(refusal({"micro_batch=2", "norm_type=no_norm"}),
              {"norm_type", "handrolled_layernorm", "no_norm"});
  EXPECT_SAYS(refusal({"micro_batch=4"}), {"micro_batch = 2 there"});
  EXPECT_SAYS(refusal({"micro_batch=2"}, 4), {"another text: its hash is", "--data"});
  const CheckpointState state = ReadCheckpointState(checkpoint);
  RunRecord now = place.record;
  now.machine.isa = "other";
  EXPECT_SAYS(ErrorOf([&] { RequireMatch(checkpoint, state, now); }),
              {"instruction set", "other", "NORMLAB_ISA="});
  now = place.record;
  now.norm_implementation = "generic";
  EXPECT_SAYS(ErrorOf([&] { RequireMatch(checkpoint, state, now); }), {"norm implementation", "generic"});
  now = place.record;
  now.machine.threads = 7;
  EXPECT_TRUE(RequireMatch(checkpoint, state, now).empty());
  now.machine.cpu = "another";
  EXPECT_EQ(RequireMatch(checkpoint, state, now).size(), 1u);
  now = place.record;
  now.machine.wait_policy = "spin 7";
  const std::vector<std::string> notes = RequireMatch(checkpoint, state, now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_SAYS(notes[0], {"wait policy", "spin 7", "times"});
}

// A foreign file behind a state that says nothing of it: the tensors themselves are looked at.
TEST(Checkpoint, AForeignTensorIsNamedWithBothShapes) {
  Place place, wide(SmallConfig({"micro_batch=2", "emb_dim=64"}));
  place.Train(1);
  wide.Train(1);
  const fs::path checkpoint = place.Save(), foreign = wide.Save();
  fs::copy_file(foreign / "model.safetensors", checkpoint / "model.safetensors",
                fs::copy_options::overwrite_existing);
  Stamp(checkpoint);
  EXPECT_SAYS(ErrorOf([&] { Load(checkpoint, place); }),
              {"\"tok_emb.weight\"", "[256, 64]", "needs [256, 32]"});
}

class TensorFileTest : public ::testing::Test {
 protected:
  // Reads what `change` makes of the weights of a model.
  std::string Refusal(const std::function<void(SafetensorsFile&)>& change, std::optional<DType> dtype = {}) {
    const FlatTensors weights[] = {{"", place_.trainer.model().weights()}};
    const ParameterList& parameters = place_.trainer.model().parameters();
    const fs::path path = place_.run / "weights.safetensors";
    WriteTensorFile(path, *place_.device, parameters, weights, DType::kF32, NonFinite::kRefused, {});
    SafetensorsFile file = ReadSafetensors(path);
    change(file);
    WriteSafetensors(path, file);
    const std::vector<double> before = place_.Values(weights[0].flat);
    try {
      ReadTensorFile(path, *place_.device, parameters, weights, dtype, NonFinite::kRefused);
    } catch (const Error& error) {
      EXPECT_TRUE(test::SameBits(place_.Values(weights[0].flat), before, "weights"));
      return error.what();
    }
    return "";
  }
  Place place_;
};

TEST_F(TensorFileTest, NamesWhatIsMissingTooMuchOrOfAnotherType) {
  EXPECT_EQ(Refusal([](SafetensorsFile&) {}), "");
  EXPECT_SAYS(Refusal([](SafetensorsFile& file) { file.tensors.erase("out_head.weight"); }),
              {"no tensor \"out_head.weight\"", "[256, 32]"});
  EXPECT_SAYS(Refusal([](SafetensorsFile& file) { file.tensors["extra"] = file.Get("final_norm.scale"); }),
              {"\"extra\"", "[32]", "none of that name"});
  const auto convert = [](DType dtype) {
    return [dtype](SafetensorsFile& file) {
      TensorData& tensor = file.tensors.at("final_norm.scale");
      tensor = TensorData::FromDoubles(dtype, tensor.shape, tensor.Values());
    };
  };
  // C-12: F64, F16 and BF16 are converted, whole numbers are no weights.
  for (const DType dtype : {DType::kF64, DType::kF16, DType::kBF16}) EXPECT_EQ(Refusal(convert(dtype)), "");
  EXPECT_SAYS(Refusal(convert(DType::kI32)), {"\"final_norm.scale\"", "I32", "convert"});
  EXPECT_SAYS(Refusal(convert(DType::kF64), DType::kF32), {"\"final_norm.scale\"", "F64"});
}

TEST_F(TensorFileTest, PassesOverTheMasksOfTheArticlesCode) {
  EXPECT_EQ(Refusal([](SafetensorsFile& file) {
              file.tensors["trf_blocks.0.att.mask"] =
                  TensorData::FromDoubles(DType::kF32, {1, 1}, std::vector<double>{1});
            }),
            "");
}

}  // namespace
}  // namespace normlab
