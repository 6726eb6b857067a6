#include "normlab/study/report/heat_map.h"

#include <cmath>

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace normlab {
namespace {

std::string Line(int step, const std::string& rms) {
  return fmt::format(
      R"({{"step": {0}, "norms": [{{"site": "trf_blocks.0.norm1", "input": {{"rms": {1}, "max": 3, "kurtosis": 3.5,)"
      R"("mean_share": 0.1}}, "output": {{"rms": 1}}}}, {{"site": "final_norm", "input": {{"rms": {0}}}}}],)"
      R"("tensors": [{{"name": "tok_emb.weight", "weight_norm": 2, "gradient_norm": 5, "update_norm": 0.5,)"
      R"("update_ratio": 0.25}}, {{"name": "trf_blocks.0.att.W_query.weight", "weight_norm": 3,)"
      R"("gradient_norm": 3, "update_norm": 0}}, {{"name": "out_head.weight", "gradient_norm": 1}},)"
      R"({{"name": "trf_blocks.0.norm1.scale", "weight_norm": 4, "gradient_norm": 4, "update_norm": 1}}]}})"
      "\n",
      step, rms);
}

const HeatMap& Find(const std::vector<HeatMap>& maps, const std::string& quantity) {
  for (const HeatMap& map : maps)
    if (map.quantity == quantity) return map;
  ADD_FAILURE() << "no " << quantity;
  return maps.front();
}

TEST(HeatMapTest, SitesAndLayersAreRowsAndLoggedStepsColumns) {
  const std::vector<HeatMap> maps = HeatMaps(Line(50, "1.5") + Line(100, "\"nan\""));
  const HeatMap& rms = Find(maps, "input_rms");
  EXPECT_EQ(rms.rows, (std::vector<std::string>{"trf_blocks.0.norm1", "final_norm"}));
  EXPECT_EQ(rms.step, (std::vector<double>{50, 100}));
  EXPECT_EQ(rms.values[0][0], 1.5);
  EXPECT_TRUE(std::isnan(rms.values[0][1]));
  EXPECT_EQ(rms.values[1], (std::vector<double>{50, 100}));
  EXPECT_EQ(Find(maps, "input_kurtosis").rows.size(), 1u);

  // A layer's tensors count together, wherever they stand in the line.
  const HeatMap& gradient = Find(maps, "gradient_norm");
  EXPECT_EQ(gradient.rows, (std::vector<std::string>{"tok_emb", "block 0", "out_head"}));
  EXPECT_DOUBLE_EQ(gradient.values[1][0], 5);
  const HeatMap& update = Find(maps, "update_ratio");
  EXPECT_EQ(update.rows, (std::vector<std::string>{"tok_emb", "block 0"}));
  EXPECT_DOUBLE_EQ(update.values[0][0], 0.25);
  EXPECT_DOUBLE_EQ(update.values[1][0], 0.2);
}

TEST(HeatMapTest, ManyStepsKeepTheGreatestOfEachColumn) {
  std::string lines;
  for (int step = 1; step <= 1000; ++step)
    lines += Line(step, step == 543 ? "77" : step == 999 ? "\"inf\"" : "1");
  const HeatMap rms = Find(HeatMaps(lines, 10), "input_rms");
  ASSERT_EQ(rms.step.size(), 10u);
  EXPECT_EQ(rms.step[0], 1);
  EXPECT_EQ(rms.step[5], 501);
  EXPECT_EQ(rms.values[0][4], 1);
  EXPECT_EQ(rms.values[0][5], 77);
  EXPECT_TRUE(std::isinf(rms.values[0][9]));
}

TEST(HeatMapTest, JsonTellsNotLoggedFromNotFinite) {
  const std::vector<HeatMap> maps =
      HeatMaps(Line(1, "null") + "half a li" + "\n" + Line(2, "\"nan\"") + Line(3, "2"));
  const Json json = HeatMapsJson(maps);
  EXPECT_EQ(json[0]["quantity"], "input_rms");
  EXPECT_EQ(DumpJson(json[0]["values"][0]), "[1.0,2.0,3.0]");  // final_norm came first
  EXPECT_EQ(DumpJson(json[0]["values"][1]), "[null,\"nan\",2.0]");
  EXPECT_TRUE(HeatMaps("").empty());
}

}  // namespace
}  // namespace normlab
