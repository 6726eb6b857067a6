// The whole model and the optimizer against PyTorch's numbers (tools/make_pytorch_fixture.py): loss, every
// gradient, five AdamW steps with clipping and decay. The reference device must agree to float64 rounding,
// the CPU to fp32's.

#include <cmath>

#include <gtest/gtest.h>

#include "normlab/base/json.h"
#include "normlab/base/safetensors.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/reference/reference_device.h"
#include "normlab/model/gpt.h"
#include "normlab/testing/near.h"

namespace normlab {
namespace {

constexpr int64_t kBatch = 4, kWindow = 16, kSteps = 5;

struct Fixture {
  SafetensorsFile file;
  Json settings;

  explicit Fixture(const std::string& name)
      : file(ReadSafetensors(NORMLAB_SOURCE_DIR "/tests/fixtures/pytorch_" + name + ".safetensors")),
        settings(ParseJson(file.metadata.at("config"), name)) {}

  std::vector<int32_t> Ids(const char* name) const {
    const std::vector<double> values = file.Values(name);
    return {values.begin(), values.end()};
  }
};

double Norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// Roundings of a tensor's gradient, counted as in model/gpt_test.cc: sqrt(60 operations) * sqrt(64 terms of a
// sum).
constexpr double kRoundings = 62;

// `unit` is the device's rounding.
void CheckAgainstPyTorch(Device& device, const std::string& norm_type, const std::string& norm,
                         const std::string& position, double unit) {
  const Fixture fixture(norm + "_" + position);
  GptConfig config;
  config.vocab_size = 61;
  config.context_length = kWindow;
  config.emb_dim = 24;
  config.n_heads = 3;
  config.n_layers = 2;
  config.norm_type = norm_type;
  config.norm_position = position;
  Gpt model(device, config, 0.02, {.micro_batch = kBatch, .window = kWindow});
  const ParameterList& parameters = model.parameters();
  for (const Parameter& parameter : parameters.all())
    device.Upload(fixture.file.Values(parameter.name), model.Weight(parameter.name));
  const int64_t flat = parameters.flat_elements();
  View m, v, norm_view;
  Arena arena(device, [&](Arena::Planner& plan) {
    m = plan.Take({flat}, device.compute_dtype());
    v = plan.Take({flat}, device.compute_dtype());
    norm_view = plan.Take({1}, DType::kF64);
  });
  device.Fill(m, 0);
  device.Fill(v, 0);

  const std::vector<int32_t> inputs = fixture.Ids("inputs"), targets = fixture.Ids("targets");
  int64_t counted = 0;
  for (const int32_t target : targets) counted += target >= 0;
  const std::vector<double> step_losses = fixture.file.Values("step_losses");
  const std::vector<double> step_norms = fixture.file.Values("step_grad_norms");
  std::vector<double> losses(targets.size());
  for (int64_t step = 0; step < kSteps; ++step) {
    const double scale = 1.0 / static_cast<double>(counted);
    model.LossesAndGradients(inputs, targets, scale, false, losses);
    double loss = 0;
    for (const double value : losses) loss += value * scale;
    // Adam divides gradients by their own size: a step moves each weight by about the learning rate whatever
    // its gradient's rounding, so later losses agree a little less tightly than the first.
    EXPECT_NEAR(loss, step_losses[static_cast<size_t>(step)], kRoundings * unit * loss) << "step " << step;

    if (step == 0) {
      const double all = fixture.file.Values("grad_norm")[0];
      test::Comparison comparison(norm_type + " " + position);
      for (const Parameter& parameter : parameters.all()) {
        const std::vector<double> want = fixture.file.Values("grad." + parameter.name);
        std::vector<double> got(want.size());
        device.ReadBack(model.Gradient(parameter.name), got);
        EXPECT_GT(Norm(want), 1e-3) << "vacuous: " << parameter.name;
        for (size_t i = 0; i < want.size(); ++i) got[i] -= want[i];
        comparison.Add(Norm(got), 0, kRoundings * unit * (Norm(want) + 0.1 * all), parameter.offset);
      }
      EXPECT_TRUE(test::Within(comparison, test::Repro(norm_type + " " + position)));
      test::LogWorst(comparison);
    }

    double square = 0;
    device.SumSquares(model.gradients(), norm_view);
    device.ReadBack(norm_view, {&square, 1});
    const double gradient_norm = std::sqrt(square);
    EXPECT_NEAR(gradient_norm, step_norms[static_cast<size_t>(step)], kRoundings * unit * gradient_norm)
        << "step " << step;
    device.AdamW({.gradient = model.gradients(),
                  .decayed = parameters.flat_decayed(),
                  .step = step + 1,
                  .learning_rate = 1e-3,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .weight_decay = 0.1,
                  .gradient_scale = std::min(1.0, 1.0 / gradient_norm),
                  .weight = model.weights(),
                  .m = m,
                  .v = v});
  }

  // Final weights: five steps of at most about the learning rate each. Where a gradient is tiny, Adam turns
  // its rounding into a part of the learning rate, so single elements are compared through their tensor's
  // norm.
  for (const Parameter& parameter : parameters.all()) {
    const std::vector<double> want = fixture.file.Values("final." + parameter.name);
    const std::vector<double> start = fixture.file.Values(parameter.name);
    std::vector<double> got(want.size()), moved(want.size());
    device.ReadBack(model.Weight(parameter.name), got);
    for (size_t i = 0; i < want.size(); ++i) {
      got[i] -= want[i];
      moved[i] = want[i] - start[i];
    }
    EXPECT_GT(Norm(moved), 0);
    const double rounding = 10 * unit * Norm(want);  // storing the weights five times
    EXPECT_LE(Norm(got), 2e4 * unit * Norm(moved) + rounding) << parameter.name;
  }
}

TEST(PyTorchFixture, TheReferenceDeviceGivesPyTorchsNumbers) {
  const auto device = MakeReferenceDevice();
  for (const char* norm : {"layernorm", "rmsnorm"})
    for (const char* position : {"pre", "post"})
      CheckAgainstPyTorch(*device, norm, norm, position, test::kUnitF64);
}

TEST(PyTorchFixture, EveryCpuImplementationGivesPyTorchsNumbers) {
  const auto device = MakeCpuDevice({.threads = 2});
  for (const std::string norm : {"layernorm", "rmsnorm"})
    for (const char* position : {"pre", "post"})
      for (const std::string implementation : {"fused_", "handrolled_", "generic_", "pytorch_"})
        CheckAgainstPyTorch(*device, implementation + norm, norm, position, test::kUnitF32);
}

}  // namespace
}  // namespace normlab
