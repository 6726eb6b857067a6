#include "normlab/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>

#include "normlab/base/error.h"
#include "normlab/base/hash.h"

namespace normlab {
namespace {

constexpr std::string_view kTemporaryPrefix = ".normlab-tmp-";
// One call moves at most 0x7ffff000 bytes on Linux (read(2)); pieces of this size stay below.
constexpr size_t kPiece = size_t{1} << 26;

std::string Reason(int error) { return std::generic_category().message(error); }

std::string_view Advice(int error) {
  switch (error) {
    case ENOENT:
      return "; check the path";
    case EACCES:
    case EPERM:
      return "; check the permissions of the file and of the folders above it";
    case EISDIR:
      return "; name a file in it";
    case ENOSPC:
    case EDQUOT:
      return "; free some space or choose another folder";
    case EFBIG:
      return "; the file system or `ulimit -f` limits the size of files";
    case EIO:
      return "; the disk or network drive failed: see the system's log";
    case ENAMETOOLONG:
      return "; choose a shorter name: most file systems take 255 bytes";
    case ELOOP:
      return "; its links lead in a circle: name the place itself";
    case EROFS:
      return "; choose a folder on a file system that can be written";
    default:
      return "";
  }
}

[[noreturn]] void FailOn(std::string_view action, const std::filesystem::path& path, int error) {
  Fail("cannot {} \"{}\": {}{}", action, path.string(), Reason(error), Advice(error));
}

// Closes a descriptor whose close cannot lose data.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int OpenToRead(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) FailOn("read", path, errno);
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(fd);
    Fail("cannot read \"{}\": it is a folder; name a file in it", path.string());
  }
  return fd;
}

// Up to `size` bytes; fewer only at the end of the file.
size_t ReadPiece(int fd, char* out, size_t size, const std::filesystem::path& path) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd, out + done, std::min(size - done, kPiece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) FailOn("read", path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void WriteAll(int fd, std::string_view bytes, const internal::FileCalls& calls,
              const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = calls.write(fd, bytes.data(), std::min(bytes.size(), kPiece));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) FailOn("write", path, errno);
    if (wrote == 0) FailOn("write", path, EIO);  // no progress and no reason: never loop on it
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
}

std::filesystem::path FolderOf(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? "." : folder;
}

// Makes what was created or renamed in `folder` durable; messages name `path`.
void SyncFolder(const std::filesystem::path& folder, const internal::FileCalls& calls,
                const std::filesystem::path& path) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) return;  // a folder that may be written but not read: the file itself is safe
  // Some file systems cannot sync a folder and say EINVAL; they have nothing to sync.
  if (calls.fsync(opened.get()) != 0 && errno != EINVAL && errno != ENOTSUP) FailOn("write", path, errno);
}

std::string TemporaryName() {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}", kTemporaryPrefix, random(), random());
}

}  // namespace

std::string ReadFile(const std::filesystem::path& path) {
  const Descriptor file(OpenToRead(path));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) FailOn("read", path, errno);
  std::string bytes;
  size_t size = 0;
  // A pipe, or a file under /proc, does not tell its size: read on until nothing comes.
  size_t room = S_ISREG(status.st_mode) ? static_cast<size_t>(status.st_size) + 1 : size_t{1} << 16;
  while (true) {
    bytes.resize(size + room);
    const size_t got = ReadPiece(file.get(), bytes.data() + size, room, path);
    size += got;
    if (got < room) break;
    room = size;
  }
  bytes.resize(size);
  return bytes;
}

void WriteFileAtomic(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.Write(bytes);
  file.Commit();
}

PathKind KindOf(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none) FailOn("use", path, error.value());
  if (!std::filesystem::exists(status)) return PathKind::kNothing;
  return std::filesystem::is_directory(status) ? PathKind::kFolder : PathKind::kOther;
}

void CreateDirectories(const std::filesystem::path& path) {
  if (path.empty()) Fail("\"\" is no name of a folder; give it one");
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && std::filesystem::is_directory(path)) return;
  // The file that stands where a folder should be, if that is the reason.
  std::filesystem::path prefix;
  for (const std::filesystem::path& part : path) {
    prefix /= part;
    std::error_code ignored;
    if (std::filesystem::exists(prefix, ignored) && !std::filesystem::is_directory(prefix, ignored))
      Fail("cannot make the folder \"{}\": \"{}\" is a file; choose another folder or move the file away",
           path.string(), prefix.string());
  }
  if (std::error_code ignored; std::filesystem::is_symlink(path, ignored))
    Fail(
        "cannot make the folder \"{}\": it is a link that leads nowhere; remove it, or choose another folder",
        path.string());
  FailOn("make the folder", path, error.value());
}

std::string FileHash(const std::filesystem::path& path) {
  const Descriptor file(OpenToRead(path));
  std::string piece(size_t{1} << 20, '\0');
  Hasher hasher;
  while (true) {
    const size_t got = ReadPiece(file.get(), piece.data(), piece.size(), path);
    hasher.Update(std::string_view(piece).substr(0, got));
    if (got < piece.size()) return hasher.Hex();
  }
}

bool IsTemporary(const std::filesystem::path& path) {
  return path.filename().string().starts_with(kTemporaryPrefix);
}

std::vector<std::string> RemoveTemporaries(const std::filesystem::path& folder) {
  std::vector<std::string> removed;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code failure;
    if (!IsTemporary(entry.path())) continue;
    std::filesystem::remove_all(entry.path(), failure);
    if (!failure) removed.push_back(name);
  }
  if (error) FailOn("list the folder", folder, error.value());
  std::sort(removed.begin(), removed.end());
  return removed;
}

AtomicFile::AtomicFile(const std::filesystem::path& path, internal::FileCalls calls)
    : path_(path), calls_(calls) {
  std::error_code error;
  // A link stays a link: the file it leads to is replaced.
  if (std::filesystem::is_symlink(path_, error)) {
    path_ = std::filesystem::weakly_canonical(path_, error);
    if (error) FailOn("write", path, error.value());
  }
  const auto status = std::filesystem::status(path_, error);
  if (std::filesystem::is_directory(status))
    Fail("cannot write \"{}\": it is a folder; name a file in it", path.string());
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    Fail("cannot write \"{}\": it is a device or pipe, which cannot be replaced; name an ordinary file",
         path.string());
  if (path_.filename().empty()) Fail("cannot write \"{}\": name a file", path.string());

  const std::filesystem::path folder = FolderOf(path_);
  if (!std::filesystem::is_directory(folder, error))
    Fail("cannot write \"{}\": the folder \"{}\" does not exist; make it or choose another", path.string(),
         folder.string());
  temporary_ = folder / TemporaryName();
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) FailOn("write", path, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) calls_.close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::Write(std::string_view bytes) {
  NL_CHECK(descriptor_ >= 0);
  WriteAll(descriptor_, bytes, calls_, path_);
}

void AtomicFile::Commit() {
  NL_CHECK(descriptor_ >= 0);
  if (calls_.fsync(descriptor_) != 0) FailOn("write", path_, errno);
  const int closing = descriptor_;
  descriptor_ = -1;  // closed even where close reports a failure (close(2))
  if (calls_.close(closing) != 0 && errno != EINTR) FailOn("write", path_, errno);
  if (calls_.rename(temporary_.c_str(), path_.c_str()) != 0) FailOn("write", path_, errno);
  temporary_.clear();
  SyncFolder(FolderOf(path_), calls_, path_);
}

AtomicFolder::AtomicFolder(const std::filesystem::path& path, internal::FileCalls calls)
    : path_(path), calls_(calls) {
  temporary_ = FolderOf(path_) / TemporaryName();
  if (::mkdir(temporary_.c_str(), 0777) != 0) {
    const int error = errno;
    temporary_.clear();
    FailOn("write", path_, error);
  }
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void AtomicFolder::Commit() {
  NL_CHECK(!temporary_.empty());
  SyncFolder(temporary_, calls_, path_);
  RemoveFolder(path_);  // rename(2) would refuse a folder that is not empty
  if (calls_.rename(temporary_.c_str(), path_.c_str()) != 0) FailOn("write", path_, errno);
  temporary_.clear();
  SyncFolder(FolderOf(path_), calls_, path_);
}

void RemoveFolder(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored))
    Fail("cannot remove the folder \"{}\": it is a file", path.string());
  const std::filesystem::path temporary = FolderOf(path) / TemporaryName();
  if (std::rename(path.c_str(), temporary.c_str()) != 0) {
    if (errno == ENOENT) return;
    FailOn("remove", path, errno);
  }
  std::error_code error;
  std::filesystem::remove_all(temporary, error);
  if (error) FailOn("remove", path, error.value());
}

LineFile::LineFile(const std::filesystem::path& path, internal::FileCalls calls)
    : path_(path), calls_(calls) {
  if (std::filesystem::is_directory(path))
    Fail("cannot write \"{}\": it is a folder; name a file in it", path.string());
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) FailOn("write", path, errno);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return;

  // Looks for the last "\n" from the end, piece by piece.
  off_t end = status.st_size;
  std::string piece(4096, '\0');
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(piece.size()));
    const ssize_t got = ::pread(descriptor_, piece.data(), static_cast<size_t>(end - begin), begin);
    if (got != end - begin) break;
    const size_t found = std::string_view(piece).substr(0, static_cast<size_t>(got)).rfind('\n');
    if (found != std::string_view::npos) {
      end = begin + static_cast<off_t>(found) + 1;
      break;
    }
    end = begin;
  }
  if (end < status.st_size && ::ftruncate(descriptor_, end) != 0) {
    const int error = errno;
    ::close(descriptor_);
    FailOn("write", path, error);
  }
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) calls_.close(descriptor_);
}

void LineFile::Append(std::string_view line) {
  NL_CHECK(line.find('\n') == std::string_view::npos);
  std::string bytes(line);
  bytes += '\n';
  struct stat before {};
  const bool regular = ::fstat(descriptor_, &before) == 0 && S_ISREG(before.st_mode);
  try {
    WriteAll(descriptor_, bytes, calls_, path_);
  } catch (const Error&) {
    if (regular && ::ftruncate(descriptor_, before.st_size) != 0) {
      // The unfinished line stays; the next opening cuts it.
    }
    throw;
  }
}

}  // namespace normlab
