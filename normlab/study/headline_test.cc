#include "normlab/study/headline.h"

#include <gtest/gtest.h>

#include "normlab/study/export.h"
#include "normlab/study/testing/fake_duel.h"
#include "normlab/study/testing/fake_study.h"

namespace normlab {
namespace {

using Loss = std::function<std::optional<double>(const std::string& norm, uint64_t seed)>;

struct Fake {
  std::string norms = "layernorm,rmsnorm";
  std::vector<uint64_t> seeds = {1, 2, 3, 4, 5};
  int looks = 1, look = 1;
  size_t missing = 0;  // of the last cells
};

// With times of a step there is a duel.
StudyResults Results(const Fake& fake, const Loss& loss, const test::StubMachine& machine = {}) {
  StudyRequest request = FakeRequest(fake.norms, fake.seeds);
  request.looks = fake.looks;
  StudyPlan plan = MakePlan(request);
  plan.history.resize(static_cast<size_t>(fake.look), plan.history[0]);
  std::vector<Cell> cells;
  for (const GridCell& place : CellOrder(plan.variants.size(), plan.seeds.size())) {
    Cell cell{.variant = place.variant, .seed = place.seed};
    const Variant& variant = plan.variants[place.variant].variant;
    const uint64_t seed = plan.seeds[place.seed];
    const TrainConfig config = CellConfig(variant, seed);
    const std::optional<double> value = loss(variant.name, seed);
    if (cells.size() + fake.missing < plan.cells())
      TakeRecord(cell, value ? FakeRecord(config, *value, 2) : FakeDivergence(config));
    cells.push_back(std::move(cell));
  }
  if (machine.seconds.empty()) return Evaluate(plan, cells);
  const DuelRecord duel = test::FakeDuelOf(plan, machine);
  return Evaluate(plan, cells, &duel);
}

// Differences from layernorm of about 0 (rmsnorm) and 0.28 (no_norm); dyt is anything.
std::optional<double> Typical(const std::string& norm, uint64_t seed) {
  const double level = 3 + 0.05 * double(seed % 4), wave = double(seed % 3) - 1;
  if (norm == "rmsnorm") return level + 0.001 * wave;
  if (norm == "no_norm") return level + 0.28 + 0.01 * wave;
  if (norm == "dyt") return level + 0.02 * wave;
  return level;
}

// Without a duel nothing is said of time.
std::string LossSentence(const StudyResults& results) { return Headline(results); }

TEST(HeadlineTest, EquivalentAndWorse) {
  const StudyResults results =
      Results({.norms = "layernorm,rmsnorm,no_norm", .seeds = {1, 2, 3, 4, 5, 6, 7, 8}}, Typical);
  const stats::Comparison& worse = results.Find(2, Metric::kTestLoss)->result;
  EXPECT_EQ(LossSentence(results),
            fmt::format(
                "rmsnorm reaches the test loss of layernorm within 0.01 nats; no_norm reaches a higher test "
                "loss than layernorm, by {:.3g} nats (simultaneous 95% interval {:.3g} to {:.3g}); paired "
                "by seed, n = 8.",
                *worse.difference, *worse.ci_low, *worse.ci_high));
}

TEST(HeadlineTest, BetterIsAPositiveAmount) {
  const auto loss = [](const std::string& norm, uint64_t seed) -> std::optional<double> {
    return *Typical(norm, seed) - (norm == "rmsnorm" ? 0.1 : 0);
  };
  const StudyResults results = Results({}, loss);
  const stats::Comparison& better = results.Find(1, Metric::kTestLoss)->result;
  EXPECT_EQ(LossSentence(results),
            fmt::format(
                "rmsnorm reaches a lower test loss than layernorm, by {:.3g} nats (simultaneous 95% interval "
                "{:.3g} to {:.3g}); paired by seed, n = 5.",
                -*better.difference, -*better.ci_high, -*better.ci_low));
}

TEST(HeadlineTest, SeveralOfOneVerdictShareAClause) {
  const auto loss = [](const std::string& norm, uint64_t seed) -> std::optional<double> {
    return *Typical("layernorm", seed) + (norm == "layernorm" ? 0 : 0.2 + 0.01 * double(seed % 3));
  };
  const std::string two = LossSentence(Results({.norms = "layernorm,rmsnorm,dyt"}, loss));
  EXPECT_TRUE(
      two.starts_with("rmsnorm and dyt reach a higher test loss than layernorm, by 0.212 nats and 0.212 nats "
                      "(simultaneous 95% intervals "))
      << two;
  const std::string three = LossSentence(Results({.norms = "layernorm,rmsnorm,dyt,no_norm"}, loss));
  EXPECT_TRUE(three.starts_with(
      "rmsnorm, dyt and no_norm reach a higher test loss than layernorm, by 0.212 nats, 0.212 "
      "nats and 0.212 nats; paired by seed, n = 5."))
      << three;
  const std::string many =
      LossSentence(Results({.norms = "layernorm,rmsnorm,dyt,no_norm,recenter,rescale"}, loss));
  EXPECT_TRUE(
      many.starts_with("rmsnorm, dyt, no_norm and 2 others reach a higher test loss than layernorm, by 0.212 "
                       "to 0.212 nats; paired by seed, n = 5."))
      << many;
}

TEST(HeadlineTest, UndecidedNamesTheSeedsThatWouldDecideAndNoSameness) {
  const StudyResults results = Results({.norms = "layernorm,dyt"}, Typical);
  const stats::Comparison& c = results.Find(1, Metric::kTestLoss)->result;
  ASSERT_EQ(c.verdict, stats::Verdict::kUndecided);
  EXPECT_EQ(
      LossSentence(results),
      fmt::format("Whether the test loss of dyt differs from that of layernorm is undecided ({} to {} seeds "
                  "would decide in 80% of studies); paired by seed, n = 5.",
                  *c.seeds_needed_low, *c.seeds_needed_high));
}

TEST(HeadlineTest, AReasonStandsWhereMoreSeedsAreNotTheAnswer) {
  const auto loss = [](const std::string& norm, uint64_t seed) -> std::optional<double> {
    if (norm == "rmsnorm" && seed == 1) return std::nullopt;
    return *Typical(norm, seed) - (norm == "rmsnorm" ? 0.1 : 0);
  };
  EXPECT_EQ(
      LossSentence(Results({}, loss)),
      "Whether the test loss of rmsnorm differs from that of layernorm is undecided: a diverged run of the "
      "variant bars better; 1 of 5 runs of rmsnorm diverged; paired by seed, n = 4.");
}

TEST(HeadlineTest, OneSeedGivesNoVerdict) {
  const std::string text = Headline(Results({.norms = "layernorm,rmsnorm,no_norm", .seeds = {1}}, Typical));
  EXPECT_EQ(
      text,
      "One seed cannot tell a difference from chance: no verdict on any variant; a verdict needs 3 seeds or "
      "more.");
}

TEST(HeadlineTest, IdenticalRuns) {
  const std::string text =
      Headline(Results({}, [](auto&&, uint64_t seed) { return 3.0 + 0.01 * double(seed); }));
  EXPECT_EQ(text, "rmsnorm has exactly the test losses of layernorm, seed by seed; paired by seed, n = 5.");
}

TEST(HeadlineTest, DivergedRunsAreNamed) {
  const auto never = [](const std::string& norm, uint64_t seed) -> std::optional<double> {
    if (norm == "rmsnorm") return std::nullopt;
    return Typical(norm, seed);
  };
  EXPECT_EQ(Headline(Results({}, never)), "rmsnorm diverged in all runs, layernorm in none.");

  const auto often = [](const std::string& norm, uint64_t seed) -> std::optional<double> {
    if (norm == "rmsnorm" && seed > 2) return std::nullopt;
    return Typical(norm, seed);
  };
  const std::string text = Headline(Results({.seeds = {1, 2, 3, 4, 5, 6, 7, 8}}, often));
  EXPECT_TRUE(text.starts_with("rmsnorm diverges more often than layernorm (6 of 8 runs against 0 of 8)."))
      << text;
}

TEST(HeadlineTest, ADivergedBaselineIsNamed) {
  const auto loss = [](const std::string& norm, uint64_t seed) -> std::optional<double> {
    if (norm == "layernorm" && seed == 5) return std::nullopt;
    return *Typical(norm, seed) - (norm == "rmsnorm" ? 0.1 : 0);
  };
  EXPECT_NE(Headline(Results({}, loss)).find("; 1 of 5 runs of layernorm diverged; paired by seed, n = 4."),
            std::string::npos);
}

TEST(HeadlineTest, UnfinishedAndUndeclaredLooksAreLabelled) {
  EXPECT_TRUE(
      Headline(Results({.missing = 1}, Typical))
          .starts_with("Interim, 9 of 10 runs have ended, and not yet the verdict of this study: rmsnorm "));
  EXPECT_TRUE(Headline(Results({.looks = 2, .look = 3}, Typical))
                  .starts_with("Exploratory (look 3, where 2 were declared): rmsnorm "));
}

TEST(HeadlineTest, TimesFollowInASentenceOfTheirOwn) {
  const std::string text = Headline(Results({.norms = "layernorm,rmsnorm,no_norm,dyt"}, Typical,
                                            {.seconds = {0.02, 0.018, 0.024, 0.02}, .noise = 0.01}));
  const std::string times = text.substr(text.find(". ") + 2);
  EXPECT_TRUE(times.starts_with("rmsnorm takes less training time than layernorm, by ")) << times;
  for (const char* part :
       {"% (simultaneous 95% interval ", "; dyt takes the training time of layernorm within 1%; ",
        "; no_norm takes more training time than layernorm, by "})
    EXPECT_NE(times.find(part), std::string::npos) << part << " in: " << times;
}

TEST(HeadlineTest, AnUndecidedTimeShowsTheIntervalOfItsRatio) {
  const std::string text = Headline(Results({}, Typical, {.seconds = {0.02, 0.0201}, .noise = 0.2}));
  EXPECT_NE(text.find(". Whether the training time of rmsnorm differs from that of layernorm is undecided "
                      "(simultaneous 95% interval of the ratio "),
            std::string::npos)
      << text;
}

TEST(HeadlineTest, ItOpensTheTextAndStandsInTheJson) {
  const StudyResults results = Results({}, Typical);
  const std::string headline = Headline(results), text = ResultsText(results, 1000);
  EXPECT_EQ(text.substr(0, text.find('\n')), headline);
  EXPECT_EQ(ResultsJson(results)["headline"], headline);
}

TEST(HeadlineTest, NamesAreShownWithoutControlCharacters) {
  StudyResults results = Results({}, Typical);
  results.variants[1].name = "a\nb\x1b[31m";
  EXPECT_TRUE(Headline(results).starts_with("a\\nb\\x1b[31m reaches the test loss")) << Headline(results);
}

TEST(HeadlineTest, OneVariantHasNone) {
  EXPECT_EQ(Headline(Results({.norms = "layernorm"}, Typical)), "");
  EXPECT_TRUE(ResultsJson(Results({.norms = "layernorm"}, Typical))["headline"].is_null());
}

}  // namespace
}  // namespace normlab
