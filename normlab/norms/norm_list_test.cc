// The list of norms.

#include "normlab/norms/norm_list.h"

#include <set>

#include <gtest/gtest.h>

namespace normlab {
namespace {

TEST(NormList, KindsAndNamesAreUnique) {
  std::set<NormKind> kinds;
  std::set<std::string_view> names;
  for (const NormInfo& info : AllNorms::kInfos) kinds.insert(info.kind), names.insert(info.name);
  EXPECT_EQ(kinds.size(), AllNorms::kInfos.size());
  EXPECT_EQ(names.size(), AllNorms::kInfos.size());
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
