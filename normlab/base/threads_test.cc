#include "normlab/base/threads.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/base/files.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::TempFolder;

TEST(ParallelFor, RunsEveryChunkOnceForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 5, 8}) {
    for (const int64_t chunks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(chunks));
      std::atomic<int> bad_thread = 0;
      ParallelFor(threads, chunks, [&](int64_t chunk, int thread) {
        ++runs[static_cast<size_t>(chunk)];
        if (thread < 0 || thread >= threads) ++bad_thread;
      });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
      EXPECT_EQ(bad_thread, 0);
    }
  }
}

TEST(ParallelFor, ASlotIsNeverUsedByTwoChunksAtOnce) {
  constexpr int kThreads = 4;
  std::vector<std::atomic<int>> inside(kThreads);
  std::atomic<int> collisions = 0;
  ParallelFor(kThreads, 4000, [&](int64_t, int thread) {
    if (++inside[static_cast<size_t>(thread)] != 1) ++collisions;
    --inside[static_cast<size_t>(thread)];
  });
  EXPECT_EQ(collisions, 0);
}

TEST(ParallelFor, PassesTheFirstExceptionOnAndFinishesTheRest) {
  for (const int threads : {1, 4}) {
    EXPECT_THROW(ParallelFor(threads, 100,
                             [](int64_t chunk, int) {
                               if (chunk == 50) throw std::runtime_error("chunk 50");
                             }),
                 std::runtime_error);
    std::atomic<int> after = 0;
    ParallelFor(threads, 10, [&](int64_t, int) { ++after; });  // still in working order
    EXPECT_EQ(after, 10);
  }
}

TEST(ParallelFor, FlushesDenormalsInEveryThreadAndRestoresTheCaller) {
  const volatile double tiny = std::numeric_limits<double>::min();
  const auto is_flushed = [&] { return tiny / 4 == 0.0; };
  ASSERT_FALSE(is_flushed());
  for (const int threads : {1, 4}) {
    std::atomic<int> kept = 0;
    ParallelFor(threads, 64, [&](int64_t, int) { kept += is_flushed() ? 0 : 1; });
#if defined(__x86_64__)
    EXPECT_EQ(kept, 0);
#endif
    EXPECT_FALSE(is_flushed());
  }
}

TEST(ParallelFor, RestoresTheCallerAfterAnException) {
  const volatile double tiny = std::numeric_limits<double>::min();
  EXPECT_THROW(ParallelFor(1, 1, [](int64_t, int) { throw std::runtime_error("x"); }), std::runtime_error);
  EXPECT_NE(tiny / 4, 0.0);
}

// A cgroup folder with the given files.
ThreadLimits LimitsOf(const std::vector<std::pair<std::string, std::string>>& files) {
  const TempFolder folder;
  CreateDirectories(folder / "cpu");
  for (const auto& [name, text] : files) folder.Write(name, text);
  return ReadThreadLimits(folder.path().c_str());
}

TEST(ReadThreadLimits, ReadsTheQuotaOfBothCgroupVersions) {
  EXPECT_EQ(LimitsOf({{"cpu.max", "150000 100000\n"}}).cgroup_quota, 1.5);
  EXPECT_EQ(LimitsOf({{"cpu.max", "max 100000\n"}}).cgroup_quota, std::nullopt);
  EXPECT_EQ(
      LimitsOf({{"cpu/cpu.cfs_quota_us", "400000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}).cgroup_quota,
      4.0);
  EXPECT_EQ(LimitsOf({{"cpu/cpu.cfs_quota_us", "-1\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}).cgroup_quota,
            std::nullopt);
  EXPECT_EQ(LimitsOf({}).cgroup_quota, std::nullopt);
  EXPECT_EQ(LimitsOf({{"cpu.max", ""}}).cgroup_quota, std::nullopt);
  EXPECT_GE(LimitsOf({}).affinity, 1);
}

TEST(ThreadLimits, TakesTheSmallerLimitAndAtLeastOne) {
  EXPECT_EQ((ThreadLimits{.affinity = 8, .cgroup_quota = {}}.threads()), 8);
  EXPECT_EQ((ThreadLimits{.affinity = 8, .cgroup_quota = 1.5}.threads()), 2);
  EXPECT_EQ((ThreadLimits{.affinity = 2, .cgroup_quota = 16.0}.threads()), 2);
  EXPECT_EQ((ThreadLimits{.affinity = 8, .cgroup_quota = 0.1}.threads()), 1);
  EXPECT_GE(DefaultThreads(), 1);
}

}  // namespace
}  // namespace normlab
