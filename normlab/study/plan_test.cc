#include "normlab/study/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "normlab/base/testing/files.h"
#include "normlab/study/export.h"
#include "normlab/study/testing/fake_study.h"

namespace normlab {
namespace {

using testing::ErrorOf;
using testing::Says;

// S-12: two norms at two learning rates.
StudyRequest GridRequest(std::vector<uint64_t> seeds = {1, 2, 3}) {
  StudyRequest request = FakeRequest("layernorm,rmsnorm", std::move(seeds));
  TrainConfig base = request.grid.variants[0].config;
  const std::vector<VariedKey> keys = {ParseVariedKey("norm_type=layernorm,rmsnorm"),
                                       ParseVariedKey("learning_rate=0.001,0.002")};
  request.grid = MakeGrid(base, keys);
  request.norm_implementations.assign(4, "fused");
  return request;
}

StudyRequest AaRequest(const std::string& norms, size_t seeds, const std::string& side = "") {
  StudyRequest request = FakeRequest(norms, {});
  request.grid = AaGrid(std::move(request.grid), side);
  request.norm_implementations.assign(2, "fused");
  request.seeds = std::vector<uint64_t>();
  for (uint64_t seed = 1; seed <= seeds; ++seed) request.seeds->push_back(seed);
  request.aa = true;
  return request;
}

std::vector<Cell> CellsOf(const StudyPlan& plan, auto&& loss) {
  std::vector<Cell> cells;
  for (const GridCell& place : CellOrder(plan.variants.size(), plan.seeds.size())) {
    Cell cell{.variant = place.variant, .seed = place.seed};
    const TrainConfig config =
        CellConfig(plan.variants[place.variant].variant, plan.Seed(place.variant, place.seed));
    TakeRecord(cell, FakeRecord(config, loss(place.variant, place.seed)));
    cells.push_back(std::move(cell));
  }
  return cells;
}

TEST(PlanTest, ARecordWithADamagedKeyIsRefusedAndHarmsNothing) {
  const Json good = ToJson(MakePlan(FakeRequest("layernorm,rmsnorm", {1, 2})));
  const auto read = [](const Json& json) { return StudyPlanFromJson(json, "study.json"); };
  read(good);
  const auto damage = [&](const Json::json_pointer& parent) {
    for (const auto& [key, value] : good.at(parent).items()) {
      SCOPED_TRACE(key);
      Json without = good;
      without[parent].erase(key);
      const std::set<std::string> optional = {"within", "aa", "order"};  // `order` is for readers
      if (!optional.contains(key) && !(parent.to_string() == "/variants/0" && key == "seeds")) {
        EXPECT_THROW(read(without), Error);
      }
      for (const Json& other : {Json(-1), Json("nan"), Json::array({"x", 1})}) {
        Json wrong = good;
        wrong[parent][key] = other;
        try {
          read(wrong);
        } catch (const Error&) {
        }
      }
    }
  };
  damage(Json::json_pointer("/variants/0"));
  damage(Json::json_pointer(""));
  damage(Json::json_pointer("/history/0"));
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{{"alpha", 0},
                                                                                      {"alpha", 2},
                                                                                      {"alpha", "nan"},
                                                                                      {"margin_nats", -1},
                                                                                      {"speed_margin", "nan"},
                                                                                      {"looks", 0},
                                                                                      {"data", nullptr},
                                                                                      {"seeds", {1, 1, 2}}}) {
    Json wrong = good;
    wrong[key] = value;
    EXPECT_THROW(read(wrong), Error) << key;
  }
}

TEST(WithinTest, AVariantIsComparedWithTheBaselineOfItsGroup) {
  StudyRequest request = GridRequest();
  request.within = {"learning_rate"};
  const StudyPlan plan = MakePlan(request);
  EXPECT_EQ(plan.comparisons(), 2u);
  EXPECT_EQ(plan.BaselineOf(0), 0u);  // layernorm, 0.001
  EXPECT_EQ(plan.BaselineOf(1), 1u);  // layernorm, 0.002
  EXPECT_EQ(plan.BaselineOf(2), 0u);
  EXPECT_EQ(plan.BaselineOf(3), 1u);

  // The rates differ by 1 nat, the norms by 0.1: the comparison sees the norms alone, and K is 2.
  const StudyResults results = Evaluate(plan, CellsOf(plan, [](size_t variant, size_t seed) {
                                          return 3.0 + 1.0 * double(variant % 2) + 0.1 * double(variant / 2) +
                                                 0.01 * double(seed) + 0.001 * double((variant + seed) % 2);
                                        }));
  ASSERT_EQ(results.comparisons.size(), 2u * 4);
  for (const size_t variant : {2, 3}) {
    const MetricComparison& loss = *results.Find(variant, Metric::kTestLoss);
    EXPECT_NEAR(*loss.result.difference, 0.1, 0.002);
    EXPECT_EQ(loss.rule.variants, 2);
    EXPECT_EQ(loss.result.n, 3u);
  }
  EXPECT_EQ(results.Find(1, Metric::kTestLoss), nullptr);
  const Json json = ResultsJson(results);
  EXPECT_EQ(json["study"]["within"], Json::array({"learning_rate"}));
  EXPECT_EQ(json["comparisons"][1]["baseline"], "norm_type=layernorm,learning_rate=0.002");
  EXPECT_TRUE(Says(ResultsText(results, 500),
                   {"Baseline within each learning_rate: norm_type=layernorm.", "over 2 comparisons"}));
}

TEST(WithinTest, KeysThatDoNotVaryOrLeaveNothingAreRefused) {
  const auto refusal = [](std::vector<std::string> keys) {
    StudyRequest request = GridRequest();
    request.within = std::move(keys);
    return ErrorOf([&] { MakePlan(request); });
  };
  EXPECT_TRUE(Says(refusal({"norm_eps"}), {"norm_eps", "does not vary", "norm_type, learning_rate"}));
  EXPECT_TRUE(Says(refusal({"learning_rate", "learning_rate"}), {"twice"}));
  EXPECT_TRUE(Says(refusal({"learning_rate", "norm_type"}), {"nothing to compare"}));
}

TEST(WithinTest, IsDeclaredAndComesBackFromStudyJson) {
  StudyRequest request = GridRequest();
  request.within = {"learning_rate"};
  const StudyPlan plan = StudyPlanFromJson(ToJson(MakePlan(request)), "study.json");
  EXPECT_EQ(plan.within, std::vector<std::string>{"learning_rate"});
  request.within.reset();  // not said again: stays
  EXPECT_EQ(ExtendPlan(plan, request, true, "study").within, plan.within);
  request.within = {"norm_type"};
  EXPECT_TRUE(Says(ErrorOf([&] { ExtendPlan(plan, request, true, "study"); }), {"--within learning_rate"}));
}

TEST(AaTest, TheGridHasOneVariantTwice) {
  const Grid grid = AaGrid(FakeRequest("layernorm,rmsnorm,no_norm", {1}).grid, "rmsnorm");
  ASSERT_EQ(grid.variants.size(), 2u);
  EXPECT_EQ(grid.variants[0].name, "rmsnorm");
  EXPECT_EQ(grid.variants[1].name, "rmsnorm'");
  EXPECT_EQ(ToJson(grid.variants[0].config), ToJson(grid.variants[1].config));
  EXPECT_NE(grid.notes.back().find("left out"), std::string::npos);
  EXPECT_THROW(AaGrid(FakeRequest("layernorm", {1}).grid, "rmsnrm"), Error);
}

TEST(AaTest, TheTwoSidesShareNoSeed) {
  const StudyPlan plan = MakePlan(AaRequest("layernorm", 3));
  EXPECT_EQ(plan.variants[0].seeds, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(plan.variants[1].seeds, (std::vector<uint64_t>{4, 5, 6}));
  EXPECT_EQ(plan.Seed(1, 0), 4u);
  const Json json = ToJson(plan);
  EXPECT_EQ(json["aa"], true);
  const StudyPlan again = StudyPlanFromJson(json, "study.json");
  EXPECT_EQ(again.variants[1].seeds, plan.variants[1].seeds);
  for (const Json& cell : json["order"])
    EXPECT_EQ(cell["variant"] == "layernorm'", cell["seed"].get<int>() > 3) << cell;
}

TEST(AaTest, MoreSeedsLeaveThoseThatRan) {
  const StudyPlan plan = MakePlan(AaRequest("layernorm", 3));
  const StudyPlan more = ExtendPlan(plan, AaRequest("layernorm", 5), true, "study");
  EXPECT_EQ(more.variants[0].seeds, (std::vector<uint64_t>{1, 2, 3, 7, 8}));
  EXPECT_EQ(more.variants[1].seeds, (std::vector<uint64_t>{4, 5, 6, 9, 10}));
  EXPECT_EQ(more.look(), 2);
  const StudyPlan same = ExtendPlan(more, AaRequest("layernorm", 5), true, "study");
  EXPECT_EQ(same.variants[1].seeds, more.variants[1].seeds);
  EXPECT_EQ(same.look(), 2);
  EXPECT_TRUE(
      Says(ErrorOf([&] { ExtendPlan(more, AaRequest("layernorm", 3), true, "study"); }), {"5 seeds"}));
  EXPECT_TRUE(Says(ErrorOf([&] { ExtendPlan(more, FakeRequest("layernorm,rmsnorm", {1}), true, "study"); }),
                   {"with --aa"}));
}

TEST(AaTest, AVerdictThatIsFalseIsCalledChance) {
  const StudyPlan plan = MakePlan(AaRequest("layernorm", 4));
  const double spread[] = {0.000, 0.001, 0.002, 0.001};
  const auto results = [&](double shift) {
    return Evaluate(plan, CellsOf(plan, [&](size_t variant, size_t seed) {
                      return 3.0 + 0.01 * double(seed) + double(variant) * (shift + spread[seed]);
                    }));
  };
  const StudyResults equal = results(0), shifted = results(0.3);
  EXPECT_EQ(equal.Find(1, Metric::kTestLoss)->result.verdict, stats::Verdict::kEquivalent);
  EXPECT_TRUE(
      Says(equal.Find(1, Metric::kTestLoss)->explanation, {"paired by position, with different seeds"}));
  EXPECT_EQ(shifted.Find(1, Metric::kTestLoss)->result.verdict, stats::Verdict::kWorse);
  EXPECT_TRUE(Says(shifted.Find(1, Metric::kTestLoss)->explanation,
                   {"this verdict is false: chance", "at most 5% of studies"}));
  EXPECT_EQ(ResultsJson(shifted)["study"]["aa"], true);
  EXPECT_EQ(ResultsJson(shifted)["cells"][4]["seed"], 5);
  EXPECT_TRUE(
      Says(ResultsText(shifted, 500), {"An A/A study", "1 to 4 against 5 to 8", "paired by position"}));
}

}  // namespace
}  // namespace normlab
