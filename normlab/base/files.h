#pragma once
// Whole files in, whole files out. A file is written under a temporary name in its own folder, synced, and
// renamed, so a reader sees the old file or the new one and never half of one, whatever kills the writer.
// Every failure (missing, folder, no permission, full disk, I/O error) is an Error that names the path and
// the way out. Not thread-safe per object; different files may be written at the same time.

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace normlab {

namespace internal {
// The system calls that can fail while writing; tests put failing ones in their place.
struct FileCalls {
  ssize_t (*write)(int, const void*, size_t) = ::write;
  int (*fsync)(int) = ::fsync;
  int (*close)(int) = ::close;
  int (*rename)(const char*, const char*) = std::rename;
};
}  // namespace internal

// The bytes of a file; a pipe is read to its end.
std::string ReadFile(const std::filesystem::path& path);

// Replaces or creates `path` with these bytes, atomically and durably.
void WriteFileAtomic(const std::filesystem::path& path, std::string_view bytes);

// What stands at a path, links followed. Throws Error where that cannot be told: a name that is too long,
// links that lead in a circle, a folder that may not be entered.
enum class PathKind { kNothing, kFolder, kOther };
PathKind KindOf(const std::filesystem::path& path);

// Makes the folder and those above it; nothing where it exists. Throws Error where a file is in the way.
void CreateDirectories(const std::filesystem::path& path);

// The fingerprint (base/hash.h) of a file's bytes, read in pieces.
std::string FileHash(const std::filesystem::path& path);

// What a file must be to be the one that was written.
struct FileStamp {
  uint64_t bytes = 0;
  std::string hash;
  bool operator==(const FileStamp&) const = default;
};

// Whether a path has the name of a temporary of AtomicFile or AtomicFolder: what a killed writer leaves, and
// nobody's data.
bool IsTemporary(const std::filesystem::path& path);

// Removes the temporaries that killed writers left in `folder` and returns their names. Only for the owner of
// the folder, while nothing writes there.
std::vector<std::string> RemoveTemporaries(const std::filesystem::path& folder);

// WriteFileAtomic for bytes that come in pieces. Without Commit the old file stays and the temporary goes.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path, internal::FileCalls calls = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(std::string_view bytes);
  void Commit();  // syncs, renames, syncs the folder; nothing may follow

 private:
  std::filesystem::path path_;  // links followed: the file that is replaced
  std::filesystem::path temporary_;
  internal::FileCalls calls_;
  int descriptor_ = -1;
};

// A folder that appears whole or not at all: its files are written (each durably) into temporary(), a folder
// beside `path`, which Commit gives its name. Without Commit the temporary goes with all that is in it.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& path, internal::FileCalls calls = {});
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  void Commit();  // syncs, renames, syncs the folder above; replaces a folder that stands there

 private:
  std::filesystem::path path_, temporary_;
  internal::FileCalls calls_;
};

// Removes a folder with all that is in it, so that whoever is killed meanwhile leaves it whole or gone (its
// rest is a temporary). Nothing where there is none.
void RemoveFolder(const std::filesystem::path& path);

// Appends lines to a file, each with one system call, so that a line that Append returned from is in the file
// even if the process dies. Opening cuts an unfinished last line, which a killed writer may have left; a
// failed Append leaves the file as it was before.
class LineFile {
 public:
  explicit LineFile(const std::filesystem::path& path, internal::FileCalls calls = {});
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  void Append(std::string_view line);  // without its "\n"; holds none

 private:
  std::filesystem::path path_;
  internal::FileCalls calls_;
  int descriptor_ = -1;
};

}  // namespace normlab
