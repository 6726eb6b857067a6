// The names of norms: every one parses back to itself, the article's names are known, a wrong one is named.

#include "normlab/norms/norm_type.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {

TEST(NormType, EveryKnownNameParsesBackToItself) {
  const std::vector<std::string> names = KnownNormTypes();
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) EXPECT_EQ(Name(ParseNormType(name)), name);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(NormType, EveryNormHasAPlainNameThatMeansTheFastest) {
  for (const NormInfo& info : AllNorms::kInfos) {
    EXPECT_EQ(ParseNormType(info.name), (NormType{info.kind, NormImplementation::kFastest})) << info.name;
    EXPECT_EQ(InfoOf(info.kind).name, info.name);
  }
}

TEST(NormType, TheFiveNormsOfTheArticleAreKnown) {
  using enum NormImplementation;
  EXPECT_EQ(ParseNormType("handrolled_layernorm"), (NormType{KindOf<LayerNorm>(), kHandrolled}));
  EXPECT_EQ(ParseNormType("fused_layernorm"), (NormType{KindOf<LayerNorm>(), kFused}));
  EXPECT_EQ(ParseNormType("handrolled_rmsnorm"), (NormType{KindOf<RmsNorm>(), kHandrolled}));
  EXPECT_EQ(ParseNormType("fused_rmsnorm"), (NormType{KindOf<RmsNorm>(), kFused}));
  EXPECT_EQ(ParseNormType("no_norm").kind, KindOf<NoNorm>());
}

TEST(NormType, TheArticlesPytorchNamesMeanFused) {
  EXPECT_EQ(ParseNormType("pytorch_layernorm"), ParseNormType("fused_layernorm"));
  EXPECT_EQ(ParseNormType("pytorch_rmsnorm"), ParseNormType("fused_rmsnorm"));
  const std::vector<std::string> names = KnownNormTypes();
  EXPECT_EQ(std::count(names.begin(), names.end(), "pytorch_layernorm"), 0);  // an alias, not listed
}

TEST(NormType, AnUnknownNameIsRefusedWithTheNearest) {
  try {
    (void)ParseNormType("rmsnrm");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"rmsnrm\""), std::string::npos) << message;
    EXPECT_NE(message.find("did you mean \"rmsnorm\"?"), std::string::npos) << message;
    // No name that nothing computes: dyt has no fused kernel.
    EXPECT_EQ(message.find("fused_dyt"), std::string::npos) << message;
    EXPECT_NE(message.find(
                  "dyt, no_norm; who computes it may stand before: fused_, library_, generic_, handrolled_"),
              std::string::npos)
        << message;
  }
  for (const char* name :
       {"", "layer_norm", "fused_", "fused_no_norm", "pytorch_", "Layernorm", "fused_layernorm "})
    EXPECT_THROW((void)ParseNormType(name), Error) << name;
}

}  // namespace
}  // namespace normlab
