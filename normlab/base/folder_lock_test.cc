#include "normlab/base/folder_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

TEST(FolderLock, ASecondProcessIsRefusedWithTheNumberOfTheFirst) {
  const testing::TempFolder folder;
  const FolderLock lock(folder.path());
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      const FolderLock second(folder.path());
    } catch (const Error& error) {
      code =
          std::string(error.what()).find(fmt::format("process {}", getppid())) != std::string::npos ? 0 : 2;
    }
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(FolderLock, TheLockGoesWithItsOwner) {
  const testing::TempFolder folder;
  { const FolderLock lock(folder.path()); }
  EXPECT_NO_THROW(FolderLock(folder.path()));
}

}  // namespace
}  // namespace normlab
