#include "normlab/study/folder.h"

#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>

#include "normlab/base/testing/files.h"
#include "normlab/study/testing/fake_study.h"

namespace normlab {
namespace {

// The bytes that a folder name stands for, where it was not shortened.
std::string Decode(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      text += name[i];
      continue;
    }
    text += static_cast<char>(std::stoi(name.substr(i + 1, 2), nullptr, 16));
    i += 2;
  }
  return text;
}

TEST(FolderTest, NamesAreSafeAndReversible) {
  EXPECT_EQ(FolderName("fused_rmsnorm"), "fused_rmsnorm");
  EXPECT_EQ(FolderName("norm_type=a,norm_eps=1e-05"), "norm_type=a,norm_eps=1e-05");
  for (const std::string name : {"a/b", "..", ".", "a,\"b\"\nc", "100%", "a b", "\xc3\xa9", "a\\b:c*?"}) {
    const std::string folder = FolderName(name);
    EXPECT_EQ(Decode(folder), name);
    EXPECT_EQ(folder.find_first_of("/\\\"\n :*?"), std::string::npos) << folder;
    EXPECT_NE(folder[0], '.');
  }
}

TEST(FolderTest, LongNamesAreCutAndStayDifferent) {
  const std::string a = FolderName(std::string(500, 'x') + "1"), b = FolderName(std::string(500, 'x') + "2");
  EXPECT_LE(a.size(), 200u);
  EXPECT_NE(a, b);
}

TEST(FolderTest, StatusOfACellFollowsItsRecord) {
  RunRecord record = FakeRecord({}, 3);
  Cell cell;
  TakeRecord(cell, record);
  EXPECT_EQ(cell.status, CellStatus::kDone);
  record.status = RunStatus::kRunning;  // whoever wrote this is gone
  TakeRecord(cell, record);
  EXPECT_EQ(cell.status, CellStatus::kMissing);
  record.status = RunStatus::kInterrupted;
  TakeRecord(cell, record);
  EXPECT_EQ(cell.status, CellStatus::kMissing);
  EXPECT_NE(cell.reason.find("interrupted"), std::string::npos);
  record.status = RunStatus::kFailed;
  record.error = "the disk is full";
  TakeRecord(cell, record);
  EXPECT_EQ(cell.status, CellStatus::kFailed);
  EXPECT_EQ(cell.reason, "the disk is full");
  TakeRecord(cell, FakeDivergence({}));
  EXPECT_EQ(cell.status, CellStatus::kDiverged);
  EXPECT_NE(cell.reason.find("step 4"), std::string::npos) << cell.reason;
}

TEST(FolderTest, ATestLossThatIsNotFiniteCountsAsDiverged) {
  Cell cell;
  TakeRecord(cell, FakeRecord({}, NAN));
  EXPECT_EQ(cell.status, CellStatus::kDiverged);
}

// Asked for with --save-models: what could not be written is made by running again, as the program says.
TEST(FolderTest, ACellWithoutItsWeightsHasFailed) {
  RunRecord record = FakeRecord({}, 3);
  record.error = "cannot write model.safetensors";
  Cell cell;
  TakeRecord(cell, record);
  EXPECT_EQ(cell.status, CellStatus::kFailed);
  EXPECT_EQ(cell.reason, record.error);
}

TEST(FolderTest, WhoOnlyLooksSeesTheOtherCellsBesideOneThatCannotBeRead) {
  const testing::TempFolder folder;
  const StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm", {1, 2}));
  const auto leave = [&](size_t place, size_t variant) {
    const std::filesystem::path run = folder.path() / CellFolder(plan.variants[place].variant.name, 1);
    std::filesystem::create_directories(run);
    Leave({.folder = run}, FakeRecord(CellConfig(plan.variants[variant].variant, 1), 3));
  };
  const auto cell = [&](size_t variant) {
    for (const Cell& one : CellsAsTheyStand(folder.path(), plan))
      if (one.variant == variant && one.seed == 0) return one;
    return Cell{};
  };
  leave(0, 0);
  leave(1, 0);  // a run of the other variant
  EXPECT_EQ(cell(0).status, CellStatus::kDone);
  EXPECT_EQ(cell(1).status, CellStatus::kFailed);
  EXPECT_NE(cell(1).reason.find("norm_type"), std::string::npos) << cell(1).reason;
  WriteFileAtomic(folder.path() / CellFolder(plan.variants[1].variant.name, 1) / "run.json", "{");
  EXPECT_EQ(cell(0).status, CellStatus::kDone);
  EXPECT_EQ(cell(1).status, CellStatus::kFailed);
  EXPECT_NE(cell(1).reason.find("run.json"), std::string::npos) << cell(1).reason;
  leave(1, 1);
  EXPECT_EQ(cell(1).status, CellStatus::kDone);
}

TEST(FolderTest, MajorMinorOfABuild) {
  EXPECT_EQ(MajorMinor("normlab 0.1.0, GNU 12.2.0, Release"), "normlab 0.1");
  EXPECT_EQ(MajorMinor("normlab 12.34.5"), "normlab 12.34");
}

TEST(FolderTest, RefusesFoldersThatHoldSomethingElse) {
  const testing::TempFolder folder;
  EXPECT_NO_THROW(RequireStudyOrNew(folder.path()));
  EXPECT_NO_THROW(RequireStudyOrNew(folder.path() / "new"));
  std::ofstream(folder.path() / ".normlab-tmp-0123") << "{\"half";  // a writer was killed
  EXPECT_NO_THROW(RequireStudyOrNew(folder.path()));
  WriteFileAtomic(folder.path() / "notes.txt", "mine");
  EXPECT_THROW(RequireStudyOrNew(folder.path()), Error);
  EXPECT_THROW(RequireStudyOrNew(folder.path() / "notes.txt"), Error);
  WriteFileAtomic(folder.path() / "study.json", "{}");
  EXPECT_NO_THROW(RequireStudyOrNew(folder.path()));
}

}  // namespace
}  // namespace normlab
