#include "normlab/base/interference.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "normlab/base/files.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::TempFolder;

TEST(Interference, StolenTimeIsTheEighthNumberOfAllProcessors) {
  TempFolder proc;
  proc.Write("stat", "cpu  1 20 300 4000 50000 600000 7000000 850 9 10\ncpu0 1 1 1 1 1 1 1 1\n");
  EXPECT_DOUBLE_EQ(*StolenSeconds(proc.path()), 850.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  proc.Write("stat", "cpu  1 20 300 4000 50000 600000 7000000\n");  // before Linux 2.6.11
  EXPECT_EQ(StolenSeconds(proc.path()), std::nullopt);
  EXPECT_EQ(StolenSeconds(proc / "nowhere"), std::nullopt);
}

TEST(Interference, MhzIsTheMeanOverProcessors) {
  TempFolder folder;
  folder.Write("cpuinfo", "processor : 0\ncpu MHz\t\t: 2000.5\nprocessor : 1\ncpu MHz\t\t: 3000.5\n");
  EXPECT_DOUBLE_EQ(*ProcessorMhz(folder / "cpu", folder.path()), 2500.5);
  for (const char* cpu : {"cpu/cpu0", "cpu/cpu1"}) {
    CreateDirectories(folder / cpu / "cpufreq");
    WriteFileAtomic(folder / cpu / "cpufreq/scaling_cur_freq", cpu[7] == '0' ? "1000000\n" : "2000000\n");
  }
  EXPECT_DOUBLE_EQ(*ProcessorMhz(folder / "cpu", folder.path()), 1500);  // cpufreq is asked first
}

TEST(Interference, WhatTheSystemDoesNotTellIsNoNumber) {
  TempFolder folder;
  EXPECT_EQ(ProcessorMhz(folder / "cpu", folder.path()), std::nullopt);
  folder.Write("cpuinfo", "processor : 0\nBogoMIPS : 50.00\n");  // as on ARM
  EXPECT_EQ(ProcessorMhz(folder / "cpu", folder.path()), std::nullopt);
}

TEST(Interference, CountsOfThisProcessNeverFall) {
  const int64_t before = InvoluntarySwitches();
  EXPECT_GE(before, 0);
  EXPECT_GE(InvoluntarySwitches(), before);
}

}  // namespace
}  // namespace normlab
