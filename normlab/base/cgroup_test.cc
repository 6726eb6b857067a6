#include "normlab/base/cgroup.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/base/files.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::TempFolder;
using Files = std::vector<std::pair<std::string, std::string>>;

// A tree of groups with these files, and a process that /proc/self/cgroup places as `membership` says.
struct Tree {
  TempFolder folder;
  CgroupPlace place;
  Tree(const std::string& membership, const Files& files) {
    place = {.root = folder / "cgroup", .membership = folder.Write("membership", membership)};
    for (const auto& [name, text] : files) {
      const std::filesystem::path path = place.root / name;
      CreateDirectories(path.parent_path());
      WriteFileAtomic(path, text);
    }
  }
};

std::optional<double> Quota(const std::string& membership, const Files& files) {
  return CgroupCpuQuota(Tree(membership, files).place);
}
std::optional<uint64_t> Left(const std::string& membership, const Files& files) {
  return CgroupMemoryLeft(Tree(membership, files).place);
}

// P-01
TEST(CgroupCpuQuota, IsReadInBothVersions) {
  EXPECT_EQ(Quota("0::/", {{"cpu.max", "100000 100000\n"}}), 1.0);
  EXPECT_EQ(Quota("0::/", {{"cpu.max", "150000 100000\n"}}), 1.5);
  EXPECT_EQ(Quota("0::/", {{"cpu.max", "max 100000\n"}}), std::nullopt);
  EXPECT_EQ(Quota("0::/", {{"cpu.max", ""}}), std::nullopt);
  EXPECT_EQ(Quota("0::/", {{"cpu.max", "many few\n"}}), std::nullopt);
  EXPECT_EQ(Quota("1:cpu:/", {{"cpu/cpu.cfs_quota_us", "400000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}),
            4.0);
  EXPECT_EQ(Quota("1:cpu:/", {{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}),
            std::nullopt);
  EXPECT_EQ(Quota("", {}), std::nullopt);
}

// P-01: `systemd-run --scope -p CPUQuota=100%` writes the quota into the scope's own group, not the root.
TEST(CgroupCpuQuota, IsTheSmallestOfTheGroupAndThoseAboveIt) {
  const std::string scope = "system.slice/run-7.scope";
  EXPECT_EQ(Quota("0::/" + scope + "\n", {{scope + "/cpu.max", "100000 100000\n"}}), 1.0);
  EXPECT_EQ(Quota("0::/" + scope + "\n",
                  {{scope + "/cpu.max", "max 100000\n"}, {"system.slice/cpu.max", "200000 100000\n"}}),
            2.0);
  EXPECT_EQ(Quota("0::/" + scope + "\n",
                  {{scope + "/cpu.max", "300000 100000\n"}, {"system.slice/cpu.max", "200000 100000\n"}}),
            2.0);
  // Another process's group is none of ours, and a group that is not mounted here leaves the root.
  EXPECT_EQ(Quota("0::/mine\n", {{"other/cpu.max", "100000 100000\n"}}), std::nullopt);
  EXPECT_EQ(Quota("0::/../elsewhere\n", {{"cpu.max", "50000 100000\n"}}), 0.5);
  EXPECT_EQ(Quota("5:memory:/m\n3:cpu,cpuacct:/a/b\n",
                  {{"cpu/a/b/cpu.cfs_quota_us", "150000\n"}, {"cpu/a/b/cpu.cfs_period_us", "100000\n"}}),
            1.5);
}

TEST(CgroupMemoryLeft, IsTheLimitMinusUseWithoutTheCacheOfFiles) {
  const Files two = {{"job/memory.max", "1000000\n"},
                     {"job/memory.current", "700000\n"},
                     {"job/memory.stat", "anon 400000\nfile 300000\ninactive_file 250000\n"}};
  EXPECT_EQ(Left("0::/job\n", two), 550000u);
  const Files one = {{"memory/job/memory.limit_in_bytes", "1000000\n"},
                     {"memory/job/memory.usage_in_bytes", "700000\n"},
                     {"memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 250000\n"}};
  EXPECT_EQ(Left("4:memory:/job\n0::/\n", one), 550000u);
  EXPECT_EQ(Left("0::/job\n", {{"job/memory.max", "max\n"}, {"job/memory.current", "5\n"}}), std::nullopt);
  EXPECT_EQ(Left("4:memory:/\n", {{"memory/memory.limit_in_bytes", "9223372036854771712\n"}}), std::nullopt);
  EXPECT_EQ(Left("0::/job\n", {{"job/memory.max", "10\n"}, {"job/memory.current", "20\n"}}), 0u);
  EXPECT_EQ(Left("", {}), std::nullopt);
}

TEST(CgroupMemoryLeft, IsTheSmallestOfTheGroupAndThoseAboveIt) {
  EXPECT_EQ(Left("0::/a/b\n", {{"a/memory.max", "1000\n"},
                               {"a/memory.current", "900\n"},
                               {"a/b/memory.max", "500\n"},
                               {"a/b/memory.current", "100\n"}}),
            100u);
}

}  // namespace
}  // namespace normlab
