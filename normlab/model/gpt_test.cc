#include "normlab/model/gpt.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "normlab/base/isa.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/reference/reference_device.h"
#include "normlab/norms/norm_list.h"
#include "normlab/testing/central_difference.h"
#include "normlab/testing/near.h"
#include "normlab/testing/tiny_gpt.h"

namespace normlab {
namespace {

using test::TinyConfig;
using test::TinyGpt;

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

bool Runs(const Device& device, const NormInfo& info, const std::string& implementation) {
  for (const NormImplementationStatus& status : device.NormImplementations({.kind = info.kind}, 8))
    if (status.name == implementation) return !status.refusal;
  return false;
}

// Every configuration whose backward is another list of calls.
std::vector<GptConfig> Configs(const std::string& implementation) {
  std::vector<GptConfig> configs;
  const auto cpu = MakeCpuDevice({.threads = 1});
  for (const NormInfo& info : AllNorms::kInfos) {
    if (!implementation.empty() && !Runs(*cpu, info, implementation)) continue;
    const std::string norm = info.identity || implementation.empty()
                                 ? std::string(info.name)
                                 : implementation + "_" + std::string(info.name);
    for (const char* position : {"pre", "post"}) {
      configs.push_back(TinyConfig(norm, position));
      configs.push_back(TinyConfig(norm, position));
      configs.back().final_norm = false;
      configs.back().qkv_bias = true;
      configs.back().tie_weights = true;
    }
    if (!info.has_gain) continue;
    configs.push_back(TinyConfig(norm, "pre"));
    configs.back().norm_weight_offset = 1;
    configs.back().norm_bias = false;
    configs.push_back(TinyConfig(norm, "post"));
    configs.back().norm_gain = false;
  }
  return configs;
}

std::string Describe(const GptConfig& config) {
  return fmt::format("{} {}{}{}{}", config.norm_type, config.norm_position, config.tie_weights ? " tied" : "",
                     config.norm_gain ? "" : " without gain",
                     config.norm_weight_offset == 1 ? " gain 1 + g" : "");
}

// The derivative along a random direction of each tensor, against the stencil. The tolerance is the
// stencil's: rounding of the loss over h (2^-53 * 1.5 * |loss| * operations that reach it, about 1e2) plus
// h^4/30 of the fifth derivative, which stays below 1e4 here: both under 1e-9 of the scale 1 + |derivative|.
TEST(GptGradients, EqualCentralDifferencesForEveryNormAndPosition) {
  const auto device = MakeReferenceDevice();
  for (const GptConfig& config : Configs("")) {
    TinyGpt gpt(*device, config);
    gpt.LossAndGradients();
    test::Comparison comparison(Describe(config));
    for (const Parameter& parameter : gpt.model.parameters().all()) {
      const View weight = gpt.model.Weight(parameter.name);
      const std::vector<double> start = gpt.Values(weight);
      const std::vector<double> gradient = gpt.Values(gpt.model.Gradient(parameter.name));
      const RandomStream stream(23, parameter.name);
      std::vector<double> direction(start.size()), moved(start.size());
      for (size_t i = 0; i < direction.size(); ++i) direction[i] = stream.Normal(i);
      const double length = Norm(direction);
      double analytic = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] /= length;
        analytic += gradient[i] * direction[i];
      }
      const double numeric = test::CentralDifference(
          [&](double h) {
            for (size_t i = 0; i < moved.size(); ++i) moved[i] = start[i] + h * direction[i];
            device->Upload(moved, weight);
            return gpt.Loss();
          },
          1e-3);
      device->Upload(start, weight);
      comparison.Add(analytic, numeric, 1e-9 * (1 + std::abs(numeric)), parameter.offset);
      // A bias on keys adds the same to every score of a row, which softmax does not see: its gradient is 0.
      if (!parameter.name.ends_with("W_key.bias")) {
        EXPECT_GT(Norm(gradient), 1e-4) << "vacuous: " << parameter.name << " of " << Describe(config);
      }
    }
    EXPECT_TRUE(test::Within(comparison, test::Repro(Describe(config))));
  }
}

// Each tensor's gradient, as a vector, against the float64 one. fp32 rounding enters at each of the about 15
// operations of a block and its backward, over 2 blocks and 2 directions: 60 in all, of random sign, so they
// add like sqrt(60); a sum over up to 48 terms rounds like sqrt(48) u. Together 54 u as a relative error of a
// tensor, plus the same of a tenth of the whole gradient for tensors that are small differences of larger
// ones.
constexpr double kRoundings = 54;

TEST(GptGradients, OfTheCpuEqualTheReferencesTensorByTensor) {
  const auto reference = MakeReferenceDevice();
  const auto cpu = MakeCpuDevice({.threads = 2});
  for (const std::string implementation : {"", "generic", "handrolled", "fused"}) {
    for (const GptConfig& config : Configs(implementation)) {
      TinyGpt want(*reference, config), got(*cpu, config);
      const double want_loss = want.LossAndGradients();
      const double got_loss = got.LossAndGradients();
      EXPECT_NEAR(got_loss, want_loss, 100 * test::kUnitF32 * want_loss) << Describe(config);
      const double scale = Norm(want.Values(want.model.gradients()));
      test::Comparison comparison(Describe(config));
      for (const Parameter& parameter : want.model.parameters().all()) {
        const std::vector<double> a = want.Values(want.model.Gradient(parameter.name));
        std::vector<double> b = got.Values(got.model.Gradient(parameter.name));
        for (size_t i = 0; i < b.size(); ++i) b[i] -= a[i];
        comparison.Add(Norm(b), 0, kRoundings * test::kUnitF32 * (Norm(a) + 0.1 * scale), parameter.offset);
      }
      EXPECT_TRUE(test::Within(comparison, test::Repro(Describe(config))));
    }
  }
}

// The same with bf16 operands, and with a bf16 residual stream. Each of the 60 roundings is now one of 2^-8,
// and so is what each sum adds up, beside which fp32's do not count: sqrt(60) u as a relative error of a
// tensor, times 2 for the tensors near the input, whose gradients have been through every block.
TEST(GptGradients, OfBf16ModelsComeCloseToTheReferences) {
  constexpr double kUnit = 0x1p-8;
  const auto reference = MakeReferenceDevice();
  const auto cpu = MakeCpuDevice({.threads = 2});
  for (const DType residual : {DType::kF32, DType::kBF16}) {
    const GptShape shape = {.micro_batch = 2, .window = 7, .operands = DType::kBF16, .residual = residual};
    for (const std::string implementation : {"", "generic", "handrolled", "fused"}) {
      for (const GptConfig& config : Configs(implementation)) {
        const std::string text = fmt::format("{} residual {}", Describe(config), Name(residual));
        TinyGpt want(*reference, config, shape), got(*cpu, config, shape);
        const double want_loss = want.LossAndGradients();
        const double got_loss = got.LossAndGradients();
        EXPECT_NEAR(got_loss, want_loss, 4 * kUnit * want_loss) << text;
        const double scale = Norm(want.Values(want.model.gradients()));
        test::Comparison comparison(text);
        for (const Parameter& parameter : want.model.parameters().all()) {
          const std::vector<double> a = want.Values(want.model.Gradient(parameter.name));
          std::vector<double> b = got.Values(got.model.Gradient(parameter.name));
          for (size_t i = 0; i < b.size(); ++i) b[i] -= a[i];
          comparison.Add(Norm(b), 0, 2 * std::sqrt(60.0) * kUnit * (Norm(a) + 0.1 * scale), parameter.offset);
        }
        EXPECT_TRUE(test::Within(comparison, test::Repro(text)));
      }
    }
  }
}

TEST(Gpt, TheSameBitsForAnyNumberOfThreads) {
  GptConfig config = TinyConfig("fused_layernorm", "pre");
  config.emb_dim = 96;
  config.context_length = 80;
  for (const DType operands : {DType::kF32, DType::kBF16}) {
    std::vector<double> first;
    for (const int threads : {1, 2, 3, 5, 8}) {
      const auto device = MakeCpuDevice({.threads = threads});
      TinyGpt gpt(*device, config, {.micro_batch = 7, .window = 77, .operands = operands}, 0.05);
      gpt.LossAndGradients();
      const std::vector<double> gradients = gpt.Values(gpt.model.gradients());
      if (first.empty()) first = gradients;
      EXPECT_TRUE(test::SameBits(gradients, first, fmt::format("{} threads", threads).c_str()));
    }
  }
}

// Computed again or kept: the same operations on the same numbers.
TEST(Gpt, RecomputedActivationsGiveTheBitsOfThoseThatAreKept) {
  const auto device = MakeCpuDevice({.threads = 2});
  struct Storage {
    DType operands, residual;
  };
  for (const auto& [operands, residual] :
       {Storage{DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}})
    for (const std::string implementation : {"", "generic", "handrolled", "fused"})
      for (GptConfig config : Configs(implementation)) {
        config.n_layers = 3;
        GptShape shape = {.micro_batch = 2, .window = 7, .operands = operands, .residual = residual};
        TinyGpt kept(*device, config, shape);
        shape.recompute = true;
        TinyGpt again(*device, config, shape);
        const std::string text = fmt::format("{} {} {}", Describe(config), Name(operands), Name(residual));
        EXPECT_EQ(kept.LossAndGradients(), again.LossAndGradients()) << text;
        EXPECT_TRUE(test::SameBits(again.Values(again.model.gradients()), kept.Values(kept.model.gradients()),
                                   text.c_str()));
        EXPECT_LT(again.model.arena_bytes(), kept.model.arena_bytes()) << text;
        EXPECT_EQ(again.model.saved_bytes(), kept.model.saved_bytes()) << text;
      }
}

// What is kept of a block is the stream that enters it: one [B T, C] matrix more for every layer.
TEST(Gpt, KeepsOneMatrixOfEachBlockThatItComputesAgain) {
  const auto device = MakeCpuDevice({.threads = 1});
  for (const char* position : {"pre", "post"}) {
    GptConfig config = TinyConfig("layernorm", position);
    const GptShape shape = {.micro_batch = 4, .window = 8, .recompute = true};
    const auto activations = [&](int64_t layers) {
      config.n_layers = layers;
      const Gpt model(*device, config, 0.02, shape);
      return static_cast<int64_t>(model.arena_bytes()) - 2 * static_cast<int64_t>(model.weights().bytes());
    };
    EXPECT_EQ(activations(9) - activations(5), 4 * 4 * 8 * 12 * 4) << position;
  }
}

// Two micro-batches and the large batch both carry the roundings of one backward pass: twice its bound.
TEST(Gpt, MicroBatchesAddUpToTheLargeBatch) {
  const auto device = MakeCpuDevice({.threads = 2});
  const GptConfig config = TinyConfig("fused_rmsnorm", "pre");
  TinyGpt whole(*device, config, {.micro_batch = 4, .window = 7});
  TinyGpt half(*device, config, {.micro_batch = 2, .window = 7});
  whole.LossAndGradients();
  std::vector<double> losses(14);
  const std::span<const int32_t> inputs(whole.inputs), targets(whole.targets);
  half.model.LossesAndGradients(inputs.first(14), targets.first(14), whole.Scale(), false, losses);
  half.model.LossesAndGradients(inputs.last(14), targets.last(14), whole.Scale(), true, losses);
  const double scale = Norm(whole.Values(whole.model.gradients()));
  test::Comparison comparison("micro-batches");
  for (const Parameter& parameter : whole.model.parameters().all()) {
    const std::vector<double> a = whole.Values(whole.model.Gradient(parameter.name));
    std::vector<double> b = half.Values(half.model.Gradient(parameter.name));
    for (size_t i = 0; i < b.size(); ++i) b[i] -= a[i];
    comparison.Add(Norm(b), 0, 2 * kRoundings * test::kUnitF32 * (Norm(a) + 0.1 * scale), parameter.offset);
  }
  EXPECT_TRUE(test::Within(comparison, test::Repro("")));
  test::LogWorst(comparison);
}

// T-15: the gradient is that of the mean over counted targets, whatever their number per micro-batch.
TEST(Gpt, TargetsThatAreNotCountedHaveNoLossAndNoGradient) {
  const auto device = MakeReferenceDevice();
  TinyGpt gpt(*device, TinyConfig("layernorm", "pre"));
  std::fill(gpt.targets.begin(), gpt.targets.end(), -1);
  std::vector<double> losses(gpt.targets.size());
  gpt.model.LossesAndGradients(gpt.inputs, gpt.targets, 1.0, false, losses);
  for (const double loss : losses) EXPECT_EQ(loss, 0);
  EXPECT_EQ(Norm(gpt.Values(gpt.model.gradients())), 0);
}

TEST(Gpt, StartsAtTheLogarithmOfTheVocabulary) {
  const auto device = MakeCpuDevice({.threads = 2});
  GptConfig config;
  config.vocab_size = 2003;
  config.emb_dim = 64;
  config.n_layers = 2;
  Gpt model(*device, config, 0.02, {.micro_batch = 2, .window = 32});
  model.Initialize(1);
  const auto inputs = test::RandomIds(64, 2003, "inputs"), targets = test::RandomIds(64, 2003, "targets");
  std::vector<double> losses(64);
  model.Losses(inputs, targets, losses);
  double sum = 0;
  for (const double loss : losses) sum += loss;
  EXPECT_NEAR(sum / 64, std::log(2003.0), 0.1);
}

TEST(Gpt, TheLogitsOfAllRowsAreNeverHeldAtOnce) {
  const auto device = MakeCpuDevice({.threads = 1});
  GptConfig config = TinyConfig("layernorm", "pre");
  config.vocab_size = 50'000;
  const Gpt model(*device, config, 0.02, {.micro_batch = 16, .window = 8});
  const int64_t all_logits = 16 * 8 * 50'000 * 4;
  const int64_t others =
      static_cast<int64_t>(model.arena_bytes()) - 2 * 4 * model.parameters().flat_elements();
  EXPECT_LT(others, all_logits);
}

}  // namespace
}  // namespace normlab
