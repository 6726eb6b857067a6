#include "normlab/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/json.h"
#include "normlab/base/text.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

std::string Reason(int error) { return std::generic_category().message(error); }

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Field 22 of /proc/<pid>/stat (proc(5)); 0 where there is none. The name before it may hold anything.
int64_t StartedTicks(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  std::istringstream value(field);
  int64_t ticks = 0;
  value >> ticks;
  return ticks;
}

// File systems that are mounted by several hosts and may keep flock to one: linux/magic.h, and those of
// lustre, gpfs, beegfs and ceph.
bool IsNetworkFileSystem(int descriptor) {
  constexpr uint32_t kTypes[] = {0x6969,     0x517B,     0xFF534D42, 0xFE534D42, 0x65735546, 0x0BD00BD0,
                                 0x47504653, 0x19830326, 0x00C36400, 0x01021997, 0x5346414F};
  struct statfs info {};
  if (::fstatfs(descriptor, &info) != 0) return false;
  return std::ranges::find(kTypes, static_cast<uint32_t>(info.f_type)) != std::end(kTypes);
}

std::string ReadAll(int descriptor) {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

}  // namespace

namespace internal {

std::optional<LockOwner> ParseLockOwner(std::string_view text) {
  if (text.find_first_not_of(" \n") == std::string_view::npos) return std::nullopt;
  LockOwner owner;
  try {
    const Json json = ParseJson(text, FolderLock::kFileName, JsonComments::kRefuse);
    if (json.is_number_integer()) {  // of a normlab that wrote no more than its number
      owner.pid = json.get<int64_t>();
      return owner;
    }
    owner.pid = json.value("pid", int64_t{0});
    owner.host = json.value("host", "");
    owner.program = json.value("program", "");
    owner.since = json.value("since", "");
    owner.started_ticks = json.value("started_ticks", int64_t{0});
  } catch (const std::exception&) {
    return LockOwner{};
  }
  return owner;
}

std::string LockText(const LockOwner& owner) {
  return DumpJson({{"pid", owner.pid},
                   {"host", owner.host},
                   {"program", owner.program},
                   {"since", owner.since},
                   {"started_ticks", owner.started_ticks}}) +
         "\n";
}

LockOwner ThisProcess(std::string_view program) {
  return {.pid = ::getpid(),
          .host = HostName(),
          .program = std::string(program),
          .since = UtcNow(),
          .started_ticks = StartedTicks(::getpid())};
}

OwnerState StateOf(const LockOwner& owner) {
  if (owner.pid <= 0) return OwnerState::kUnknown;
  if (!owner.host.empty() && owner.host != HostName()) return OwnerState::kUnknown;
  if (::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno != EPERM) return OwnerState::kDead;
  const int64_t started = StartedTicks(owner.pid);
  const bool another = owner.started_ticks != 0 && started != 0 && started != owner.started_ticks;
  return another ? OwnerState::kDead : OwnerState::kAlive;
}

bool MayLiveElsewhere(const LockOwner& owner, bool network_file_system) {
  return network_file_system && !owner.host.empty() && owner.host != HostName();
}

}  // namespace internal

std::string LockOwner::ToString() const {
  std::string text = program.empty() ? "another normlab" : Printable(program);
  text += pid > 0 ? fmt::format(" (process {}", pid) : " (process unknown";
  if (!host.empty()) text += " on " + Printable(host);
  if (!since.empty()) text += ", since " + Printable(since);
  return text + ")";
}

FolderLock::FolderLock(const fs::path& folder, std::string_view program) {
  const fs::path path = folder / kFileName;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    Fail("cannot write in \"{}\": {}; check its permissions or choose another --out", folder.string(),
         Reason(errno));
  const bool taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  const int error = errno;
  const std::optional<LockOwner> owner = internal::ParseLockOwner(ReadAll(descriptor_));
  const bool elsewhere =
      taken && owner && internal::MayLiveElsewhere(*owner, IsNetworkFileSystem(descriptor_));
  if (!taken || elsewhere) ::close(std::exchange(descriptor_, -1));
  if (!taken && error != EWOULDBLOCK)
    Fail("cannot lock \"{}\": {}; choose a folder on another file system", folder.string(), Reason(error));
  if (!taken)
    Fail("{} is at work in \"{}\"; wait until it ends, or choose another --out",
         owner.value_or(LockOwner{}).ToString(), folder.string());
  if (elsewhere)
    Fail(
        "{} was at work in \"{}\", and whether it still is cannot be told from this host; where it has "
        "ended, "
        "delete \"{}\"",
        owner->ToString(), folder.string(), path.string());

  // Written over before it is cut: who reads meanwhile finds an owner.
  const std::string text = internal::LockText(internal::ThisProcess(program));
  const auto size = static_cast<ssize_t>(text.size());
  if (::pwrite(descriptor_, text.data(), text.size(), 0) != size || ::ftruncate(descriptor_, size) != 0) {
    // The lock holds without an owner in the file; only messages to others lose the name.
  }
}

FolderLock::~FolderLock() {
  if (::ftruncate(descriptor_, 0) != 0) {
    // The next start finds the name of a process that is gone.
  }
  ::close(descriptor_);
}

std::optional<LockState> ReadLock(const fs::path& folder) {
  std::ifstream file(folder / FolderLock::kFileName);
  std::string text;
  std::getline(file, text, '\0');
  const std::optional<LockOwner> owner = internal::ParseLockOwner(text);
  if (!owner) return std::nullopt;
  return LockState{*owner, internal::StateOf(*owner)};
}

}  // namespace normlab
