#include "normlab/model/config.h"

#include <gtest/gtest.h>

#include "normlab/base/testing/files.h"
#include "normlab/norms/norm_list.h"
#include "normlab/norms/norm_type.h"

namespace normlab {
namespace {

using testing::ErrorOf;

GptConfig Read(const std::string& text) { return GptConfigFromJson(ParseJson(text, "gpt.json"), "gpt.json"); }

TEST(GptConfig, DefaultsAreTheTinyPreset) {
  const GptConfig config;
  EXPECT_NO_THROW(config.Validate());
  EXPECT_EQ(
      DumpJson(ToJson(config)),
      R"({"vocab_size":256,"context_length":256,"emb_dim":128,"n_heads":4,"n_layers":4,"drop_rate":0.0,)"
      R"("qkv_bias":false,"tie_weights":false,"norm_type":"handrolled_layernorm","norm_eps":1e-05,)"
      R"("norm_gain":true,"norm_bias":true,"norm_weight_offset":0.0,"norm_fraction":0.0625,)"
      R"("norm_alpha_init":0.5,"norm_cast":"after_gain","norm_position":"pre","final_norm":true})");
}

TEST(GptConfig, ReadsTheArticlesKeys) {
  const GptConfig config =
      Read(R"({"vocab_size": 50257, "context_length": 1024, "emb_dim": 768, "n_heads": 12,
                                    "n_layers": 12, "drop_rate": 0.0, "qkv_bias": false,  // none
                                    "norm_type": "pytorch_rmsnorm"})");
  EXPECT_EQ(config.vocab_size, 50257);
  EXPECT_EQ(config.head_dim(), 64);
  EXPECT_EQ(config.feed_forward_dim(), 3072);
  EXPECT_EQ(config.norm_type, "fused_rmsnorm");
  EXPECT_EQ(config.Norm().kind, KindOf<RmsNorm>());
  EXPECT_EQ(config.Norm().implementation, NormImplementation::kFused);
}

TEST(GptConfig, ADumpReadsBack) {
  GptConfig config;
  config.n_heads = 8;
  config.qkv_bias = true;
  config.tie_weights = true;
  config.norm_type = "no_norm";
  config.norm_eps = 1e-6;
  config.norm_gain = false;
  config.norm_bias = false;
  config.norm_weight_offset = 1;
  config.norm_fraction = 0.25;
  config.norm_alpha_init = 1.5;
  config.norm_cast = "before_gain";
  config.norm_position = "post";
  config.final_norm = false;
  EXPECT_EQ(GptConfigFromJson(ToJson(config), "test"), config);
}

TEST(GptConfig, EveryNormTypeIsAcceptedWithItsOwnEps) {
  for (const std::string& name : KnownNormTypes()) {
    GptConfig config;
    config.norm_type = name;
    EXPECT_NO_THROW(config.Validate()) << name;
    EXPECT_EQ(config.Norm().eps, InfoOf(config.Norm().kind).default_eps) << name;
    config.norm_eps = 0.5;
    EXPECT_EQ(config.Norm().eps, 0.5);
  }
}

TEST(GptConfig, PositionsAreNamed) {
  EXPECT_EQ(Read(R"({"norm_position": "post"})").position(), NormPosition::kPost);
  EXPECT_EQ(GptConfig{}.position(), NormPosition::kPre);
  EXPECT_SAYS(ErrorOf([] { Read(R"({"norm_position": "psot"})"); }),
              {"unknown norm_position \"psot\"", "\"post\""});
}

TEST(GptConfig, RefusesWhatCannotBeBuilt) {
  EXPECT_SAYS(ErrorOf([] { Read(R"({"emb_dim": 100, "n_heads": 3})"); }),
              {"gpt.json: ", "emb_dim = 100", "n_heads = 3", "multiple", "for example 102"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"n_layers": 0})"); }), {"n_layers = 0", "from 1"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"emb_dim": -128})"); }), {"emb_dim = -128"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"drop_rate": 0.1})"); }),
              {"drop_rate = 0.1", "must be 0, since dropout is not there yet"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"norm_type": "rmsnrm"})"); }),
              {"unknown norm_type \"rmsnrm\"; did you mean \"rmsnorm\"?"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"norm_eps": -1e-5})"); }), {"norm_eps = -1e-05", "0 to 1"});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"norm_eps": "nan"})"); }), {"norm_eps = \"nan\""});
  EXPECT_SAYS(ErrorOf([] { Read(R"({"n_head": 4})"); }), {"did you mean \"n_heads\"?"});
}

TEST(GptConfig, ValidateChecksValuesThatAProgramSet) {
  GptConfig config;
  config.n_heads = 0;
  EXPECT_SAYS(ErrorOf([&] { config.Validate(); }), {"n_heads = 0"});
  config = {};
  config.norm_type = "batchnorm";
  EXPECT_THROW(config.Validate(), Error);
  config = {};
  config.drop_rate = 0.2;
  EXPECT_THROW(config.Validate(), Error);
}

}  // namespace
}  // namespace normlab
