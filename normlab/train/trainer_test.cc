#include "normlab/train/trainer.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/testing/near.h"
#include "normlab/testing/small_run.h"

namespace normlab {
namespace {

using test::SmallConfig;
using test::SmallText;

struct Result {
  std::vector<double> losses, weights;
};

Result RunSteps(Trainer& trainer, Device& device, int64_t steps) {
  Result result;
  for (int64_t i = 0; i < steps; ++i) result.losses.push_back(trainer.Step().loss);
  result.weights.resize(static_cast<size_t>(trainer.model().parameters().flat_elements()));
  device.ReadBack(trainer.model().weights(), result.weights);
  return result;
}

Result RunAlone(const TrainConfig& config, int threads) {
  const auto device = MakeCpuDevice({.threads = threads});
  Trainer trainer(*device, config, SmallText());
  return RunSteps(trainer, *device, config.steps);
}

TEST(Trainer, ARepeatedRunGivesTheSameBits) {
  const Result a = RunAlone(SmallConfig(), 2), b = RunAlone(SmallConfig(), 2);
  EXPECT_TRUE(test::SameBits(a.losses, b.losses, "losses"));
  EXPECT_TRUE(test::SameBits(a.weights, b.weights, "weights"));
}

TEST(Trainer, AnyNumberOfThreadsGivesTheSameBits) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* norm :
         {"fused_layernorm", "fused_rmsnorm", "handrolled_layernorm", "generic_rmsnorm", "no_norm"}) {
      TrainConfig config = SmallConfig();
      Set(config, std::string("norm_type=") + norm);
      Set(config, std::string("dtype=") + dtype);
      const Result one = RunAlone(config, 1);
      for (const int threads : {2, 3, 5, 8}) {
        const Result many = RunAlone(config, threads);
        EXPECT_TRUE(test::SameBits(one.weights, many.weights, norm)) << threads << " threads " << dtype;
      }
    }
}

TEST(Trainer, TwoVariantsThatTakeTurnsGetTheBitsOfSeparateRuns) {
  TrainConfig first = SmallConfig(), second = SmallConfig();
  Set(first, "norm_type=fused_layernorm");
  Set(second, "norm_type=handrolled_rmsnorm");
  Set(second, "emb_dim=48");
  const Result want_first = RunAlone(first, 2), want_second = RunAlone(second, 2);
  const auto device_a = MakeCpuDevice({.threads = 2}), device_b = MakeCpuDevice({.threads = 2});
  Trainer a(*device_a, first, SmallText()), b(*device_b, second, SmallText());
  Result got_first, got_second;
  for (int i = 0; i < 12; ++i) {
    got_first = RunSteps(a, *device_a, 1);
    got_second = RunSteps(b, *device_b, 1);
  }
  EXPECT_TRUE(test::SameBits(got_first.weights, want_first.weights, "first"));
  EXPECT_TRUE(test::SameBits(got_second.weights, want_second.weights, "second"));
}

TEST(Trainer, WarmingUpAndEvaluatingChangeNoBit) {
  const Result want = RunAlone(SmallConfig(), 2);
  const auto device = MakeCpuDevice({.threads = 2});
  Trainer trainer(*device, SmallConfig(), SmallText());
  trainer.WarmUp();
  trainer.Evaluate();
  RunSteps(trainer, *device, 5);
  trainer.Evaluate();
  trainer.WarmUp();
  const Result got = RunSteps(trainer, *device, 7);
  EXPECT_TRUE(test::SameBits(got.weights, want.weights, "weights"));
}

TEST(Trainer, LearnsAndEvaluatesOnTheHeldOutWindows) {
  TrainConfig config = SmallConfig();
  Set(config, "steps=60");
  Set(config, "learning_rate=0.01");
  const auto device = MakeCpuDevice({.threads = 2});
  Trainer trainer(*device, config, SmallText());
  const double before = trainer.Evaluate()->loss;
  EXPECT_NEAR(before, std::log(256.0), 0.1);
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    const StepResult step = trainer.Step();
    if (i == 0) first = step.loss;
    last = step.loss;
  }
  EXPECT_LT(last, 0.6 * first);
  const Evaluation after = trainer.Evaluate().value();
  EXPECT_LT(after.loss, 0.6 * before);
  EXPECT_EQ(after.block_losses.size(), trainer.split().held_out_starts.size());
}

// bf16 changes what is stored, not what is learned: over these steps the losses stay within a hundredth.
TEST(Trainer, Bf16TrainsLikeF32) {
  TrainConfig config = SmallConfig();
  Set(config, "steps=60");
  const Result f32 = RunAlone(config, 2);
  for (const char* residual : {"f32", "bf16"}) {
    Set(config, "dtype=bf16");
    Set(config, std::string("residual_dtype=") + residual);
    const Result bf16 = RunAlone(config, 2);
    EXPECT_NE(bf16.losses, f32.losses);
    for (size_t i = 0; i < f32.losses.size(); ++i)
      EXPECT_NEAR(bf16.losses[i], f32.losses[i], 0.01 * f32.losses[i]) << "step " << i << " " << residual;
  }
}

TEST(Trainer, NothingIsAllocatedOnTheDeviceAfterTheWarmUp) {
  for (const char* setting : {"norm_type=fused_layernorm", "norm_type=handrolled_layernorm",
                              "norm_type=generic_rmsnorm", "dtype=bf16"}) {
    TrainConfig config = SmallConfig();
    Set(config, setting);
    const auto device = MakeCpuDevice({.threads = 2});
    Trainer trainer(*device, config, SmallText());
    trainer.WarmUp();
    const size_t before = device->peak_bytes();
    RunSteps(trainer, *device, 3);
    EXPECT_EQ(device->peak_bytes(), before) << setting;
  }
}

TEST(Trainer, AnEvaluationEndsWhenItIsAskedTo) {
  const auto device = MakeCpuDevice({.threads = 1});
  Trainer trainer(*device, SmallConfig(), SmallText());
  int calls = 0;
  EXPECT_FALSE(trainer.Evaluate([&](double) { return ++calls < 2; }).has_value());
  EXPECT_EQ(calls, 2);
}

// The same batch in one piece or in four: the gradients differ by rounding alone, and Adam's first steps
// divide them by their own size, so single weights may move by up to the learning rate where a gradient is
// near 0. The loss tells.
TEST(Trainer, MicroBatchesTrainLikeTheWholeBatch) {
  TrainConfig whole = SmallConfig(), parts = SmallConfig();
  Set(whole, "micro_batch=8");
  Set(parts, "micro_batch=2");
  const Result a = RunAlone(whole, 2), b = RunAlone(parts, 2);
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(b.losses[i], a.losses[i], 1e-5 * a.losses[i]) << i;
}

// T-11
TEST(Trainer, ANonFiniteGradientStopsTheRunNamesTheTensorAndLeavesTheWeights) {
  const auto device = MakeCpuDevice({.threads = 2});
  Trainer trainer(*device, SmallConfig(), SmallText());
  RunSteps(trainer, *device, 3);
  // One infinite weight makes everything behind it non-finite.
  const View weight = trainer.model().Weight("trf_blocks.1.ff.layers.0.weight");
  std::vector<double> values(static_cast<size_t>(weight.elements()));
  device->ReadBack(weight, values);
  values[5] = INFINITY;
  device->Upload(values, weight);
  std::vector<double> before(static_cast<size_t>(trainer.model().parameters().flat_elements())),
      after(before);
  device->ReadBack(trainer.model().weights(), before);
  const StepResult step = trainer.Step();
  ASSERT_TRUE(step.divergence.has_value());
  EXPECT_EQ(step.divergence->step, 3);
  EXPECT_FALSE(std::isfinite(step.loss));
  ASSERT_TRUE(step.divergence->tensor.has_value());
  EXPECT_NE(step.divergence->ToString().find(*step.divergence->tensor), std::string::npos);
  device->ReadBack(trainer.model().weights(), after);
  EXPECT_TRUE(test::SameBits(after, before, "weights"));
  EXPECT_EQ(trainer.next_step(), 3);
}

// T-11: one bad element of one gradient, at the fifth step, while the loss itself is fine.
TEST(Trainer, OneBadGradientElementStopsTheRunAndLeavesTheWeights) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    TrainConfig config = SmallConfig();
    Set(config, "batch=4");
    Set(config, "micro_batch=2");
    const auto device = MakeCpuDevice({.threads = 2});
    Trainer trainer(*device, config, SmallText());
    RunSteps(trainer, *device, 4);
    const std::string tensor = "trf_blocks.0.ff.layers.0.weight";
    const View gradient = trainer.model().Gradient(tensor);
    std::vector<double> before(static_cast<size_t>(trainer.model().parameters().flat_elements())),
        after(before);
    device->ReadBack(trainer.model().weights(), before);
    const auto step =
        trainer.StepOrPause([&] {  // asked between the two micro-batches, the gradient being half done
          device->Upload({&bad, 1}, gradient.Reshaped({gradient.elements()}).Slice(7, 8));
          return false;
        });
    ASSERT_TRUE(step && step->divergence) << bad;
    EXPECT_TRUE(std::isfinite(step->loss));
    EXPECT_EQ(step->divergence->tensor, tensor);
    EXPECT_EQ(step->divergence->step, 4);
    device->ReadBack(trainer.model().weights(), after);
    EXPECT_TRUE(test::SameBits(after, before, "weights"));
  }
}

// T-11: a rate at which the update leaves fp32. Once made, it would have destroyed the last good weights.
TEST(Trainer, AnUpdateThatOverflowsIsNotMade) {
  for (const char* overflow :
       {"learning_rate=1e38", "learning_rate=1e39", "learning_rate=1e300", "weight_decay=1e300"}) {
    TrainConfig config = SmallConfig({"warmup_fraction=0.25", overflow});
    const auto device = MakeCpuDevice({.threads = 2});
    Trainer trainer(*device, config, SmallText());
    std::vector<double> before(static_cast<size_t>(trainer.model().parameters().flat_elements())),
        after(before);
    device->ReadBack(trainer.model().weights(), before);
    const StepResult step = trainer.Step();
    ASSERT_TRUE(step.divergence.has_value()) << overflow;
    EXPECT_TRUE(std::isfinite(step.loss) && std::isfinite(step.gradient_norm)) << overflow;
    EXPECT_NE(step.divergence->ToString().find("weights became inf at step 1"), std::string::npos)
        << step.divergence->ToString();
    device->ReadBack(trainer.model().weights(), after);
    EXPECT_TRUE(test::SameBits(after, before, overflow));
    EXPECT_EQ(trainer.next_step(), 0);
  }
}

// A bound that is carried on from step to step says nothing of a state that came from elsewhere.
TEST(Trainer, TheBoundIsTakenAnewWhereTheStateCameFromElsewhere) {
  const auto device = MakeCpuDevice({.threads = 2});
  // With beta1^2 above beta2 the second moment says nothing about the first.
  Trainer trainer(*device, SmallConfig({"beta1=0.99"}), SmallText());
  RunSteps(trainer, *device, 4);
  const double huge = 1e38;
  device->Upload({&huge, 1}, trainer.first_moments().Slice(7, 8));
  trainer.MoveTo(trainer.position());  // of the same step, as another run's checkpoint may be
  const StepResult step = trainer.Step();
  ASSERT_TRUE(step.divergence.has_value());
  EXPECT_EQ(step.divergence->what, "the bound of the next weights");
}

// T-11: whatever the rate, the weights are finite when a run has diverged; and below the range nothing is
// called divergence that is none.
TEST(Trainer, WeightsAreFiniteAfterEveryDivergence) {
  for (const double rate : {1e-3, 0.1, 1e2, 1e6, 1e12, 1e20, 1e28, 1e30, 1e32, 1e36, 3e37, 1e38, 1e40}) {
    TrainConfig config = SmallConfig({"norm_type=rmsnorm", "grad_clip=0"});
    config.learning_rate = rate;
    const auto device = MakeCpuDevice({.threads = 2});
    Trainer trainer(*device, config, SmallText());
    std::optional<Divergence> divergence;
    while (!divergence && trainer.next_step() < config.steps) divergence = trainer.Step().divergence;
    EXPECT_EQ(divergence.has_value(), rate > 1) << rate;
    if (rate < 1e20 && divergence) {
      EXPECT_NE(divergence->what, "the bound of the next weights") << rate;
    }
    std::vector<double> weights(static_cast<size_t>(trainer.model().parameters().flat_elements()));
    device->ReadBack(trainer.model().weights(), weights);
    for (const double weight : weights) ASSERT_TRUE(std::isfinite(weight)) << rate;
  }
}

// After the first step the first moment is (1 - beta1) times the gradient that the optimizer saw.
TEST(Trainer, ClippingLimitsTheGradientThatTheOptimizerSees) {
  for (const double limit : {0.0, 0.01, 1e6}) {
    TrainConfig config = SmallConfig();
    config.grad_clip = limit;
    const auto device = MakeCpuDevice({.threads = 2});
    Trainer trainer(*device, config, SmallText());
    const StepResult step = trainer.Step();
    ASSERT_GT(step.gradient_norm, 0.05) << "vacuous";
    std::vector<double> m(static_cast<size_t>(trainer.model().parameters().flat_elements()));
    device->ReadBack(trainer.first_moments(), m);
    double square = 0;
    for (const double value : m) square += value * value;
    const double want = (1 - config.beta1) * (limit == 0.01 ? limit : step.gradient_norm);
    EXPECT_NEAR(std::sqrt(square), want, 1e-5 * want) << "limit " << limit;
  }
}

}  // namespace
}  // namespace normlab
