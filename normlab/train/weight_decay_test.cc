// Which tensors decay, seen in the weights after one step.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/kernels/arena.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/model/gpt.h"
#include "normlab/testing/near.h"
#include "normlab/testing/norm_implementations.h"
#include "normlab/train/config.h"

namespace normlab {
namespace {

// A tensor after a step with zero gradients: its worst distance from factor * w, in shares of two roundings,
// and whether all its bits stayed.
struct Change {
  std::string tensor;
  bool is_matrix = false, same_bits = true;
  double worst = 0;
};

std::vector<Change> StepWithoutGradients(const TrainConfig& config, double learning_rate) {
  const auto device = MakeCpuDevice({.threads = 2});
  Gpt model(*device, config.model, config.init, {.micro_batch = 1, .window = 8});
  model.Initialize(1);
  const int64_t flat = model.parameters().flat_elements();
  // Biases start at 0, which any factor leaves: give every 1-D tensor a value to lose.
  for (const Parameter& parameter : model.parameters().all())
    if (parameter.shape.size() == 1) device->Fill(model.Weight(parameter.name), 0.75);
  View m, v;
  const Arena arena(*device, [&](Arena::Planner& plan) {
    m = plan.Take({flat}, DType::kF32);
    v = plan.Take({flat}, DType::kF32);
  });
  for (const View& view : {m, v, model.gradients()}) device->Fill(view, 0);
  std::vector<double> before(static_cast<size_t>(flat)), after(before);
  device->ReadBack(model.weights(), before);
  device->AdamW({.gradient = model.gradients(),
                 .decayed = model.parameters().flat_decayed(),
                 .learning_rate = learning_rate,
                 .weight_decay = config.weight_decay,
                 .weight = model.weights(),
                 .m = m,
                 .v = v});
  device->ReadBack(model.weights(), after);

  std::vector<Change> changes;
  const double factor = 1 - learning_rate * config.weight_decay;
  for (const Parameter& parameter : model.parameters().all()) {
    Change change{.tensor = parameter.name, .is_matrix = parameter.shape.size() == 2};
    for (int64_t i = parameter.offset; i < parameter.offset + parameter.elements(); ++i) {
      const double was = before[static_cast<size_t>(i)], is = after[static_cast<size_t>(i)];
      change.same_bits = change.same_bits && was == is;
      change.worst =
          std::max(change.worst, test::ErrorShare(is, factor * was, 2 * test::kUnitF32 * std::abs(was)));
    }
    changes.push_back(change);
  }
  return changes;
}

// T-14: learning rate 1e-2, decay 0.1, no gradient: matrices and embeddings shrink by 0.999, everything that
// is 1-D keeps its bits, for every norm that there is.
TEST(WeightDecay, TouchesMatricesAndEmbeddingsAlone) {
  for (const std::string& norm : test::NormTypesThatRun(*MakeCpuDevice({.threads = 1}))) {
    for (const bool variant : {false, true}) {
      TrainConfig config;
      for (const char* setting :
           {"emb_dim=32", "n_heads=2", "n_layers=2", "context_length=32", "weight_decay=0.1"})
        Set(config, setting);
      Set(config, "norm_type=" + norm);
      config.model.qkv_bias = config.model.tie_weights = variant;
      size_t matrices = 0, vectors = 0;
      for (const Change& change : StepWithoutGradients(config, 1e-2)) {
        if (change.is_matrix) {
          ++matrices;
          EXPECT_LE(change.worst, 1) << norm << " " << change.tensor;
          EXPECT_FALSE(change.same_bits) << norm << " " << change.tensor;
        } else {
          ++vectors;
          EXPECT_TRUE(change.same_bits) << norm << " " << change.tensor;
        }
      }
      // Two embeddings, six matrices a block, and the head unless it is the embedding.
      EXPECT_EQ(matrices, variant ? 14u : 15u) << norm;
      EXPECT_GE(vectors, 6u) << norm;  // three biases a block
    }
  }
}

}  // namespace
}  // namespace normlab
