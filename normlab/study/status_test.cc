#include "normlab/study/status.h"

#include <gtest/gtest.h>

#include <map>

#include "normlab/base/testing/files.h"
#include "normlab/study/testing/fake_study.h"
#include "normlab/train/checkpoint.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

using testing::Says;

class StatusTest : public ::testing::Test {
 protected:
  fs::path Out() const { return folder_.path() / "study"; }
  fs::path CellOf(const std::string& norm, uint64_t seed) const { return Out() / CellFolder(norm, seed); }

  // Seeds 1 and 2 are done but for what `before` does; of seed 3, layernorm has begun and rmsnorm has not.
  void Prepare() {
    FakeCells cells({{"layernorm", {3.1, 3.2, 3.3}}, {"rmsnorm", {3.0, 3.1, 3.2}}});
    cells.before = [&](const CellRun& run) {
      const std::string& norm = run.config.model.norm_type;
      if (norm == "rmsnorm" && run.config.seed == 2) throw Error("the disk is full");
      if (run.config.seed == 3) throw Error("never begun");
    };
    {
      Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
      study.Run(cells.Runner(), {});
    }
    fs::remove(Out() / "results.json");
    Study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2, 3})).WriteResults();
    fs::remove_all(CellOf("rmsnorm", 3));
    RunRecord record = FakeRecord(request_.grid.variants[0].config, 3);
    record.status = RunStatus::kRunning;
    record.machine.jobs = 2;
    record.data["held_out_windows"] = 24.0;  // as long as half a step, with its 16 sequences
    WriteFileAtomic(CellOf("layernorm", 3) / "run.json", DumpJson(ToJson(record)));
    WriteFileAtomic(CellOf("layernorm", 3) / "metrics.jsonl",
                    "{\"step\":1,\"time_s\":2.0}\n{\"step\":2,\"time_s\":2.0}\n{\"step\":3,\"tim");
  }

  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(Out()))
      files[entry.path().string()] = entry.is_regular_file() ? ReadFile(entry.path()) : "";
    return files;
  }

  testing::TempFolder folder_;
  const StudyRequest request_ = FakeRequest("layernorm,rmsnorm", {1, 2, 3});
};

TEST_F(StatusTest, TellsWhoWorksHowFarTheCellsAreAndWhatIsLeft) {
  Prepare();
  const FolderLock lock(Out(), "normlab compare");
  const auto before = Files();
  const StudyStatus status = ReadStatus(Out());
  EXPECT_EQ(Files(), before);
  EXPECT_EQ(status.counts.done, 3u);
  ASSERT_EQ(status.at_work.size(), 1u);
  EXPECT_EQ(status.at_work[0].steps_done, 2);
  EXPECT_EQ(status.at_work[0].steps, 10);
  EXPECT_NEAR(*status.at_work[0].remaining_s, 8 * 2 + 1, 1e-9);
  // Two places: the running cell ends after 17 s, the two others take what their variant took, 2 s each.
  EXPECT_NEAR(*status.remaining_s, 17, 1e-9);
  const Json json = StatusJson(status);
  EXPECT_EQ(json["owner"]["state"], "alive");
  EXPECT_EQ(json["running"], 1);
  EXPECT_EQ(json["jobs"], 2);
  EXPECT_TRUE(Says(StatusText(status, 500), {"normlab compare (process ", "2 cells at a time",
                                             "layernorm, seed 3: running, step 2 of 10", "left     about 17s",
                                             "2 cells: not run yet"}));
}

TEST_F(StatusTest, ACellThatNobodyWorksOnIsMissing) {
  Prepare();
  const fs::path checkpoint = CheckpointsOf(CellOf("layernorm", 3)) / CheckpointName({.step = 5});
  CreateDirectories(checkpoint);
  WriteCheckpointState(checkpoint,
                       {.position = {.step = 5}, .record = FakeRecord(request_.grid.variants[0].config, 3)});
  const StudyStatus status = ReadStatus(Out());
  EXPECT_TRUE(status.at_work.empty());
  EXPECT_FALSE(status.remaining_s);
  EXPECT_TRUE(StatusJson(status)["owner"].is_null());
  EXPECT_TRUE(
      Says(StatusText(status, 500),
           {"at work  nobody", "layernorm, seed 3: missing: cut off while it ran; goes on from step-00000005",
            "The command that began it"}));
}

TEST_F(StatusTest, AFailureThatLeftNoRecordIsToldByTheResults) {
  Prepare();
  WriteFileAtomic(
      Out() / "results.json",
      R"({"cells": [{"variant": "rmsnorm", "seed": 2, "status": "failed", "reason": "no room"}]})");
  const StudyStatus status = ReadStatus(Out());
  EXPECT_EQ(status.counts.failed, 1u);
  EXPECT_EQ(status.counts.missing, 2u);
  EXPECT_TRUE(Says(StatusText(status, 500), {"6 planned: 3 done, 0 diverged, 1 failed, 2 missing",
                                             "rmsnorm, seed 2: failed: no room"}));
}

TEST_F(StatusTest, AnOwnerElsewhereIsNamedAndNotTrusted) {
  Prepare();
  WriteFileAtomic(Out() / ".lock",
                  internal::LockText({.pid = 7, .host = "elsewhere", .program = "normlab compare"}));
  EXPECT_TRUE(
      Says(StatusText(ReadStatus(Out()), 500), {"process 7 on elsewhere", "cannot be told from this host"}));
  WriteFileAtomic(Out() / ".lock", internal::LockText({.pid = 999999999, .program = "normlab compare"}));
  EXPECT_TRUE(
      Says(StatusText(ReadStatus(Out()), 500), {"nobody; normlab compare (process 999999999) was killed"}));
}

TEST_F(StatusTest, AFolderWithoutAStudyIsRefused) {
  EXPECT_TRUE(Says(testing::ErrorOf([&] { ReadStatus(folder_.path()); }), {"holds no study"}));
}

}  // namespace
}  // namespace normlab
