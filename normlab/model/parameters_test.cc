#include "normlab/model/parameters.h"

#include <cmath>

#include <gtest/gtest.h>

#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {

GptConfig Gpt2Small(const std::string& norm_type) {
  GptConfig config;
  config.vocab_size = 50257;
  config.context_length = 1024;
  config.emb_dim = 768;
  config.n_heads = 12;
  config.n_layers = 12;
  config.norm_type = norm_type;
  return config;
}

TEST(Parameters, Gpt2SmallHasTheArticlesCountWithEachNorm) {
  EXPECT_EQ(ParameterList(Gpt2Small("layernorm"), 0.02).count(), 163'009'536);
  EXPECT_EQ(ParameterList(Gpt2Small("rmsnorm"), 0.02).count(), 162'990'336);
  EXPECT_EQ(ParameterList(Gpt2Small("layernorm"), 0.02).norm_count(), 25 * 2 * 768);
  EXPECT_EQ(ParameterList(Gpt2Small("rmsnorm"), 0.02).norm_count(), 25 * 768);
  EXPECT_EQ(ParameterList(Gpt2Small("no_norm"), 0.02).norm_count(), 0);
}

TEST(Parameters, QueryKeyAndValueAreAdjacentAndMatricesComeFirst) {
  GptConfig config;
  config.emb_dim = 10;  // not a multiple of the alignment
  config.n_heads = 2;
  config.qkv_bias = true;
  const ParameterList list(config, 0.02);
  for (const char* kind : {"weight", "bias"}) {
    const auto offset = [&](const char* name) {
      return list.Find(fmt::format("trf_blocks.1.att.{}.{}", name, kind))->offset;
    };
    const int64_t size = list.Find(fmt::format("trf_blocks.1.att.W_query.{}", kind))->elements();
    EXPECT_EQ(offset("W_key"), offset("W_query") + size);
    EXPECT_EQ(offset("W_value"), offset("W_key") + size);
  }
  for (const Parameter& parameter : list.all()) {
    EXPECT_EQ(parameter.decays, parameter.shape.size() == 2) << parameter.name;
    EXPECT_EQ(parameter.offset < list.flat_decayed(), parameter.decays) << parameter.name;
    EXPECT_LE(parameter.offset + parameter.elements(), list.flat_elements());
  }
}

TEST(Parameters, NormsHaveTheParametersThatTheyLearn) {
  const auto count = [](const std::string& norm_type, auto change) {
    GptConfig config = Gpt2Small(norm_type);
    change(config);
    return ParameterList(config, 0.02).norm_count();
  };
  const auto nothing = [](GptConfig&) {};
  EXPECT_EQ(count("partial_rmsnorm", nothing), 25 * 768);
  EXPECT_EQ(count("recenter", nothing), 0);
  EXPECT_EQ(count("rescale", nothing), 0);
  EXPECT_EQ(count("dyt", nothing), 25 * (2 * 768 + 1));
  EXPECT_EQ(count("layernorm", [](GptConfig& c) { c.norm_bias = false; }), 25 * 768);
  EXPECT_EQ(count("layernorm", [](GptConfig& c) { c.norm_gain = false; }), 25 * 768);
  EXPECT_EQ(count("rmsnorm", [](GptConfig& c) { c.norm_gain = false; }), 0);
  EXPECT_EQ(count("rmsnorm", [](GptConfig& c) { c.norm_bias = false; }), 25 * 768);
}

// alpha is one number a site, starts where the key says, and does not decay.
TEST(Parameters, AlphaOfDytStartsWhereTheKeySaysAndDoesNotDecay) {
  GptConfig config = Gpt2Small("dyt");
  config.norm_alpha_init = 0.75;
  const ParameterList list(config, 0.02);
  const Parameter* alpha = list.Find("trf_blocks.3.norm2.alpha");
  ASSERT_NE(alpha, nullptr);
  EXPECT_EQ(alpha->shape, (std::vector<int64_t>{1}));
  EXPECT_FALSE(alpha->decays);
  EXPECT_EQ(list.InitialValues(*alpha, 1), std::vector<double>{0.75});
}

TEST(Parameters, InitialValuesAreTheSameForAnyNumberOfThreads) {
  const ParameterList list(GptConfig{}, 0.02);
  const Parameter& parameter = *list.Find("tok_emb.weight");  // two chunks
  const std::vector<double> one = list.InitialValues(parameter, 3);
  for (const int threads : {2, 5}) EXPECT_EQ(list.InitialValues(parameter, 3, threads), one);
}

TEST(Parameters, GainsStoredAsOnePlusGStartAtZero) {
  GptConfig config = Gpt2Small("rmsnorm");
  config.norm_weight_offset = 1;
  const ParameterList list(config, 0.02);
  EXPECT_EQ(list.InitialValues(*list.Find("final_norm.scale"), 1), std::vector<double>(768, 0.0));
}

// T-30: every tensor of 12 layers, with a tied and an untied head.
class InitialDeviations : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Parameters, InitialDeviations, testing::Bool(),
                         [](const auto& tied) { return tied.param ? "Tied" : "Untied"; });

TEST_P(InitialDeviations, AreTheArticles) {
  GptConfig config;
  config.n_layers = 12;
  config.tie_weights = GetParam();
  const ParameterList list(config, 0.02);
  EXPECT_EQ(list.Find("out_head.weight") == nullptr, GetParam());
  for (const Parameter& parameter : list.all()) {
    const std::vector<double> values = list.InitialValues(parameter, 3);
    double sum = 0, square = 0;
    for (const double value : values) sum += value, square += value * value;
    const double n = static_cast<double>(values.size());
    const double mean = sum / n, std = std::sqrt(square / n - mean * mean);
    const bool output =
        parameter.name.ends_with("out_proj.weight") || parameter.name.ends_with("layers.2.weight");
    const double want_std = !parameter.decays ? 0 : output ? 0.02 / std::sqrt(24.0) : 0.02;
    const double want_mean = parameter.name.ends_with(".scale") ? 1 : 0;
    // Five standard errors of a sample's mean and deviation.
    EXPECT_NEAR(mean, want_mean, 5 * want_std / std::sqrt(n) + 1e-15) << parameter.name;
    EXPECT_NEAR(std, want_std, 5 * want_std / std::sqrt(2 * n) + 1e-15) << parameter.name;
  }
}

TEST(Parameters, VariantsShareTheTensorsThatTheyShare) {
  GptConfig layernorm, no_norm;
  no_norm.norm_type = "no_norm";
  const ParameterList a(layernorm, 0.02), b(no_norm, 0.02);
  for (const Parameter& parameter : b.all())
    EXPECT_EQ(a.InitialValues(*a.Find(parameter.name), 5), b.InitialValues(parameter, 5)) << parameter.name;
  const Parameter& token = a.all().front();
  EXPECT_NE(a.InitialValues(token, 5), a.InitialValues(token, 6));
}

}  // namespace
}  // namespace normlab
