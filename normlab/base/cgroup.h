#pragma once
// What the control groups of this process allow it (cgroups(7)), versions 1 and 2. A limit may stand on the
// group itself or on any group above it, so all are read and the smallest counts. In a container the
// process's own group may be mounted as the root; folders that do not exist say nothing.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace normlab {

// Where to look: tests put folders of their own in place of the system's.
struct CgroupPlace {
  std::filesystem::path root = "/sys/fs/cgroup";
  std::filesystem::path membership = "/proc/self/cgroup";  // which groups the process is in
};

// CPUs that the quota allows, 1.5 for instance; nothing where no group sets one.
std::optional<double> CgroupCpuQuota(const CgroupPlace& place = {});

// Bytes that the groups still allow: limit minus use, where the cache of files, which gives way, is no use.
// Nothing where no group sets a limit.
std::optional<uint64_t> CgroupMemoryLeft(const CgroupPlace& place = {});

}  // namespace normlab
