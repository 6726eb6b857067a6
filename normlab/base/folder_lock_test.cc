#include "normlab/base/folder_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

// What another process meets in the folder.
std::string RefusalInAnotherProcess(const fs::path& folder) {
  const fs::path answer = folder / "answer";
  const pid_t child = fork();
  if (child == 0) {
    WriteFileAtomic(answer, testing::ErrorOf([&] { const FolderLock second(folder, "second"); }));
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return ReadFile(answer);
}

// A process that takes the lock and dies of kill -9 in it. Returns its number.
pid_t KilledInside(const fs::path& folder) {
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock(folder, "normlab compare");
    ::kill(getpid(), SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return child;
}

TEST(FolderLock, ASecondProcessIsRefusedWithTheOwnersName) {
  const testing::TempFolder folder;
  const FolderLock lock(folder.path(), "normlab compare");
  const std::string refusal = RefusalInAnotherProcess(folder.path());
  const LockOwner here = internal::ThisProcess("");
  for (const std::string& part : {fmt::format("normlab compare (process {}", getpid()), "on " + here.host,
                                  std::string("since 2"), std::string("--out")})
    EXPECT_NE(refusal.find(part), std::string::npos) << part << " in: " << refusal;
}

TEST(FolderLock, TheLockGoesWithItsOwner) {
  const testing::TempFolder folder;
  { const FolderLock lock(folder.path(), "first"); }
  EXPECT_FALSE(ReadLock(folder.path()));  // it ended well: nobody is named
  EXPECT_NO_THROW(FolderLock(folder.path(), "second"));
}

TEST(FolderLock, AKilledOwnerIsKnownAsDeadAndItsLockIsTaken) {
  const testing::TempFolder folder;
  const pid_t killed = KilledInside(folder.path());
  const auto lock = ReadLock(folder.path());
  ASSERT_TRUE(lock);
  EXPECT_EQ(lock->owner.pid, killed);
  EXPECT_EQ(lock->state, OwnerState::kDead);
  const FolderLock next(folder.path(), "next");
  EXPECT_EQ(ReadLock(folder.path())->owner.pid, getpid());
  EXPECT_EQ(ReadLock(folder.path())->state, OwnerState::kAlive);
}

TEST(FolderLock, ANumberThatIsUsedAgainIsNotTheOwner) {
  LockOwner owner = internal::ThisProcess("normlab compare");
  EXPECT_EQ(internal::StateOf(owner), OwnerState::kAlive);
  owner.started_ticks += 1;
  EXPECT_EQ(internal::StateOf(owner), OwnerState::kDead);
}

TEST(FolderLock, AnOwnerOnAnotherHostCannotBeChecked) {
  const testing::TempFolder folder;
  LockOwner owner = internal::ThisProcess("normlab compare");
  owner.host = "elsewhere";
  WriteFileAtomic(folder.path() / FolderLock::kFileName, internal::LockText(owner));
  EXPECT_EQ(ReadLock(folder.path())->state, OwnerState::kUnknown);
  // Where flock counts for all hosts, its being free says that the owner is gone.
  EXPECT_TRUE(internal::MayLiveElsewhere(owner, /*network_file_system=*/true));
  EXPECT_FALSE(internal::MayLiveElsewhere(owner, /*network_file_system=*/false));
  EXPECT_FALSE(internal::MayLiveElsewhere(internal::ThisProcess(""), /*network_file_system=*/true));
  EXPECT_NO_THROW(FolderLock(folder.path(), "next"));
}

TEST(FolderLock, FilesThatCannotBeReadNameNobody) {
  EXPECT_FALSE(internal::ParseLockOwner(""));
  EXPECT_FALSE(internal::ParseLockOwner("\n"));
  EXPECT_EQ(internal::ParseLockOwner("4711\n")->pid, 4711);  // as earlier ones wrote it
  for (const char* text : {"{", "[]", "{\"pid\": \"x\"}", "\xff"}) {
    EXPECT_EQ(internal::ParseLockOwner(text)->pid, 0) << text;
    EXPECT_NE(internal::ParseLockOwner(text)->ToString().find("unknown"), std::string::npos);
  }
}

}  // namespace
}  // namespace normlab
