#include "normlab/base/threads.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
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

// P-01: the default is the smaller of the CPU affinity and the quota of the control group, rounded up.
TEST(ThreadLimits, TakesTheSmallerLimitAndAtLeastOne) {
  EXPECT_EQ((ThreadLimits{.affinity = 8, .cgroup_quota = {}}.threads()), 8);
  EXPECT_EQ((ThreadLimits{.affinity = 8, .cgroup_quota = 1.5}.threads()), 2);
  EXPECT_EQ((ThreadLimits{.affinity = 2, .cgroup_quota = 16.0}.threads()), 2);
  EXPECT_EQ((ThreadLimits{.affinity = 8, .cgroup_quota = 0.1}.threads()), 1);
  EXPECT_GE(DefaultThreads(), 1);
}

// P-01: "100000 100000" in cpu.max and one core by affinity both mean one thread.
TEST(ThreadLimits, ComeFromTheGroupAndFromTheAffinity) {
  const TempFolder folder;
  const CgroupPlace place{.root = folder.path(),
                          .membership = folder.Write("membership", "0::/system.slice/run-1.scope\n")};
  CreateDirectories(folder / "system.slice/run-1.scope");
  const int affinity = ReadThreadLimits(place).affinity;
  EXPECT_EQ(ReadThreadLimits(place).threads(), affinity);
  folder.Write("system.slice/run-1.scope/cpu.max", "100000 100000\n");
  EXPECT_EQ(ReadThreadLimits(place).threads(), 1);

  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(ReadThreadLimits().affinity, 1);
  EXPECT_EQ(DefaultThreads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

// P-03: threads that the system refuses are counted, where OpenMP would end the program.
TEST(StartableThreads, StopsWhereTheSystemDoes) {
  EXPECT_EQ(StartableThreads(0), 0);
  EXPECT_EQ(StartableThreads(20), 20);
#if !defined(__SANITIZE_ADDRESS__)  // which needs address space without end
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  ASSERT_TRUE(file >> pages);
  rlimit before{}, tight{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  tight = before;
  // Room for five stacks beside those that the C library keeps from the twenty above.
  tight.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + 5 * ThreadStackBytes();
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &tight), 0);
  const int started = StartableThreads(200);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_GE(started, 1);
  EXPECT_LE(started, 30);
#endif
}

TEST(ThreadWaitPolicy, IsWhatTheEnvironmentTellsTheRuntime) {
  const auto policy = [](const char* wait, const char* spin) {
    for (const auto& [name, value] :
         {std::pair("OMP_WAIT_POLICY", wait), std::pair("GOMP_SPINCOUNT", spin)}) {
      if (value == nullptr)
        ::unsetenv(name);
      else
        ::setenv(name, value, 1);
    }
    return ThreadWaitPolicy();
  };
  EXPECT_EQ(policy(nullptr, nullptr), "default");
  EXPECT_EQ(policy(" PASSIVE ", nullptr), "passive");
  EXPECT_EQ(policy("Active", nullptr), "active");
  EXPECT_EQ(policy("sleepy", nullptr), "default");
  EXPECT_EQ(policy("passive", "1000"), "spin 1000");
}

// P-09: one runtime, and the one that is named is the one that is loaded.
TEST(ThreadRuntime, IsTheOnlyOneLoaded) {
  ParallelFor(2, 2, [](int64_t, int) {});
  const std::vector<std::string> loaded = LoadedThreadRuntimes();
  ASSERT_EQ(loaded.size(), 1u);
  EXPECT_EQ(ThreadRuntime(), "OpenMP " + loaded[0]);
}

}  // namespace
}  // namespace normlab
