#pragma once
// One process at a time in a folder. The lock is flock(2) on a hidden file in it: it goes with the process,
// however that ends, so a lock that a dead process left is taken without a word. The file stays and says who
// holds it, or held it and was killed; who ends well empties it.
//
// Some network file systems keep flock within each host. There, a file that names a process of another host
// is believed, since nobody here can tell whether that process lives.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace normlab {

// Who works in a folder. What the file does not tell is empty.
struct LockOwner {
  int64_t pid = 0;
  std::string host, program;  // program: "normlab compare"
  std::string since;          // UTC, ISO 8601
  int64_t started_ticks =
      0;  // of the process, in clock ticks since the boot of the host: pids are used again

  std::string ToString() const;  // "normlab compare (process 4711 on host, since 2030-01-01T00:00:00Z)"
};

class FolderLock {
 public:
  // Throws Error that names the owner, since when, and the way out.
  FolderLock(const std::filesystem::path& folder, std::string_view program);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  static constexpr std::string_view kFileName = ".lock";

 private:
  int descriptor_ = -1;
};

enum class OwnerState {
  kAlive,
  kDead,     // killed, or the host went down: the next start takes the lock
  kUnknown,  // of another host
};

struct LockState {
  LockOwner owner;
  OwnerState state = OwnerState::kDead;
};

// Who works in `folder`, or was killed in it; nothing where nobody does. Takes no lock and writes nothing.
std::optional<LockState> ReadLock(const std::filesystem::path& folder);

namespace internal {
// What a lock file says; nothing for an empty one. One that cannot be read names nobody.
std::optional<LockOwner> ParseLockOwner(std::string_view text);
std::string LockText(const LockOwner& owner);
LockOwner ThisProcess(std::string_view program);
OwnerState StateOf(const LockOwner& owner);
// Whether an owner whose flock was free may live all the same.
bool MayLiveElsewhere(const LockOwner& owner, bool network_file_system);
}  // namespace internal
}  // namespace normlab
