#include "normlab/study/report/summary.h"

#include <gtest/gtest.h>

#include "normlab/study/testing/fake_results.h"

namespace normlab {
namespace {

TEST(SummaryTest, TheMethodSaysWhatSeedsVaryAndWhatTheyDoNot) {
  std::string text;
  for (const std::string& paragraph : Method(FakeResults({"base", "other"}, true))) text += paragraph + "\n";
  for (const char* part :
       {"initial weights and the order of the data", "Seeds do not vary the text", "3 seeds (1 to 3)",
        "never averaged", "no evidence of sameness", "Looks declared: 2; this is look 1"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(SummaryTest, TheCommandNamesWhatIsNotTheDefaultAndQuotesForAShell) {
  StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm", {1, 2, 7}));
  plan.data["files"][0]["path"] = "/my text's/a.txt";
  const std::string command = ReproducingCommand(plan, "new study");
  for (const char* part :
       {"normlab compare", "--data '/my text'\\''s/a.txt'", "--out 'new study'",
        "--vary norm_type=layernorm,rmsnorm", "--set emb_dim=8", "--set n_layers=1", "--set steps=10",
        "--seed-list 1,2,7", "--baseline layernorm", "--margin 0.01", "--looks 2", "--threads 2"})
    EXPECT_NE(command.find(part), std::string::npos) << part << " in " << command;
  EXPECT_EQ(command.find("learning_rate"), std::string::npos) << command;

  // Read back from study.json, where every key has its value.
  const StudyPlan again = StudyPlanFromJson(ToJson(plan), "study.json");
  EXPECT_EQ(ReproducingCommand(again, "new study"), command);
}

TEST(SummaryTest, VariantsThatAreNoGridHaveNoCommand) {
  StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
  plan.variants[1].variant.config.learning_rate = 0.5;
  EXPECT_EQ(ReproducingCommand(plan, "x"), "");
}

}  // namespace
}  // namespace normlab
