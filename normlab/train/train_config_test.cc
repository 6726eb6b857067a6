#include "normlab/train/config.h"

#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;

TrainConfig Read(const std::string& text) {
  TrainConfig config;
  ApplyText(config, text, "my.json");
  config.Validate();
  return config;
}

TrainConfig With(std::vector<std::string> assignments) {
  TrainConfig config;
  for (const std::string& assignment : assignments) Set(config, assignment);
  return config;
}

// The article's model: token and position embeddings, blocks, final norm, head of its own.
int64_t Parameters(const GptConfig& c) {
  const int64_t d = c.emb_dim, f = c.feed_forward_dim();
  const int64_t block = 3 * d * d + d * d + d + d * f + f + f * d + d + 4 * d;
  return 2 * c.vocab_size * d + c.context_length * d + c.n_layers * block + 2 * d;
}

TEST(Presets, HaveTheirShapesAndSchedules) {
  struct Row {
    const char* name;
    int64_t vocab, width, layers, heads, context, batch, micro_batch, steps;
    double rate;
  };
  for (const Row& row : {Row{"tiny", 256, 128, 4, 4, 256, 16, 16, 300, 0.002},
                         Row{"study", 256, 384, 6, 6, 256, 16, 16, 1000, 0.001},
                         Row{"gpt2-small", 50257, 768, 12, 12, 1024, 96, 4, 33165, 0.0014}}) {
    const TrainConfig c = PresetConfig(row.name);
    EXPECT_NO_THROW(c.Validate());
    EXPECT_EQ(c.model.vocab_size, row.vocab);
    EXPECT_EQ(c.model.emb_dim, row.width);
    EXPECT_EQ(c.model.n_layers, row.layers);
    EXPECT_EQ(c.model.n_heads, row.heads);
    EXPECT_EQ(c.model.context_length, row.context);
    EXPECT_EQ(c.Window(), row.context);
    EXPECT_EQ(c.batch, row.batch);
    EXPECT_EQ(c.MicroBatch(), row.micro_batch);
    EXPECT_EQ(c.steps, row.steps);
    EXPECT_EQ(c.learning_rate, row.rate);
    EXPECT_DOUBLE_EQ(c.MinLearningRate(), row.rate / 10);
    EXPECT_EQ(c.model.norm_type, "handrolled_layernorm");
    EXPECT_FALSE(c.model.qkv_bias);
    EXPECT_FALSE(c.model.tie_weights);
  }
  EXPECT_EQ(PresetConfig("tiny"), TrainConfig{});
  EXPECT_SAYS(ErrorOf([] { PresetConfig("gpt2_small"); }),
              {"unknown preset", "did you mean \"gpt2-small\"?"});
}

TEST(Presets, Gpt2SmallIsTheArticlesRun) {
  const TrainConfig c = PresetConfig("gpt2-small");
  EXPECT_EQ(Parameters(c.model), 163009536);
  EXPECT_EQ(c.steps * c.TokensPerStep(), 3260252160);
  EXPECT_EQ((20 * Parameters(c.model) + c.TokensPerStep() - 1) / c.TokensPerStep(), c.steps);
  EXPECT_EQ(DumpJson(c.MinLearningRate()), "0.00014");
  EXPECT_EQ(c.WarmupSteps(), 1658);
}

TEST(TrainConfig, WarmupIsRoundedAndAtLeastOneStep) {
  EXPECT_EQ(TrainConfig{}.WarmupSteps(), 15);
  EXPECT_EQ(With({"warmup_fraction=0"}).WarmupSteps(), 1);
  EXPECT_EQ(With({"steps=10"}).WarmupSteps(), 1);  // 0.5 rounds up
  EXPECT_EQ(With({"steps=1"}).WarmupSteps(), 1);
  EXPECT_EQ(With({"steps=10", "warmup_fraction=1"}).WarmupSteps(), 10);
}

// T-09: what a user can ask for has at least one step, and a warm-up of 1 to all of them.
TEST(TrainConfig, TheWarmUpNeverExceedsTheRunAndARunHasSteps) {
  for (const int64_t steps : {1, 2, 10, 33165})
    for (const double fraction : {0.0, 0.05, 0.5, 1.0}) {
      TrainConfig config;
      config.steps = steps;
      config.warmup_fraction = fraction;
      EXPECT_NO_THROW(config.Validate());
      EXPECT_GE(config.WarmupSteps(), 1);
      EXPECT_LE(config.WarmupSteps(), steps);
    }
  TrainConfig config;
  EXPECT_THROW(Set(config, "steps=0"), Error);
  EXPECT_THROW(Set(config, "warmup_fraction=1.1"), Error);
  EXPECT_THROW(Set(config, "warmup_fraction=-0.1"), Error);
}

TEST(TrainConfig, DefaultsFollowTheKeysTheyComeFrom) {
  EXPECT_DOUBLE_EQ(With({"learning_rate=0.01"}).MinLearningRate(), 0.001);
  EXPECT_EQ(With({"learning_rate=0.01", "min_learning_rate=0.005"}).MinLearningRate(), 0.005);
  EXPECT_EQ(With({"min_learning_rate=0"}).MinLearningRate(), 0.0);
  EXPECT_EQ(With({"context_length=64"}).Window(), 64);
  EXPECT_EQ(With({"window=64"}).Window(), 64);
  EXPECT_EQ(With({"batch=4"}).MicroBatch(), 4);
  EXPECT_EQ(With({"batch=24"}).MicroBatch(), 12);
  EXPECT_EQ(With({"batch=17"}).MicroBatch(), 1);
  EXPECT_EQ(With({"batch=64", "micro_batch=32"}).MicroBatch(), 32);
}

TEST(TrainConfig, ReadsAFlatObjectWithComments) {
  const TrainConfig config =
      Read("{\n  // a smaller run\n  \"steps\": 100, /* of 300 */ \"norm_type\": \"rmsnorm\"\n}");
  EXPECT_EQ(config.steps, 100);
  EXPECT_EQ(config.model.norm_type, "rmsnorm");
  EXPECT_EQ(config.batch, 16);
}

TEST(TrainConfig, RefusesWhatItDoesNotUnderstand) {
  EXPECT_SAYS(ErrorOf([] { Read(R"({"learning_rte": 1})"); }),
              {"my.json: ", "did you mean \"learning_rate\"?"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"steps": 1, "steps": 2})"); }), {"my.json", "\"steps\" is given twice"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"steps": "many"})"); }), {"steps = \"many\"", "whole number from 1"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"steps": 0})"); }), {"steps = 0"});
  EXPECT_SAYS(ErrorOf([] { Read("{\n\"steps\": }"); }), {"my.json, line 2"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"model": {"emb_dim": 64}})"); }),
              {"unknown configuration key \"model\""});
  EXPECT_SAYS(ErrorOf([] { Read("[]"); }), {"my.json", "object"});
}

TEST(TrainConfig, RefusesBf16ByName) {
  EXPECT_EQ(With({"dtype=bf16"}).OperandType(), DType::kBF16);
  EXPECT_EQ(With({"dtype=bf16"}).ResidualType(), DType::kF32);
  EXPECT_NO_THROW(With({"dtype=bf16", "residual_dtype=bf16"}).Validate());
  EXPECT_SAYS(ErrorOf([] { With({"residual_dtype=bf16"}).Validate(); }),
              {"residual_dtype = bf16", "dtype = f32", "set both to bf16"});
  EXPECT_SAYS(ErrorOf([] { With({"dtype=f31"}); }), {"unknown dtype \"f31\"", "f32"});
  EXPECT_EQ(TrainConfig{}.OperandType(), DType::kF32);
  EXPECT_EQ(TrainConfig{}.ResidualType(), DType::kF32);
}

TEST(TrainConfig, ValidateChecksWhatNeedsSeveralKeys) {
  EXPECT_SAYS(ErrorOf([] { With({"micro_batch=5"}).Validate(); }),
              {"micro_batch = 5 does not divide batch = 16"});
  EXPECT_SAYS(ErrorOf([] { With({"window=257"}).Validate(); }), {"window = 257", "context_length = 256"});
  EXPECT_SAYS(ErrorOf([] { With({"min_learning_rate=0.01"}).Validate(); }),
              {"min_learning_rate = 0.01", "0.002"});
  EXPECT_SAYS(ErrorOf([] { With({"emb_dim=130"}).Validate(); }), {"emb_dim = 130"});
  TrainConfig config;
  config.beta2 = 1.0;
  EXPECT_SAYS(ErrorOf([&] { config.Validate(); }), {"beta2 = 1.0"});
}

TEST(TrainConfig, RangesEndWhereTheySay) {
  for (const char* good :
       {"beta1=0", "beta2=0.999", "grad_clip=0", "weight_decay=0", "learning_rate=0", "warmup_fraction=1",
        "held_out_fraction=0.5", "seed=9223372036854775807", "seed=0"})
    EXPECT_NO_THROW(With({good})) << good;
  for (const char* bad :
       {"beta1=-0.1", "beta2=1", "grad_clip=-1", "weight_decay=-1", "learning_rate=-1", "adam_eps=0",
        "adam_eps=1e-39", "warmup_fraction=1.1", "held_out_fraction=0", "held_out_fraction=1", "seed=-1",
        "init=0", "seed=9223372036854775808", "batch=0", "held_out_windows=0"})
    EXPECT_THROW(With({bad}), Error) << bad;
}

TEST(TrainConfig, SetTakesValuesOfAGrid) {
  TrainConfig config;
  Set(config, "learning_rate", 0.01);
  Set(config, "norm_type", "no_norm");
  EXPECT_EQ(config.learning_rate, 0.01);
  EXPECT_EQ(config.model.norm_type, "no_norm");
  EXPECT_THROW(Set(config, "nothing", 1), Error);
}

TEST(TrainConfig, EveryKeyIsDumpedDescribedAndUnique) {
  const Json dump = ToJson(TrainConfig{});
  std::set<std::string> names;
  for (const KeyDescription& key : KeyDescriptions()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.description.empty()) << key.name;
    EXPECT_FALSE(key.allowed.empty()) << key.name;
    EXPECT_EQ(key.value, DumpJson(dump.at(key.name))) << key.name;
  }
  EXPECT_EQ(names.size(), dump.size());
  for (const char* name : {"norm_eps", "adam_eps", "norm_position", "final_norm", "dtype", "residual_dtype",
                           "window", "micro_batch", "min_learning_rate", "warmup_fraction", "seed", "init"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(TrainConfig, OptionsThatANormDoesNotReadAreTakenOut) {
  TrainConfig set;
  set.model.norm_eps = 0.1;
  set.model.norm_gain = false;
  set.model.norm_bias = false;
  set.model.norm_weight_offset = 1;
  set.model.norm_fraction = 0.5;
  set.model.norm_alpha_init = 2;
  set.model.norm_cast = "before_gain";
  const auto kept = [&](const char* norm) {
    TrainConfig config = set, defaults;
    config.model.norm_type = defaults.model.norm_type = norm;
    std::string keys;
    const Json used = ToJson(WithoutUnusedNormOptions(config));
    for (const KeyDifference& difference : Differences(ToJson(defaults), used)) keys += difference.key + " ";
    return keys;
  };
  EXPECT_EQ(kept("layernorm"), "norm_eps norm_gain norm_bias ");
  EXPECT_EQ(kept("fused_rmsnorm"), "norm_eps norm_gain ");
  EXPECT_EQ(kept("partial_rmsnorm"), "norm_eps norm_gain norm_fraction ");
  EXPECT_EQ(kept("rescale"), "norm_eps ");
  EXPECT_EQ(kept("dyt"), "norm_gain norm_bias norm_alpha_init ");
  EXPECT_EQ(kept("no_norm"), "");
  set.model.norm_gain = true;
  EXPECT_EQ(kept("rmsnorm"), "norm_eps norm_weight_offset ");  // norm_cast: in fp32 both are the same
}

TEST(TrainConfig, OptionsThatANormDoesNotReadAreNamedWithTheReason) {
  TrainConfig config;
  EXPECT_TRUE(UnusedNormOptions(config).empty());
  config.model.norm_type = "dyt";
  config.model.norm_gain = false;
  config.model.norm_eps = 0.1;
  config.model.norm_weight_offset = 1;
  const std::vector<UnusedOption> unused = UnusedNormOptions(config);
  ASSERT_EQ(unused.size(), 2u);
  EXPECT_EQ(unused[0].key, "norm_eps");
  EXPECT_EQ(unused[0].value, 0.1);
  EXPECT_EQ(unused[0].reason, "dyt does not use it");
  EXPECT_EQ(unused[1].key, "norm_weight_offset");
  EXPECT_EQ(unused[1].reason, "dyt does not use it without its gain");
}

TEST(TrainConfig, EveryKeyRefusesAValueOfAnotherType) {
  for (const ConfigKey<TrainConfig>& key : TrainConfigKeys()) {
    TrainConfig config;
    EXPECT_THROW(key.set(config, Json::array()), Error) << key.name;
    EXPECT_THROW(key.set(config, Json::object()), Error) << key.name;
    EXPECT_THROW(key.set(config, key.get(config).is_string() ? Json(1) : Json("text")), Error) << key.name;
    if (key.allowed.find("null") == std::string::npos) {
      EXPECT_THROW(key.set(config, Json()), Error) << key.name;
    }
    EXPECT_EQ(config, TrainConfig{}) << key.name;
  }
}

// A configuration with random values under random keys; every key can be hit.
TrainConfig RandomConfig() {
  TrainConfig config = Presets()[*rc::gen::inRange<size_t>(0, Presets().size())].config;
  const auto heads = *rc::gen::inRange<int64_t>(1, 20);
  config.model.n_heads = heads;
  config.model.emb_dim = heads * *rc::gen::inRange<int64_t>(1, 100);
  config.model.n_layers = *rc::gen::inRange<int64_t>(1, 50);
  config.model.qkv_bias = *rc::gen::arbitrary<bool>();
  config.model.tie_weights = *rc::gen::arbitrary<bool>();
  config.model.final_norm = *rc::gen::arbitrary<bool>();
  config.model.norm_type = *rc::gen::element<std::string>("layernorm", "fused_rmsnorm", "no_norm");
  config.model.norm_position = *rc::gen::element<std::string>("pre", "post");
  if (*rc::gen::arbitrary<bool>()) config.model.norm_eps = *rc::gen::inRange(0, 1000) / 999.0;
  config.batch = *rc::gen::inRange<int64_t>(1, 200);
  if (*rc::gen::arbitrary<bool>()) config.micro_batch = config.batch;
  if (*rc::gen::arbitrary<bool>()) config.window = *rc::gen::inRange<int64_t>(1, 256);
  config.steps = *rc::gen::inRange<int64_t>(1, 100000);
  config.learning_rate = *rc::gen::inRange(1, 1000000) / 999983.0;
  if (*rc::gen::arbitrary<bool>()) config.min_learning_rate = config.learning_rate / 3;
  config.beta2 = *rc::gen::inRange(0, 1000) / 1000.0;
  config.init = *rc::gen::inRange(1, 1000) / 7.0;
  config.seed = static_cast<uint64_t>(*rc::gen::inRange<int64_t>(0, INT64_MAX));
  return config;
}

RC_GTEST_PROP(TrainConfig, WhatIsDumpedIsReadBack, ()) {
  const TrainConfig config = RandomConfig();
  config.Validate();
  TrainConfig back;
  back.micro_batch_limit = config.micro_batch_limit;  // of the preset, no key
  ApplyText(back, DumpJson(ToJsonAsGiven(config), 2), "dump");
  RC_ASSERT(back == config);

  // With the values in use, the same run.
  TrainConfig filled;
  ApplyText(filled, DumpJson(ToJson(config), 2), "dump");
  filled.Validate();
  RC_ASSERT(ToJson(filled) == ToJson(config));
}

RC_GTEST_PROP(TrainConfig, TheMicroBatchAlwaysDividesTheBatch, ()) {
  TrainConfig config;
  config.batch = *rc::gen::inRange<int64_t>(1, 5000);
  config.micro_batch_limit = *rc::gen::inRange<int64_t>(1, 64);
  RC_ASSERT(config.batch % config.MicroBatch() == 0);
  RC_ASSERT(config.MicroBatch() <= config.micro_batch_limit);
  for (int64_t larger = config.MicroBatch() + 1; larger <= std::min(config.batch, config.micro_batch_limit);
       ++larger)
    RC_ASSERT(config.batch % larger != 0);
}

}  // namespace
}  // namespace normlab
