#include "normlab/base/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <ostream>

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/hash.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;
using testing::TempFolder;

std::string Bytes(size_t size, char fill) { return std::string(size, fill); }

size_t FilesIn(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(ReadFile, GivesEveryByte) {
  const TempFolder folder;
  std::string all;
  for (int i = 0; i < 100000; ++i) all += static_cast<char>(i * 7 % 256);
  EXPECT_EQ(ReadFile(folder.Write("all", all)), all);
  EXPECT_EQ(ReadFile(folder.Write("empty", "")), "");
}

TEST(ReadFile, ReadsAFileThatDoesNotTellItsSize) { EXPECT_SAYS(ReadFile("/proc/self/status"), {"VmRSS"}); }

TEST(ReadFile, ReadsAPipeToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "through the pipe", 16), 16);
  ::close(ends[1]);
  EXPECT_EQ(ReadFile("/dev/fd/" + std::to_string(ends[0])), "through the pipe");
  ::close(ends[0]);
}

TEST(ReadFile, SaysWhatIsWrongAndWhatToDo) {
  const TempFolder folder;
  EXPECT_SAYS(ErrorOf([&] { ReadFile(folder / "absent"); }), {"absent\"", "No such file", "check the path"});
  EXPECT_SAYS(ErrorOf([&] { ReadFile(folder.path()); }),
              {folder.path().string(), "is a folder", "name a file"});
  const auto locked = folder.Write("locked", "x");
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  if (::geteuid() == 0) return;  // root may read everything
  EXPECT_SAYS(ErrorOf([&] { ReadFile(locked); }), {"check the permissions"});
}

TEST(WriteFileAtomic, CreatesAndReplaces) {
  const TempFolder folder;
  WriteFileAtomic(folder / "file", "old");
  EXPECT_EQ(ReadFile(folder / "file"), "old");
  WriteFileAtomic(folder / "file", Bytes(3000000, 'n'));
  EXPECT_EQ(ReadFile(folder / "file"), Bytes(3000000, 'n'));
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

TEST(WriteFileAtomic, WritesBesideTheCallersFolder) {
  const TempFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  WriteFileAtomic("bare-name", "x");
  std::filesystem::current_path(before);
  EXPECT_EQ(ReadFile(folder / "bare-name"), "x");
}

TEST(WriteFileAtomic, KeepsALinkAndReplacesWhatItLeadsTo) {
  const TempFolder folder;
  CreateDirectories(folder / "far");
  folder.Write("far/target", "old");
  std::filesystem::create_symlink("far/target", folder / "link");
  WriteFileAtomic(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(ReadFile(folder / "far/target"), "new");
}

TEST(WriteFileAtomic, NeverReplacesADeviceOrFolder) {
  const TempFolder folder;
  // A pipe of our own stands for /dev/null, which a broken guard would destroy for everybody.
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_SAYS(ErrorOf([&] { WriteFileAtomic(folder / "pipe", "x"); }), {"device or pipe"});
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  EXPECT_SAYS(ErrorOf([&] { WriteFileAtomic(folder.path(), "x"); }), {"is a folder"});
}

TEST(WriteFileAtomic, NamesAMissingFolder) {
  const TempFolder folder;
  EXPECT_SAYS(ErrorOf([&] { WriteFileAtomic(folder / "no/such/file", "x"); }),
              {"no/such\" does not exist", "make it"});
}

TEST(AtomicFile, WithoutCommitLeavesTheOldFileAndNoTemporary) {
  const TempFolder folder;
  folder.Write("file", "old");
  {
    AtomicFile file(folder / "file");
    file.Write("new");
    EXPECT_EQ(FilesIn(folder.path()), 2u);
  }
  EXPECT_EQ(ReadFile(folder / "file"), "old");
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

// Each row puts one failing system call in the place of the real one.
struct Fault {
  const char* name;
  internal::FileCalls calls;
  const char* message;
  friend std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }
};

const Fault kFaults[] = {
    {"FullDisk",
     {.write = [](int, const void*, size_t) -> ssize_t { return errno = ENOSPC, -1; }},
     "No space left"},
    {"WriteError",
     {.write = [](int, const void*, size_t) -> ssize_t { return errno = EIO, -1; }},
     "disk or network"},
    {"WriteNothing", {.write = [](int, const void*, size_t) -> ssize_t { return 0; }}, "error"},
    {"SyncError", {.fsync = [](int) { return errno = EIO, -1; }}, "disk or network"},
    {"CloseError", {.close = [](int fd) { return ::close(fd), errno = EIO, -1; }}, "disk or network"},
    {"RenameError", {.rename = [](const char*, const char*) { return errno = EACCES, -1; }}, "permissions"},
};

// C-08 (c): a disk that fails at any call leaves the old file, no temporary, and a message.
class AtomicFileFault : public ::testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(Each, AtomicFileFault, ::testing::ValuesIn(kFaults),
                         [](const auto& param_info) { return param_info.param.name; });

TEST_P(AtomicFileFault, NamesThePathKeepsTheOldFileAndRemovesTheTemporary) {
  const TempFolder folder;
  folder.Write("file", "old");
  const std::string message = ErrorOf([&] {
    AtomicFile file(folder / "file", GetParam().calls);
    file.Write("new");
    file.Commit();
  });
  EXPECT_SAYS(message, {"file\"", GetParam().message});
  EXPECT_EQ(ReadFile(folder / "file"), "old");
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

// C-08 (c): writes that take only a part.
TEST(AtomicFile, GoesOnAfterShortAndInterruptedWrites) {
  const TempFolder folder;
  const internal::FileCalls slow{.write = [](int fd, const void* bytes, size_t size) -> ssize_t {
    static int calls = 0;
    if (++calls % 3 == 0) return errno = EINTR, -1;
    return ::write(fd, bytes, std::min<size_t>(size, 7));
  }};
  AtomicFile file(folder / "file", slow);
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(i);
  file.Write(text);
  file.Commit();
  EXPECT_EQ(ReadFile(folder / "file"), text);
}

// C-08 (b): `ulimit -f`.
TEST(AtomicFile, ReportsTheSizeLimitOfTheProcess) {
  const TempFolder folder;
  folder.Write("file", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    WriteFileAtomic(folder / "file", Bytes(5000, 'x'));
  } catch (const Error& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_SAYS(message, {"ulimit"});
  EXPECT_EQ(ReadFile(folder / "file"), "old");
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

// C-08 (a): kill -9 at any time.
TEST(AtomicFile, AKilledWriterLeavesTheOldFileOrTheNewOne) {
  const TempFolder folder;
  const std::string versions[] = {Bytes(200000, 'a'), Bytes(300000, 'b')};
  folder.Write("file", versions[0]);
  int news[2];
  ASSERT_EQ(::pipe(news), 0);
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 1;; ++i) {
        AtomicFile file(folder / "file");
        for (int part = 0; part < 10; ++part) {
          const std::string& version = versions[i % 2];
          file.Write(std::string_view(version).substr(version.size() / 10 * static_cast<size_t>(part),
                                                      version.size() / 10));
          if (::write(news[1], ".", 1) != 1) ::_exit(1);
        }
        file.Commit();
      }
    }
    char byte = 0;
    for (int i = 0; i < 5 + 3 * round; ++i) ASSERT_EQ(::read(news[0], &byte, 1), 1);  // some way into a file
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const std::string found = ReadFile(folder / "file");
    EXPECT_TRUE(found == versions[0] || found == versions[1]) << "half a file in round " << round;
    // What is left in the pipe belongs to the dead writer.
    ::fcntl(news[0], F_SETFL, O_NONBLOCK);
    while (::read(news[0], &byte, 1) == 1) {
    }
    ::fcntl(news[0], F_SETFL, 0);
  }
  ::close(news[0]);
  ::close(news[1]);
  const size_t orphans = FilesIn(folder.path()) - 1;
  EXPECT_EQ(RemoveTemporaries(folder.path()).size(), orphans);
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

// Fills a folder with one file and commits it.
void WriteFolder(const std::filesystem::path& path, const std::string& text, internal::FileCalls calls = {}) {
  AtomicFolder folder(path, calls);
  WriteFileAtomic(folder.temporary() / "file", text);
  folder.Commit();
}

TEST(AtomicFolder, AppearsWholeAndReplacesTheOldOne) {
  const TempFolder folder;
  {
    AtomicFolder fresh(folder / "a");
    WriteFileAtomic(fresh.temporary() / "file", "new");
    EXPECT_TRUE(IsTemporary(fresh.temporary()));
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
    fresh.Commit();
  }
  EXPECT_EQ(ReadFile(folder / "a/file"), "new");
  WriteFolder(folder / "a", "newer");
  EXPECT_EQ(ReadFile(folder / "a/file"), "newer");
  EXPECT_EQ(FilesIn(folder.path()), 1u);
}

// C-08
TEST(AtomicFolder, AFailureLeavesNothingBehind) {
  const TempFolder folder;
  { AtomicFolder(folder / "a"); }
  for (const internal::FileCalls& calls :
       {internal::FileCalls{.fsync = [](int) { return errno = EIO, -1; }},
        internal::FileCalls{.rename = [](const char*, const char*) { return errno = ENOSPC, -1; }}}) {
    EXPECT_SAYS(ErrorOf([&] { WriteFolder(folder / "a", "new", calls); }), {"a\""});
    EXPECT_EQ(FilesIn(folder.path()), 0u);
  }
  EXPECT_SAYS(ErrorOf([&] { WriteFolder(folder / "absent/a", "new"); }), {"absent/a\"", "No such file"});
}

TEST(RemoveFolder, RemovesItWholeAndTakesNoneForDone) {
  const TempFolder folder;
  WriteFolder(folder / "a", "text");
  RemoveFolder(folder / "a");
  RemoveFolder(folder / "a");
  EXPECT_EQ(FilesIn(folder.path()), 0u);
  folder.Write("file", "mine");
  EXPECT_SAYS(ErrorOf([&] { RemoveFolder(folder / "file"); }), {"file\"", "it is a file"});
  EXPECT_EQ(ReadFile(folder / "file"), "mine");
}

TEST(RemoveTemporaries, LeavesOtherFilesAlone) {
  const TempFolder folder;
  folder.Write("keep", "x");
  folder.Write(".normlab-tmp-0123", "x");
  std::filesystem::create_directories(folder / ".normlab-tmp-4567/below");  // of an AtomicFolder
  EXPECT_EQ(RemoveTemporaries(folder.path()),
            (std::vector<std::string>{".normlab-tmp-0123", ".normlab-tmp-4567"}));
  EXPECT_EQ(ReadFile(folder / "keep"), "x");
  EXPECT_THROW(RemoveTemporaries(folder / "absent"), Error);
}

TEST(CreateDirectories, MakesAllOfThemOnce) {
  const TempFolder folder;
  CreateDirectories(folder / "a/b/c");
  CreateDirectories(folder / "a/b/c");
  CreateDirectories(folder / "a/b/d/");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/d"));
}

TEST(KindOf, TellsWhatStandsThereOrWhyItCannot) {
  const TempFolder folder;
  EXPECT_EQ(KindOf(folder.path()), PathKind::kFolder);
  EXPECT_EQ(KindOf(folder.Write("file", "x")), PathKind::kOther);
  EXPECT_EQ(KindOf(folder / "none"), PathKind::kNothing);
  EXPECT_EQ(KindOf(folder / "file/inside"), PathKind::kNothing);
  EXPECT_EQ(KindOf("/dev/null"), PathKind::kOther);
  std::filesystem::create_symlink(folder / "gone", folder / "dangling");
  EXPECT_EQ(KindOf(folder / "dangling"), PathKind::kNothing);
  std::filesystem::create_symlink(folder / "circle", folder / "circle");
  EXPECT_SAYS(ErrorOf([&] { KindOf(folder / "circle"); }), {"circle\"", "links"});
  EXPECT_SAYS(ErrorOf([&] { KindOf(folder / std::string(300, 'n')); }), {"shorter name"});
}

TEST(CreateDirectories, NamesALinkThatLeadsNowhere) {
  const TempFolder folder;
  std::filesystem::create_symlink(folder / "gone", folder / "dangling");
  EXPECT_SAYS(ErrorOf([&] { CreateDirectories(folder / "dangling"); }), {"dangling\"", "link"});
}

TEST(CreateDirectories, NamesTheFileInTheWay) {
  const TempFolder folder;
  folder.Write("file", "x");
  EXPECT_SAYS(ErrorOf([&] { CreateDirectories(folder / "file/below"); }),
              {"file\" is a file", "choose another folder"});
  EXPECT_THROW(CreateDirectories(folder / "file"), Error);
}

TEST(FileHash, IsTheHashOfTheBytes) {
  const TempFolder folder;
  const std::string bytes = Bytes(2500000, 'h');
  EXPECT_EQ(FileHash(folder.Write("file", bytes)), HashHex(bytes));
  EXPECT_EQ(FileHash(folder.Write("empty", "")), HashHex(""));
  EXPECT_THROW(FileHash(folder / "absent"), Error);
}

TEST(LineFile, AppendsAcrossOpenings) {
  const TempFolder folder;
  LineFile(folder / "log").Append("one");
  LineFile log(folder / "log");
  log.Append("two");
  EXPECT_EQ(ReadFile(folder / "log"), "one\ntwo\n");  // without closing: the line is there
  log.Append("");
  EXPECT_EQ(ReadFile(folder / "log"), "one\ntwo\n\n");
  EXPECT_THROW(log.Append("two\nlines"), std::logic_error);
}

TEST(LineFile, CutsALineThatAKilledWriterLeftUnfinished) {
  const TempFolder folder;
  for (const size_t torn : {size_t{1}, size_t{4095}, size_t{4096}, size_t{10000}}) {
    folder.Write("log", "whole\n" + Bytes(torn, 't'));
    LineFile(folder / "log").Append("next");
    EXPECT_EQ(ReadFile(folder / "log"), "whole\nnext\n") << torn;
    folder.Write("log", Bytes(torn, 't'));
    LineFile(folder / "log").Append("next");
    EXPECT_EQ(ReadFile(folder / "log"), "next\n") << torn;
  }
}

TEST(LineFile, ReportsAFullDisk) {
  LineFile full("/dev/full");
  EXPECT_SAYS(ErrorOf([&] { full.Append("line"); }), {"/dev/full", "free some space"});
}

TEST(LineFile, AFailedAppendLeavesTheFileAsItWas) {
  const TempFolder folder;
  folder.Write("log", "whole\n");
  const internal::FileCalls calls{.write = [](int fd, const void* bytes, size_t size) -> ssize_t {
    if (size <= 3) return errno = ENOSPC, -1;
    return ::write(fd, bytes, 3);
  }};
  LineFile log(folder / "log", calls);
  EXPECT_THROW(log.Append("abcdefgh"), Error);
  EXPECT_EQ(ReadFile(folder / "log"), "whole\n");
}

TEST(LineFile, RefusesFoldersAndMissingFolders) {
  const TempFolder folder;
  EXPECT_SAYS(ErrorOf([&] { LineFile file(folder.path()); }), {"is a folder"});
  EXPECT_SAYS(ErrorOf([&] { LineFile file(folder / "no/log"); }), {"check the path"});
}

}  // namespace
}  // namespace normlab
