#include "normlab/train/inside.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/testing/near.h"
#include "normlab/testing/small_run.h"

namespace normlab {
namespace {

using test::SmallConfig;
using test::SmallText;

// A trainer after some steps.
struct Trained {
  explicit Trained(std::initializer_list<const char*> settings = {}, int64_t steps = 5, int threads = 2)
      : device(MakeCpuDevice({.threads = threads})), trainer(*device, SmallConfig(settings), SmallText()) {
    for (int64_t i = 0; i < steps; ++i) last = trainer.Step();
  }

  std::vector<double> Weights() const {
    std::vector<double> values(static_cast<size_t>(trainer.model().parameters().flat_elements()));
    device->ReadBack(trainer.model().weights(), values);
    return values;
  }

  std::unique_ptr<Device> device;
  Trainer trainer;
  StepResult last;
};

//
TEST(Inside, TheSquaresOfTheTensorsGradientNormsAddUpToTheGlobalNorm) {
  for (const char* dtype : {"dtype=f32", "dtype=bf16"}) {
    Trained trained({dtype, "micro_batch=4"});
    double squares = 0;
    for (const TensorInside& tensor : LookInside(trained.trainer).tensors)
      squares += tensor.gradient_norm * tensor.gradient_norm;
    EXPECT_NEAR(std::sqrt(squares) / trained.last.gradient_norm, 1, 1e-6);
  }
}

// The update is computed from AdamW's moments; here it is measured. Gradients are clipped in this run,
// matrices decay, and the rate is so high that the rounding of the weights is nothing beside an update.
TEST(Inside, AnUpdateNormIsThatOfTheWeightsDifference) {
  Trained trained({"grad_clip=0.1", "learning_rate=0.05", "weight_decay=0.5", "qkv_bias=true"});
  const std::vector<double> before = trained.Weights();
  trained.trainer.Step();
  const std::vector<double> after = trained.Weights();
  const Inside inside = LookInside(trained.trainer);
  EXPECT_EQ(inside.step, 6);
  const std::vector<Parameter>& parameters = trained.trainer.model().parameters().all();
  ASSERT_EQ(inside.tensors.size(), parameters.size());
  size_t decayed = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    double squares = 0, weight_squares = 0;
    for (int64_t j = parameters[i].offset; j < parameters[i].offset + parameters[i].elements(); ++j) {
      const size_t at = static_cast<size_t>(j);
      squares += (after[at] - before[at]) * (after[at] - before[at]);
      weight_squares += after[at] * after[at];
    }
    const TensorInside& tensor = inside.tensors[i];
    EXPECT_EQ(tensor.name, parameters[i].name);
    EXPECT_NEAR(tensor.update_norm / std::sqrt(squares), 1, 1e-5) << tensor.name;
    EXPECT_NEAR(tensor.weight_norm / std::sqrt(weight_squares), 1, 1e-6) << tensor.name;
    EXPECT_DOUBLE_EQ(*tensor.update_ratio(), tensor.update_norm / tensor.weight_norm);
    decayed += parameters[i].decays;
  }
  EXPECT_GT(decayed, 10u);
  EXPECT_LT(decayed, parameters.size());
}

// With recomputation the blocks' activations are gone by the end of a step, and nothing is told in their
// place.
TEST(Inside, RecomputedActivationsAreNotToldAsThoseOfANorm) {
  Trained trained({"recompute=true"});
  const Inside inside = LookInside(trained.trainer);
  EXPECT_TRUE(inside.norms.empty());
  EXPECT_EQ(inside.tensors.size(), trained.trainer.model().parameters().all().size());
  EXPECT_EQ(SignalsOf(trained.trainer).size(), ReadSignals(trained.trainer).size());
}

// The sample of a tensor of at most kSampledElements is all of it.
TEST(Inside, TheSignalsOfAStepAreThoseOfTheFullLook) {
  Trained trained;
  const Inside inside = LookInside(trained.trainer);
  const std::vector<Signal> signals = SignalsOf(trained.trainer);
  const std::vector<double> values = ReadSignals(trained.trainer);
  ASSERT_EQ(signals.size(), values.size());
  std::map<std::string, double> by_name;
  for (size_t i = 0; i < signals.size(); ++i) by_name[signals[i].what + " " + signals[i].name] = values[i];
  EXPECT_EQ(by_name.size(), signals.size());
  for (const TensorInside& tensor : inside.tensors) {
    EXPECT_EQ(by_name.at("gradient_norm " + tensor.name), tensor.gradient_norm);
    const bool all = trained.trainer.model().parameters().Find(tensor.name)->elements() <= kSampledElements;
    EXPECT_NEAR(by_name.at("update_norm " + tensor.name) / tensor.update_norm, 1, all ? 1e-12 : 0.5)
        << tensor.name;
  }
  for (const NormInside& norm : inside.norms)  // 32 rows of 256
    EXPECT_NEAR(by_name.at("input_rms " + norm.site) / norm.input.rms, 1, 0.2) << norm.site;
}

TEST(Inside, EveryNormSiteIsSeenInForwardOrder) {
  for (const char* position : {"norm_position=pre", "norm_position=post"}) {
    Trained trained({position});
    std::vector<std::string> sites;
    for (const NormInside& norm : LookInside(trained.trainer).norms) sites.push_back(norm.site);
    EXPECT_EQ(sites, (std::vector<std::string>{"trf_blocks.0.norm1", "trf_blocks.0.norm2",
                                               "trf_blocks.1.norm1", "trf_blocks.1.norm2", "final_norm"}));
  }
}

// what initial weights, which are normal numbers, make of the text has a kurtosis near 3. What a norm
// gives has the root mean square that its formula says, by eps less than 1.
TEST(Inside, AtTheStartActivationsAreNearlyNormalAndNormsGiveUnitRows) {
  for (const char* storage : {"residual_dtype=f32", "residual_dtype=bf16"})
    for (const char* norm : {"norm_type=rmsnorm", "norm_type=layernorm"}) {
      Trained trained({norm, "dtype=bf16", storage, "emb_dim=64"}, 1);
      const Inside inside = LookInside(trained.trainer);
      for (const NormInside& site : inside.norms) {
        EXPECT_NEAR(*site.input.kurtosis, 3, 0.5) << site.site;
        EXPECT_NEAR(site.output.rms, 1, 0.02) << site.site;
        EXPECT_NEAR(*site.input.mean_share, 1.0 / 64, 0.01) << site.site;
        EXPECT_FALSE(site.saturated_share.has_value());
      }
      EXPECT_NEAR(inside.norms[0].input.rms, 0.02 * std::sqrt(2.0), 0.003);  // two embeddings
    }
}

// Re-centring has a lot to remove where a bias is added to all columns.
TEST(Inside, TheMeanShareTellsHowMuchThereIsToCentre) {
  Trained trained({"norm_type=rmsnorm"}, 2);
  const View position = trained.trainer.model().Weight("pos_emb.weight");
  trained.device->Fill(position, 1);
  trained.trainer.WarmUp();
  const Inside inside = LookInside(trained.trainer);
  EXPECT_GT(*inside.norms[0].input.mean_share, 0.99);
}

TEST(Inside, ANormThatIsTheIdentityGivesWhatItGets) {
  for (const char* dtype : {"dtype=f32", "dtype=bf16"}) {
    Trained trained({"norm_type=no_norm", dtype});
    for (const NormInside& norm : LookInside(trained.trainer).norms)
      EXPECT_NEAR(norm.input.rms / norm.output.rms, 1, 1e-3) << norm.site;  // bf16: rounded
  }
}

// alpha x is beyond 3 nearly everywhere, or nowhere.
TEST(Inside, TheSaturatedShareOfDytFollowsAlpha) {
  for (const auto& [alpha, low, high] :
       {std::tuple("norm_alpha_init=100", 0.9, 1.0), {"norm_alpha_init=0.01", 0.0, 0.0}}) {
    Trained trained({"norm_type=dyt", "init=1", alpha}, 1);
    const Inside inside = LookInside(trained.trainer);
    EXPECT_GE(*inside.norms[0].saturated_share, low);
    EXPECT_LE(*inside.norms[0].saturated_share, high);
    EXPECT_TRUE(ToJson(inside, "interval")["norms"][0].contains("saturated_share"));
  }
}

TEST(Inside, ManyRowsAreSampledEvenlyAndAlikeByAnyNumberOfThreads) {
  std::vector<std::string> lines;
  for (const int threads : {1, 2, 5}) {
    Trained trained({"batch=64", "micro_batch=64"}, 2, threads);  // 2,048 rows
    const Inside inside = LookInside(trained.trainer);
    lines.push_back(DumpJson(ToJson(inside, "interval")));
    EXPECT_NEAR(inside.norms[0].output.rms, 1, 0.05);
  }
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_EQ(lines[0], lines[2]);
}

TEST(Inside, ALineHoldsWhatTheDocumentsSay) {
  Trained trained({"norm_type=rmsnorm"});
  const Json line = ToJson(LookInside(trained.trainer), "interval");
  EXPECT_EQ(line["step"], 5);
  EXPECT_EQ(line["why"], "interval");
  for (const char* key : {"rms", "max", "kurtosis", "mean_share", "outlier_channel", "outlier_ratio"})
    EXPECT_TRUE(line["norms"][0]["input"].contains(key)) << key;
  for (const char* key : {"rms", "max", "kurtosis"})
    EXPECT_TRUE(line["norms"][0]["output"][key].is_number()) << key;
  for (const char* key : {"weight_norm", "gradient_norm", "update_norm", "update_ratio"})
    EXPECT_TRUE(line["tensors"][0][key].is_number()) << key;
}

}  // namespace
}  // namespace normlab
