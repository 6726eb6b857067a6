// The names of norms: every one parses back to itself, the article's names are known, a wrong one is named.

#include "normlab/norms/norm_list.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "normlab/base/error.h"

namespace normlab {
namespace {

TEST(NormList, EveryKnownNameParsesBackToItself) {
  const std::vector<std::string> names = KnownNormTypes();
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) EXPECT_EQ(Name(ParseNormType(name)), name);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(NormList, EveryNormHasAPlainNameThatMeansTheFastest) {
  for (const NormInfo& info : AllNorms::kInfos) {
    EXPECT_EQ(ParseNormType(info.name), (NormType{info.kind, NormImplementation::kFastest})) << info.name;
    EXPECT_EQ(InfoOf(info.kind).name, info.name);
  }
}

TEST(NormList, KindsAndNamesAreUnique) {
  std::set<NormKind> kinds;
  std::set<std::string_view> names;
  for (const NormInfo& info : AllNorms::kInfos) kinds.insert(info.kind), names.insert(info.name);
  EXPECT_EQ(kinds.size(), AllNorms::kInfos.size());
  EXPECT_EQ(names.size(), AllNorms::kInfos.size());
}

TEST(NormList, TheFiveNormsOfTheArticleAreKnown) {
  using enum NormImplementation;
  EXPECT_EQ(ParseNormType("handrolled_layernorm"), (NormType{KindOf<LayerNorm>(), kHandrolled}));
  EXPECT_EQ(ParseNormType("fused_layernorm"), (NormType{KindOf<LayerNorm>(), kFused}));
  EXPECT_EQ(ParseNormType("handrolled_rmsnorm"), (NormType{KindOf<RmsNorm>(), kHandrolled}));
  EXPECT_EQ(ParseNormType("fused_rmsnorm"), (NormType{KindOf<RmsNorm>(), kFused}));
  EXPECT_EQ(ParseNormType("no_norm").kind, KindOf<NoNorm>());
}

TEST(NormList, TheArticlesPytorchNamesMeanFused) {
  EXPECT_EQ(ParseNormType("pytorch_layernorm"), ParseNormType("fused_layernorm"));
  EXPECT_EQ(ParseNormType("pytorch_rmsnorm"), ParseNormType("fused_rmsnorm"));
  const std::vector<std::string> names = KnownNormTypes();
  EXPECT_EQ(std::count(names.begin(), names.end(), "pytorch_layernorm"), 0);  // an alias, not listed
}

TEST(NormList, AnUnknownNameIsRefusedWithTheNearest) {
  try {
    (void)ParseNormType("rmsnrm");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"rmsnrm\""), std::string::npos) << message;
    EXPECT_NE(message.find("did you mean \"rmsnorm\"?"), std::string::npos) << message;
  }
  for (const char* name :
       {"", "layer_norm", "fused_", "fused_no_norm", "pytorch_", "Layernorm", "fused_layernorm "})
    EXPECT_THROW((void)ParseNormType(name), Error) << name;
}

TEST(NormList, VisitCallsTheNormOfTheKind) {
  for (const NormInfo& info : AllNorms::kInfos)
    EXPECT_EQ(AllNorms::Visit(info.kind, [](auto norm) { return decltype(norm)::kInfo.name; }), info.name);
}

// N-08: one default eps per norm, whatever the storage type, and the spec of a site starts with it.
TEST(NormList, TheDefaultEpsIsOneNumber) {
  for (const NormInfo& info : AllNorms::kInfos) EXPECT_EQ(info.default_eps, NormSpec{}.eps) << info.name;
  EXPECT_EQ(NormSpec{}.eps, 1e-5);
}

}  // namespace
}  // namespace normlab
