#include "normlab/study/grid.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "normlab/base/error.h"

namespace normlab {
namespace {

TrainConfig SmallModel() {
  TrainConfig config;
  config.model.emb_dim = 8;
  config.model.n_heads = 2;
  config.model.n_layers = 1;
  return config;
}

Grid GridOf(const std::vector<std::string>& texts) {
  std::vector<VariedKey> keys;
  for (const std::string& text : texts) keys.push_back(ParseVariedKey(text));
  return MakeGrid(SmallModel(), keys);
}

std::vector<std::string> NamesOf(const Grid& grid) {
  std::vector<std::string> names;
  for (const Variant& variant : grid.variants) names.push_back(variant.name);
  return names;
}

template <class F>
std::string MessageOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GridTest, NormsAloneGiveTheirNames) {
  EXPECT_EQ(NamesOf(GridOf({"norm_type=handrolled_layernorm,fused_rmsnorm,no_norm"})),
            (std::vector<std::string>{"handrolled_layernorm", "fused_rmsnorm", "no_norm"}));
}

TEST(GridTest, SeveralKeysMakeEveryCombination) {
  const Grid grid = GridOf({"norm_type=layernorm,rmsnorm", "learning_rate=0.001,0.002"});
  EXPECT_EQ(NamesOf(grid),
            (std::vector<std::string>{
                "norm_type=layernorm,learning_rate=0.001", "norm_type=layernorm,learning_rate=0.002",
                "norm_type=rmsnorm,learning_rate=0.001", "norm_type=rmsnorm,learning_rate=0.002"}));
  EXPECT_EQ(grid.variants[3].config.learning_rate, 0.002);
  EXPECT_EQ(grid.variants[3].config.model.norm_type, "rmsnorm");
}

TEST(GridTest, AVariantNamedTwiceIsUsedOnceAndSaidSo) {
  const Grid grid = GridOf({"norm_type=fused_layernorm,pytorch_layernorm,fused_layernorm,no_norm"});
  EXPECT_EQ(NamesOf(grid), (std::vector<std::string>{"fused_layernorm", "no_norm"}));
  ASSERT_EQ(grid.notes.size(), 2u);
  EXPECT_EQ(grid.notes[0], "pytorch_layernorm is the same as fused_layernorm, named before: dropped");
  EXPECT_EQ(grid.notes[1], "fused_layernorm is named twice: used once");
}

TEST(GridTest, CountsParametersOfEachVariant) {
  const Grid grid = GridOf({"norm_type=layernorm,rmsnorm,no_norm"});
  EXPECT_EQ(grid.variants[0].norm_parameters, 3 * 2 * 8);
  EXPECT_EQ(grid.variants[1].norm_parameters, 3 * 8);
  EXPECT_EQ(grid.variants[2].norm_parameters, 0);
  EXPECT_EQ(grid.variants[0].parameters - grid.variants[2].parameters, 3 * 2 * 8);
}

TEST(GridTest, RefusesWhatCannotVary) {
  EXPECT_NE(MessageOf([] { GridOf({"seed=1,2"}); }).find("--seeds"), std::string::npos);
  EXPECT_NE(MessageOf([] { GridOf({"held_out_fraction=0.1,0.2"}); }).find("same text"), std::string::npos);
  EXPECT_NE(MessageOf([] {
              GridOf({"norm_type=layernorm", "norm_type=rmsnorm"});
            }).find("twice"),
            std::string::npos);
  EXPECT_NE(MessageOf([] { GridOf({"norm_tipe=layernorm"}); }).find("norm_type"), std::string::npos);
  EXPECT_NE(MessageOf([] { GridOf({"norm_type=rmsnrm"}); }).find("\"rmsnorm\""), std::string::npos);
  EXPECT_NE(MessageOf([] { GridOf({"n_heads=2,3"}); }).find("variant n_heads=3"), std::string::npos);
}

TEST(GridTest, ParsesValuesAndRefusesEmptyOnes) {
  EXPECT_EQ(ParseVariedKey("norm_eps=1e-5,null").values, (std::vector<Json>{1e-5, nullptr}));
  EXPECT_EQ(ParseVariedKey("norm_type=[\"a\",\"b\"]").values, (std::vector<Json>{"a", "b"}));
  for (const char* bad : {"norm_type", "norm_type=", "=a", "norm_type=a,,b", "norm_type=a,", "norm_type=[]"})
    EXPECT_THROW(ParseVariedKey(bad), UsageError) << bad;
}

TEST(GridTest, ParsesSeedsAndRefusesRepeats) {
  EXPECT_EQ(ParseSeeds("1,2,7"), (std::vector<uint64_t>{1, 2, 7}));
  EXPECT_EQ(ParseSeeds("0"), (std::vector<uint64_t>{0}));
  for (const char* bad : {"", "1,", "1,1", "-1", "a", "1.5", "1 ", "99999999999999999999"})
    EXPECT_THROW(ParseSeeds(bad), UsageError) << bad;
}

// Over one round of seeds (two where the number of variants is odd) every variant stands equally often at
// every place, and after every other variant.
TEST(GridTest, OrderIsBalancedInPlacesAndPredecessors) {
  for (size_t variants = 2; variants <= 7; ++variants) {
    const size_t seeds = variants % 2 == 0 ? variants : 2 * variants;
    const std::vector<GridCell> order = CellOrder(variants, seeds);
    ASSERT_EQ(order.size(), variants * seeds);
    std::map<std::pair<size_t, size_t>, size_t> places, followers;
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(order[i].seed, i / variants);  // seed by seed
      ++places[{order[i].variant, i % variants}];
      if (i % variants > 0) ++followers[{order[i - 1].variant, order[i].variant}];
    }
    EXPECT_EQ(places.size(), variants * variants) << variants;
    for (const auto& [place, count] : places) EXPECT_EQ(count, seeds / variants) << variants;
    EXPECT_EQ(followers.size(), variants * (variants - 1)) << variants;
    for (const auto& [pair, count] : followers) EXPECT_EQ(count, seeds / variants) << variants;
  }
}

TEST(GridTest, MoreSeedsDoNotMoveTheCellsBefore) {
  const std::vector<GridCell> few = CellOrder(5, 3), more = CellOrder(5, 8);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), more.begin()));
}

}  // namespace
}  // namespace normlab
