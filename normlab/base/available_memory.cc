#include "normlab/base/available_memory.h"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

namespace normlab {
namespace {

// Bytes after `key` in a file of "Key:   123 kB" lines (proc(5)).
std::optional<uint64_t> KilobytesField(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key + ":")) continue;
    const char* const digits = line.c_str() + key.size() + 1;
    char* end = nullptr;
    const unsigned long long kilobytes = std::strtoull(digits, &end, 10);
    if (end != digits) return static_cast<uint64_t>(kilobytes) * 1024;
  }
  return std::nullopt;
}

std::optional<uint64_t> AddressSpaceLeft(const std::filesystem::path& proc) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const uint64_t used = KilobytesField(proc / "self/status", "VmSize").value_or(0);
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

}  // namespace

std::optional<AvailableMemory> ReadAvailableMemory(const std::filesystem::path& proc,
                                                   const CgroupPlace& cgroup) {
  std::optional<AvailableMemory> smallest;
  const auto take = [&](std::optional<uint64_t> bytes, const char* limit) {
    if (bytes && (!smallest || *bytes < smallest->bytes))
      smallest = AvailableMemory{.bytes = *bytes, .limit = limit};
  };
  take(KilobytesField(proc / "meminfo", "MemAvailable"), AvailableMemory::kMachine);
  take(CgroupMemoryLeft(cgroup), AvailableMemory::kCgroup);
  take(AddressSpaceLeft(proc), AvailableMemory::kAddressSpace);
  return smallest;
}

}  // namespace normlab
