#include "normlab/study/step_duel.h"

#include <gtest/gtest.h>

#include <string>

#include "normlab/base/testing/files.h"
#include "normlab/train/memory_plan.h"

namespace normlab {
namespace {

Grid SmallGrid(const std::string& norms) {
  TrainConfig base;
  base.model.emb_dim = 16;
  base.model.n_heads = 2;
  base.model.n_layers = 1;
  base.model.context_length = 8;
  base.batch = 2;
  const std::vector<VariedKey> keys = {ParseVariedKey("norm_type=" + norms)};
  return MakeGrid(base, keys);
}

std::shared_ptr<const TokenSource> Tokens() {
  std::vector<int32_t> ids(4000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 251);
  return TokensFromIds(std::move(ids),
                       {.tokenizer = "test", .tokenizer_hash = "", .vocab_size = 256, .data_hash = ""});
}

bool Always(const DuelProgress&) { return true; }

TEST(StepDuelTest, StepsOfAllVariantsAreTimedAndTheirMemoryIsCounted) {
  StepDuel duel(SmallGrid("layernorm,no_norm").variants, Tokens(), 1);
  const size_t bytes = duel.RequireMemory(std::nullopt);
  const DuelRecord record = duel.Run({.batches = 6, .pilot_rounds = 2, .seconds = 0.5}, Always);
  EXPECT_EQ(record.settings.contenders, 2u);
  EXPECT_FALSE(record.result.stopped);
  EXPECT_GT(record.result.rounds(), 0u);
  EXPECT_EQ(record.contenders[0].norm_implementation, "fused");
  EXPECT_EQ(record.contenders[1].name, "no_norm");
  EXPECT_EQ(record.contenders[0].tokens_per_step, 16);
  EXPECT_EQ(record.contenders[0].peak_bytes + record.contenders[1].peak_bytes, bytes);
  EXPECT_LT(record.contenders[1].peak_bytes,
            record.contenders[0].peak_bytes);  // it has no statistics to keep
  EXPECT_FALSE(record.contenders[0].config.contains("seed"));
  EXPECT_GE(record.steps_per_block, 1);

  const std::vector<StepBound> bounds = duel.Bounds(1e9, false);
  EXPECT_FALSE(bounds[0].products_s);
  EXPECT_GT(bounds[0].bytes, bounds[1].bytes);
}

TEST(StepDuelTest, AStopEndsIt) {
  StepDuel duel(SmallGrid("layernorm,no_norm").variants, Tokens(), 1);
  const DuelRecord record = duel.Run({.seconds = 1}, [](const DuelProgress&) { return false; });
  EXPECT_TRUE(record.result.stopped);
  EXPECT_EQ(record.result.rounds(), 0u);
}

TEST(StepDuelTest, VariantsThatDoNotFitSideBySideAreRefusedWithBothNumbers) {
  const StepDuel duel(SmallGrid("layernorm,no_norm").variants, Tokens(), 1);
  const MemoryPlan one = PlanMemory(duel.variants()[0].config, {.threads = 1});
  const AvailableMemory room_for_one{.bytes = one.total() + (size_t{1} << 10), .limit = "the test"};
  EXPECT_SAYS(testing::ErrorOf([&] { duel.RequireMemory(room_for_one); }),
              {"2 variants side by side", "the test leaves", "MiB"});
}

TEST(StepDuelTest, AVariantThatDivergesIsNamed) {
  Grid grid = SmallGrid("layernorm,no_norm");
  grid.variants[1].config.learning_rate = 1e30;
  grid.variants[1].config.warmup_fraction = 0;
  grid.variants[1].config.grad_clip = 0;
  StepDuel duel(grid.variants, Tokens(), 1);
  EXPECT_SAYS(testing::ErrorOf([&] { duel.Run({.seconds = 1}, Always); }), {"no_norm diverged"});
}

TEST(StepDuelTest, AVariantWithoutANameHasThatOfItsNorm) {
  Grid grid = SmallGrid("rmsnorm,layernorm");
  grid.variants.resize(1);
  grid.variants[0].name.clear();
  EXPECT_EQ(StepDuel(grid.variants, Tokens(), 1).variants()[0].name, grid.variants[0].config.model.norm_type);
}

}  // namespace
}  // namespace normlab
