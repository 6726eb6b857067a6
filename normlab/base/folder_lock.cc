#include "normlab/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "normlab/base/error.h"

namespace normlab {

namespace fs = std::filesystem;

FolderLock::FolderLock(const fs::path& folder) {
  const fs::path path = folder / kFileName;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    Fail("cannot write in \"{}\": {}; check its permissions or choose another --out", folder.string(),
         std::generic_category().message(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    std::string holder(32, '\0');
    const ssize_t got = ::pread(descriptor_, holder.data(), holder.size(), 0);
    holder.resize(got > 0 ? static_cast<size_t>(got) : 0);
    holder = holder.substr(0, holder.find('\n'));
    ::close(descriptor_);
    if (error != EWOULDBLOCK)
      Fail("cannot lock \"{}\": {}; choose a folder on another file system", folder.string(),
           std::generic_category().message(error));
    Fail("another normlab (process {}) is at work in \"{}\"; wait until it ends, or choose another --out",
         holder.empty() ? "unknown" : holder, folder.string());
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    // The lock holds without a number in the file; only the message to others loses the process.
  }
}

FolderLock::~FolderLock() { ::close(descriptor_); }

}  // namespace normlab
