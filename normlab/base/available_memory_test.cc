#include "normlab/base/available_memory.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "normlab/base/files.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::TempFolder;

TEST(ReadAvailableMemory, IsTheSmallestLimitAndNamesIt) {
  const TempFolder folder;
  const CgroupPlace cgroup{.root = folder / "cgroup", .membership = folder / "membership"};
  CreateDirectories(folder / "cgroup/job");
  CreateDirectories(folder / "self");
  EXPECT_FALSE(ReadAvailableMemory(folder.path(), cgroup).has_value());

  folder.Write("meminfo", "MemTotal:       16000 kB\nMemFree:  10 kB\nMemAvailable:    8000 kB\n");
  auto available = ReadAvailableMemory(folder.path(), cgroup);
  ASSERT_TRUE(available.has_value());
  EXPECT_EQ(available->bytes, 8000u * 1024);
  EXPECT_EQ(available->limit, AvailableMemory::kMachine);

  folder.Write("membership", "0::/job\n");
  folder.Write("cgroup/job/memory.max", "2000000\n");
  folder.Write("cgroup/job/memory.current", "500000\n");
  available = ReadAvailableMemory(folder.path(), cgroup);
  ASSERT_TRUE(available.has_value());
  EXPECT_EQ(available->bytes, 1500000u);
  EXPECT_EQ(available->limit, AvailableMemory::kCgroup);
}

TEST(ReadAvailableMemory, CountsTheLimitOfTheAddressSpaceWithoutWhatIsUsed) {
  const TempFolder folder;
  CreateDirectories(folder / "self");
  folder.Write("self/status", "Name:\tx\nVmSize:\t 1048576 kB\n");
  rlimit before{}, limited{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  limited = before;
  limited.rlim_cur = rlim_t{1} << 60;  // far above any use: only the arithmetic is under test
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limited), 0);
  const auto available = ReadAvailableMemory(folder.path(), {.root = folder / "none", .membership = "none"});
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_TRUE(available.has_value());
  EXPECT_EQ(available->bytes, (uint64_t{1} << 60) - (uint64_t{1} << 30));
  EXPECT_EQ(available->limit, AvailableMemory::kAddressSpace);
}

TEST(ReadAvailableMemory, KnowsThisMachine) {
  const auto available = ReadAvailableMemory();
  ASSERT_TRUE(available.has_value());
  EXPECT_GT(available->bytes, uint64_t{1} << 20);
}

}  // namespace
}  // namespace normlab
