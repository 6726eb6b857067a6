#include "normlab/study/report/logs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "normlab/base/testing/files.h"
#include "normlab/study/testing/fake_results.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

TEST(LogsTest, LinesOfMetricsBecomeCurvesAndNaNStaysNaN) {
  const StepLog log = ParseStepLog(
      "{\"step\":1,\"loss\":5.5,\"grad_norm\":2}\n{\"step\":2,\"loss\":\"nan\",\"grad_norm\":\"inf\"}\n"
      "{\"step\":3,\"loss\":4.5}\n{\"step\":4,\"lo");
  EXPECT_EQ(log.loss.step, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(log.loss.value[0], 5.5);
  EXPECT_TRUE(std::isnan(log.loss.value[1]));
  EXPECT_EQ(log.gradient_norm.step, (std::vector<double>{1, 2}));
  EXPECT_TRUE(std::isinf(log.gradient_norm.value[1]));
  EXPECT_EQ(log.unreadable, 1u);
}

// Runs of two variants with made-up logs.
class SeriesTest : public ::testing::Test {
 protected:
  std::filesystem::path RunOf(size_t cell) const {
    const Cell& one = results_.cells[cell];
    return folder_.path() / CellFolder(results_.variants[one.variant].name, results_.plan.seeds[one.seed]);
  }
  void Log(size_t cell, auto&& loss, int steps = 3) {
    CreateDirectories(RunOf(cell));
    std::string lines;
    for (int step = 1; step <= steps; ++step)
      lines +=
          DumpJson({{"step", step}, {"loss", ToJson(static_cast<double>(loss(step)))}, {"grad_norm", 1}}) +
          "\n";
    WriteFileAtomic(RunOf(cell) / kMetricsFile, lines);
  }
  Json Series() const { return SeriesJson(results_, ReadLogs(folder_.path(), results_)); }

  testing::TempFolder folder_;
  StudyResults results_ = FakeResults({"base", "other"}, /*all_done=*/true);
};

TEST_F(SeriesTest, AStudyWithoutLogsHasEmptyCurves) {
  const Json series = Series();
  ASSERT_EQ(series["curves"].size(), 4u);  // two variants, two quantities
  EXPECT_EQ(series["curves"][0]["mean"]["n"], 0);
  EXPECT_TRUE(series["curves"][0]["runs"].empty());
  EXPECT_TRUE(series["heat_maps"].empty());
  EXPECT_TRUE(series["profiles"].empty());
}

TEST_F(SeriesTest, MeansComeWithSdRangeCountAndStudentsT) {
  for (size_t cell = 0; cell < 3; ++cell)
    Log(cell, [&](int step) { return static_cast<double>(step) + static_cast<double>(cell); });
  const Json mean = Series()["curves"][0]["mean"];
  EXPECT_EQ(DumpJson(mean["step"]), "[1.0,2.0,3.0]");
  EXPECT_EQ(DumpJson(mean["mean"]), "[2.0,3.0,4.0]");
  EXPECT_EQ(DumpJson(mean["sd"]), "[1.0,1.0,1.0]");
  EXPECT_EQ(DumpJson(mean["least"]), "[1.0,2.0,3.0]");
  EXPECT_EQ(DumpJson(mean["greatest"]), "[3.0,4.0,5.0]");
  EXPECT_EQ(mean["n"], 3);
  EXPECT_NEAR(mean["t"].get<double>(), 4.302653, 1e-5);  // 97.5% point, 2 degrees of freedom
}

TEST_F(SeriesTest, DifferencesArePairedBySeed) {
  for (size_t cell = 0; cell < 6; ++cell)  // cells 3 to 5 are those of the other variant
    Log(cell, [&](int step) {
      return static_cast<double>(step) + 10 * static_cast<double>(cell % 3) + (cell >= 3 ? 0.5 : 0);
    });
  const Json difference = Series()["differences"][0];
  EXPECT_EQ(difference["variant"], "other");
  EXPECT_EQ(DumpJson(difference["mean"]["mean"]), "[0.5,0.5,0.5]");
  EXPECT_EQ(DumpJson(difference["mean"]["sd"]), "[0.0,0.0,0.0]");
}

TEST_F(SeriesTest, GapsAreNullAndWhatIsNotFiniteIsTold) {
  Log(
      0, [](int step) { return step % 5 == 0 ? 2.0 : std::nan(""); }, 100);
  const Json run = Series()["curves"][0]["runs"][0];
  EXPECT_EQ(run["not_finite"].size(), 20u);
  EXPECT_EQ(run["not_finite"][0]["what"], "nan");
  EXPECT_EQ(run["not_finite"][0]["from"], 1.0);
  // Every finite point stands alone, with a gap before it.
  EXPECT_EQ(run["value"].size(), 40u);
  EXPECT_TRUE(run["value"][0].is_null());
  EXPECT_EQ(run["value"][1], 2.0);
  EXPECT_TRUE(run["value"][2].is_null());
}

TEST_F(SeriesTest, ASpikeAmongHundredThousandStepsIsInTheMeanAndInTheRun) {
  Log(
      0, [](int step) { return step == 54321 ? 9.5 : 3.0 + 1e-3 * (step % 7); }, 100000);
  const Json curves = Series()["curves"][0];
  const auto holds = [](const Json& steps) { return std::ranges::count(steps, Json(54321.0)) == 1; };
  EXPECT_TRUE(holds(curves["runs"][0]["step"]));
  EXPECT_EQ(curves["mean"]["n"], 1);
  EXPECT_TRUE(holds(curves["mean"]["step"]));
  EXPECT_LE(curves["runs"][0]["step"].size(), 1002u);
}

TEST_F(SeriesTest, SpikesAndProfilesComeFromTheRecords) {
  Log(0, [](int) { return 1.0; });
  Json record = ToJson(*results_.cells[0].record);
  record["spikes"] = {{{"step", 2}, {"loss", 9}, {"before", 1}, {"first", nullptr}, {"recovered_after", 3}}};
  WriteFileAtomic(RunOf(0) / kRecordFile, DumpJson(record));
  for (size_t cell = 0; cell < 2; ++cell)
    results_.cells[cell].record->profile = {
        {.name = "norms, forward", .calls = 7, .seconds = 0.5 + static_cast<double>(cell)}};
  const Json series = Series();
  EXPECT_EQ(series["curves"][0]["runs"][0]["spikes"][0]["step"], 2);
  ASSERT_EQ(series["profiles"].size(), 1u);
  EXPECT_EQ(series["profiles"][0]["n"], 2);
  // 10 steps each; 9358.25 s and a little of training
  EXPECT_DOUBLE_EQ(series["profiles"][0]["operations"][0]["step_s"].get<double>(), 0.1);
  EXPECT_NEAR(series["profiles"][0]["step_s"].get<double>(), 935.825, 1e-3);
}

}  // namespace
}  // namespace normlab
