#include "normlab/base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace normlab {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The value after `key` in a file of "key value" lines.
std::optional<int64_t> Field(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  int64_t value = 0;
  while (file >> name >> value)
    if (name == key) return value;
  return std::nullopt;
}

bool Lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == wanted) return true;
    controllers = comma == std::string_view::npos ? "" : controllers.substr(comma + 1);
  }
  return false;
}

// The process's group for a controller ("" for version 2): the path of a line "4:memory:/a/b".
std::string GroupOf(const fs::path& membership, std::string_view controller) {
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (controllers == controller || (!controller.empty() && Lists(controllers, controller)))
      return line.substr(second + 1);
  }
  return "/";
}

// The folder of a group and those of all groups above it, up to the root.
std::vector<fs::path> Folders(const fs::path& root, const std::string& group) {
  std::vector<fs::path> folders = {root};
  for (const fs::path& part : fs::path(group).relative_path()) {
    if (part.empty() || part == "." || part == "..") continue;  // ".." leads out of what is mounted here
    folders.push_back(folders.back() / part);
  }
  return folders;
}

std::vector<fs::path> Folders1(const CgroupPlace& place, const char* controller) {
  return Folders(place.root / controller, GroupOf(place.membership, controller));
}
std::vector<fs::path> Folders2(const CgroupPlace& place) {
  const std::string group = GroupOf(place.membership, "");
  std::vector<fs::path> folders = Folders(place.root, group);
  const std::vector<fs::path> beside = Folders(place.root / "unified", group);  // beside version 1
  folders.insert(folders.end(), beside.begin(), beside.end());
  return folders;
}

template <class T>
void TakeSmaller(std::optional<T>& smallest, T value) {
  smallest = smallest ? std::min(*smallest, value) : value;
}

void TakeLeft(std::optional<uint64_t>& smallest, std::optional<int64_t> limit, std::optional<int64_t> used,
              std::optional<int64_t> file_cache) {
  // Version 1 writes no limit as a number near 2^63.
  if (!limit || *limit < 0 || *limit >= (int64_t{1} << 60)) return;
  const int64_t use = std::max<int64_t>(0, used.value_or(0) - file_cache.value_or(0));
  TakeSmaller(smallest, static_cast<uint64_t>(std::max<int64_t>(0, *limit - use)));
}

}  // namespace

std::optional<double> CgroupCpuQuota(const CgroupPlace& place) {
  std::optional<double> smallest;
  for (const fs::path& folder : Folders2(place)) {  // "150000 100000", or "max 100000"
    const std::string line = FirstLine(folder / "cpu.max");
    const size_t blank = line.find(' ');
    if (blank == std::string::npos) continue;
    const auto quota = Number(line), period = Number(std::string_view(line).substr(blank + 1));
    if (quota && period && *quota > 0 && *period > 0)
      TakeSmaller(smallest, static_cast<double>(*quota) / static_cast<double>(*period));
  }
  for (const fs::path& folder : Folders1(place, "cpu")) {
    const auto quota = Number(FirstLine(folder / "cpu.cfs_quota_us"));
    const auto period = Number(FirstLine(folder / "cpu.cfs_period_us"));
    if (quota && period && *quota > 0 && *period > 0)
      TakeSmaller(smallest, static_cast<double>(*quota) / static_cast<double>(*period));
  }
  return smallest;
}

std::optional<uint64_t> CgroupMemoryLeft(const CgroupPlace& place) {
  std::optional<uint64_t> smallest;
  for (const fs::path& folder : Folders2(place))
    TakeLeft(smallest, Number(FirstLine(folder / "memory.max")), Number(FirstLine(folder / "memory.current")),
             Field(folder / "memory.stat", "inactive_file"));
  for (const fs::path& folder : Folders1(place, "memory"))
    TakeLeft(smallest, Number(FirstLine(folder / "memory.limit_in_bytes")),
             Number(FirstLine(folder / "memory.usage_in_bytes")),
             Field(folder / "memory.stat", "total_inactive_file"));
  return smallest;
}

}  // namespace normlab
