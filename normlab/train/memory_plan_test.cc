#include "normlab/train/memory_plan.h"

#include <initializer_list>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "normlab/base/testing/files.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/testing/norm_implementations.h"
#include "normlab/train/trainer.h"

namespace normlab {
namespace {

using testing::ErrorOf;

std::shared_ptr<const TokenSource> Text() {
  std::vector<int32_t> ids;
  for (int i = 0; i < 40'000; ++i) ids.push_back(i * i % 251);
  return TokensFromIds(std::move(ids),
                       {.tokenizer = "bytes", .tokenizer_hash = "", .vocab_size = 256, .data_hash = ""});
}

TrainConfig Config(std::initializer_list<const char*> settings) {
  TrainConfig config;
  for (const char* setting : {"emb_dim=48", "n_heads=3", "n_layers=2", "context_length=64", "batch=6"})
    Set(config, setting);
  for (const char* setting : settings) Set(config, setting);
  config.Validate();
  return config;
}

// Device memory after a whole run's kinds of work: a step and an evaluation.
size_t RealPeak(const TrainConfig& config, int threads) {
  const auto device = MakeCpuDevice({.threads = threads});
  Trainer trainer(*device, config, Text());
  trainer.WarmUp();
  trainer.Step();
  trainer.Evaluate();
  return device->peak_bytes();
}

// T-27: what a run will take is known to the byte, by the layouts that allocate.
TEST(PlanMemory, IsThePeakOfTheRealDevice) {
  for (const TrainConfig& config :
       {Config({}), Config({"tie_weights=true", "qkv_bias=true"}), Config({"micro_batch=2"}),
        Config({"final_norm=false", "norm_position=post"}), Config({"window=13", "batch=5"}),
        Config({"vocab_size=50257", "batch=2"}), Config({"n_heads=48", "emb_dim=48"}), Config({"dtype=bf16"}),
        Config({"dtype=bf16", "norm_position=post", "tie_weights=true"}),
        Config({"dtype=bf16", "residual_dtype=bf16", "vocab_size=50257", "batch=2"}),
        Config({"recompute=true"}), Config({"recompute=true", "norm_position=post", "dtype=bf16"})})
    for (const int threads : {1, 3}) {
      const MemoryPlan plan = PlanMemory(config, {.threads = threads});
      EXPECT_TRUE(plan.exact);
      EXPECT_EQ(plan.device_bytes(), RealPeak(config, threads))
          << DumpJson(ToJsonAsGiven(config)) << " " << threads << " threads";
    }
}

// Every norm, as kernels/planning_device_test.cc has it for the operations alone.
TEST(PlanMemory, KnowsTheScratchOfEveryNorm) {
  for (const std::string& norm : test::NormTypesThatRun(*MakeCpuDevice({.threads = 1})))
    for (const int threads : {1, 4})
      for (const char* dtype : {"dtype=f32", "dtype=bf16"}) {
        const TrainConfig config = Config({("norm_type=" + norm).c_str(), dtype});
        EXPECT_EQ(PlanMemory(config, {.threads = threads}).device_bytes(), RealPeak(config, threads))
            << norm << " " << dtype;
      }
}

TEST(PlanMemory, CountsWhatStandsBesideTheDevice) {
  const TrainConfig config = Config({});
  const MemoryPlan plain = PlanMemory(config, {});
  EXPECT_GE(plain.temporary, size_t{256} * 48 * sizeof(double));  // the largest tensor as it is initialized
  EXPECT_EQ(PlanMemory(config, {.text_bytes = 1000}).total(), plain.total() + 1000);
  EXPECT_GT(PlanMemory(config, {.threads = 8}).program, plain.program);
}

TEST(PlanMemory, RunsAtTheSameTimeAddUpAndShareTheText) {
  const TrainConfig config = Config({});
  const MemoryPlan one = PlanMemory(config, {.threads = 2, .text_bytes = 1000});
  const MemoryPlan three = PlanMemory(config, {.threads = 2, .text_bytes = 1000, .runs = 3});
  EXPECT_EQ(three.device_bytes(), 3 * one.device_bytes());
  EXPECT_EQ(three.temporary, 3 * one.temporary);
  EXPECT_EQ(three.text, 1000u);
  EXPECT_GT(three.program, one.program);
  const auto refusal = [&](const MemoryPlan& plan, size_t bytes) {
    return ErrorOf([&] {
      RequireMemory(plan, config, 2, AvailableMemory{bytes, AvailableMemory::kMachine});
    });
  };
  EXPECT_TRUE(testing::Says(refusal(three, one.total()), {"3 runs at a time need about", "--jobs than 3"}));
  EXPECT_TRUE(testing::Says(refusal(three, one.total() / 10), {"3 runs", "free some memory"}));
}

// No number may wrap, and none may take minutes, for any configuration that passes validation.
TEST(PlanMemory, IsFiniteForTheLargestConfigurations) {
  for (const TrainConfig& config :
       {Config({"emb_dim=1048576", "n_heads=1", "n_layers=10000", "vocab_size=2147483647",
                "context_length=16777216", "batch=1048576", "micro_batch=1048576"}),
        Config({"context_length=16777216", "batch=1048576", "micro_batch=1048576", "emb_dim=1", "n_heads=1"}),
        Config({"n_layers=10000", "emb_dim=4", "n_heads=1"}),
        Config({"context_length=16777216", "batch=1024", "micro_batch=1024", "emb_dim=1", "n_heads=1"})}) {
    const MemoryPlan plan = PlanMemory(config, {});
    EXPECT_GT(plan.total(), 0u);
    EXPECT_LT(plan.total(), size_t{1} << 63);
  }
  EXPECT_FALSE(PlanMemory(Config({"emb_dim=1048576", "n_heads=1", "n_layers=10000"}), {}).exact);
}

// T-27: a model that needs 10 times what there is.
TEST(RequireMemory, SaysWhatIsNeededWhatThereIsAndWhatToChange) {
  const TrainConfig config = Config({"batch=64", "micro_batch=64"});
  const MemoryPlan plan = PlanMemory(config, {});
  const size_t needed = plan.total();
  EXPECT_NO_THROW(RequireMemory(plan, config, 1, AvailableMemory{needed, AvailableMemory::kMachine}));
  EXPECT_NO_THROW(RequireMemory(plan, config, 1, std::nullopt));
  const std::string message = ErrorOf([&] {
    RequireMemory(plan, config, 1, AvailableMemory{needed / 10, AvailableMemory::kMachine});
  });
  for (const char* part : {"needs about", "MiB", "the machine leaves", "activations", "micro_batch than 64"})
    EXPECT_NE(message.find(part), std::string::npos) << message;

  // The text is there already; it counts on both sides.
  const MemoryPlan with_text = PlanMemory(config, {.text_bytes = size_t{1} << 30});
  EXPECT_NO_THROW(RequireMemory(with_text, config, 1, AvailableMemory{needed, AvailableMemory::kMachine}));
  EXPECT_THROW(RequireMemory(with_text, config, 1, AvailableMemory{needed - 1, AvailableMemory::kMachine}),
               Error);
}

TEST(RequireMemory, CountsStacksWhereTheAddressSpaceIsLimited) {
  const TrainConfig config = Config({});
  const MemoryPlan plan = PlanMemory(config, {});
  EXPECT_NO_THROW(RequireMemory(plan, config, 50, AvailableMemory{plan.total(), AvailableMemory::kMachine}));
  const std::string message = ErrorOf([&] {
    RequireMemory(plan, config, 50, AvailableMemory{plan.total(), AvailableMemory::kAddressSpace});
  });
  EXPECT_NE(message.find("fewer --threads than 50"), std::string::npos) << message;
  // With one thread and a model of nothing, neither is what could give way.
  const TrainConfig least = Config({"emb_dim=16", "n_heads=1", "n_layers=1", "batch=1", "context_length=16"});
  const std::string alone = ErrorOf([&] {
    RequireMemory(PlanMemory(least, {}), least, 1,
                  AvailableMemory{size_t{3} << 20, AvailableMemory::kAddressSpace});
  });
  EXPECT_NE(alone.find("raise the limit"), std::string::npos) << alone;
  EXPECT_EQ(alone.find("fewer"), std::string::npos) << alone;
  EXPECT_EQ(alone.find("preset"), std::string::npos) << alone;
}

TEST(RequireMemory, ALargeModelIsAnsweredWithASmallerOne) {
  const TrainConfig config = Config({"emb_dim=4096", "n_heads=1", "n_layers=10", "batch=1"});
  const std::string message = ErrorOf([&] {
    RequireMemory(PlanMemory(config, {}), config, 1, AvailableMemory{1 << 20, AvailableMemory::kCgroup});
  });
  for (const char* part : {"GiB", "cgroup", "moments", "preset"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

}  // namespace
}  // namespace normlab
