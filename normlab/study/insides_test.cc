#include "normlab/study/insides.h"

#include <cmath>

#include <gtest/gtest.h>

#include "normlab/base/testing/files.h"
#include "normlab/study/export.h"
#include "normlab/study/testing/fake_study.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

SpikeRecord Spike(int64_t step, std::optional<int64_t> recovered_after) {
  return {.loss = {.step = step, .loss = 3, .before = 2.5, .peak = 3.25, .recovered_after = recovered_after},
          .moved = {{"update_norm", "trf_blocks.0.att.W_query.weight", step - 3, 2},
                    {"gradient_norm", "trf_blocks.1.att.W_query.weight", step, 7}}};
}

Json Summary(std::initializer_list<Json> mean_shares) {
  Json json = {{"step", 10}, {"norms", Json::array()}};
  for (const Json& share : mean_shares) json["norms"].push_back({{"site", "x"}, {"mean_share", share}});
  return json;
}

// Two variants with three seeds each; the second seed of the second diverged, and the third is missing. R-15:
// spikes in the second.
struct Fake {
  Fake() {
    plan = MakePlan(FakeRequest("layernorm,no_norm", {1, 2, 3}));
    for (const GridCell& place : CellOrder(2, 3)) {
      Cell cell{.variant = place.variant, .seed = place.seed};
      const TrainConfig config = CellConfig(plan.variants[place.variant].variant, plan.seeds[place.seed]);
      RunRecord record = FakeRecord(config, 3 + 0.01 * static_cast<double>(place.seed));
      record.inside = Summary({0.01, 0.03, nullptr});
      if (place.variant == 1) {
        record = place.seed == 1 ? FakeDivergence(config) : record;
        record.inside = Summary({place.seed == 1 ? 0.9 : 0.5});  // the end of a run that diverged is no end
        record.spikes = {Spike(103, 9),
                         Spike(200, place.seed == 1 ? std::nullopt : std::optional<int64_t>(4))};
      }
      if (place.variant == 0 || place.seed != 2) TakeRecord(cell, record);
      cells.push_back(std::move(cell));
    }
  }
  StudyPlan plan;
  std::vector<Cell> cells;
};

TEST(Insides, SpikesAreCountedOverTheFinishedSeedsOfAVariant) {
  const Fake fake;
  const SpikeSummary none = SummarizeSpikes(fake.cells, 0), some = SummarizeSpikes(fake.cells, 1);
  EXPECT_EQ(none.runs, 3u);
  EXPECT_EQ(none.spikes, 0u);
  EXPECT_FALSE(none.median_recovery.has_value());
  EXPECT_EQ(some.runs, 2u);
  EXPECT_EQ(some.runs_with_spikes, 2u);
  EXPECT_EQ(some.spikes, 4u);
  EXPECT_EQ(some.not_recovered, 1u);
  EXPECT_EQ(some.median_recovery, 9);  // of 4, 9, 9
}

TEST(Insides, TheMeanShareIsTheMedianOverSitesAndSeeds) {
  const Fake fake;
  EXPECT_DOUBLE_EQ(*MedianMeanShare(fake.cells, 0), 0.02);
  EXPECT_DOUBLE_EQ(*MedianMeanShare(fake.cells, 1), 0.5);
  EXPECT_FALSE(MedianMeanShare(RunRecord{}).has_value());
}

TEST(Insides, TheTableSaysWhatThereIsToCentreAndWhatMovedFirst) {
  const Fake fake;
  const std::string text = InsidesText(Evaluate(fake.plan, fake.cells), 10'000);
  EXPECT_SAYS(text, {"layernorm 2%, no_norm 50%",
                     "Loss spikes of no_norm: 4 in 2 of 2 runs, over after 9 steps (median), 1 not over",
                     "First: seed 1, step 103: loss 2.5000 to 3.2500; update_norm of "
                     "trf_blocks.0.att.W_query.weight moved first, at step 100 (x2.0); over after 9 steps"});
  EXPECT_NE(ResultsText(Evaluate(fake.plan, fake.cells)).find("To centre"), std::string::npos);
  EXPECT_EQ(InsidesText(StudyResults{}, 80), "");
}

TEST(Insides, ResultsJsonHoldsSpikesAndTheLastSample) {
  const Fake fake;
  const Json json = ResultsJson(Evaluate(fake.plan, fake.cells));
  EXPECT_EQ(json["variants"][1]["spikes"]["count"], 4);
  EXPECT_EQ(json["variants"][1]["spikes"]["median_recovery"], 9);
  EXPECT_DOUBLE_EQ(json["variants"][0]["median_mean_share"].get<double>(), 0.02);
  for (const Json& cell : json["cells"]) {
    if (cell["status"] == "missing") {
      EXPECT_TRUE(cell["spikes"].is_null() && cell["inside"].is_null());
      continue;
    }
    EXPECT_EQ(cell["inside"]["step"], 10);
    EXPECT_EQ(cell["spikes"].size(), cell["variant"] == "no_norm" ? 2u : 0u);
  }
}

TEST(Insides, ARunWhoseLossStayedAboveItsStartCountsAsDiverged) {
  RunRecord record = FakeRecord({}, 3);
  record.loss_above_start_since = 12;
  Cell cell;
  TakeRecord(cell, record);
  EXPECT_EQ(cell.status, CellStatus::kDiverged);
  EXPECT_SAYS(cell.reason, {"above", "first step", "from step 12 on"});
}

}  // namespace
}  // namespace normlab
