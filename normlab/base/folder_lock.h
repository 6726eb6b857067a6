#pragma once

#include <filesystem>
#include <string_view>

namespace normlab {

// One process at a time in a folder, by flock(2) on a hidden file in it, which stays and holds the number
// of the last process. The lock goes with the process, however it ends. Throws Error that names the process
// that holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  static constexpr std::string_view kFileName = ".lock";

 private:
  int descriptor_ = -1;
};

}  // namespace normlab
