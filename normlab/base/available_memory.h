#pragma once
// How much memory this process may still take, before it takes it: the smallest of what the system, the
// control groups and the process's own limit (`ulimit -v`) leave. Swap is not counted: training in it takes
// forever.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "normlab/base/cgroup.h"

namespace normlab {

struct AvailableMemory {
  static constexpr const char* kMachine = "the machine";
  static constexpr const char* kCgroup = "the cgroup's memory limit";
  static constexpr const char* kAddressSpace = "`ulimit -v`";  // counts what is mapped, touched or not

  uint64_t bytes = 0;
  std::string limit;  // one of these: what leaves no more
};

// Nothing where no source tells. `proc` is for tests.
std::optional<AvailableMemory> ReadAvailableMemory(const std::filesystem::path& proc = "/proc",
                                                   const CgroupPlace& cgroup = {});

}  // namespace normlab
