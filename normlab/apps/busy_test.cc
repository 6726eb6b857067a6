#include "normlab/apps/busy.h"

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

namespace normlab::apps {
namespace {

TEST(Busy, AQuietMachineIsNoNews) {
  EXPECT_FALSE(BusyNote(std::nullopt).has_value());
  EXPECT_FALSE(BusyNote(0.1).has_value());
}

TEST(Busy, OtherProgramsAreNamedWithTheirShare) {
  const auto note = BusyNote(1.4);
  ASSERT_TRUE(note.has_value());
  EXPECT_NE(note->find("1.4 CPUs"), std::string::npos);
  EXPECT_NE(note->find("Losses are not"), std::string::npos);
}

TEST(Busy, TicksAreThoseOfWorkAndNotOfWaiting) {
  const auto ticks = [](const char* text) {
    std::istringstream stat(text);
    return BusyTicks(stat);
  };
  EXPECT_EQ(ticks("cpu  1 20 300 4000 50000 600000 7000000 8 9 10\ncpu0 1 1 1 1 1 1 1\n"), 7600321);
  EXPECT_EQ(ticks("cpu0 1 20 300 4000 50000 600000 7000000\n"), std::nullopt);
  EXPECT_EQ(ticks("cpu 1 20 300\n"), std::nullopt);
  EXPECT_EQ(ticks(""), std::nullopt);
}

TEST(Busy, AThreadThatSpinsIsSeen) {
  std::ifstream file("/proc/stat");
  if (BusyTicks(file).value_or(0) == 0) GTEST_SKIP() << "a system whose /proc/stat tells nothing";
  std::atomic<bool> end = false;
  std::thread spinning([&] {
    while (!end) {
    }
  });
  const auto busy = BusyCpus();
  end = true;
  spinning.join();
  ASSERT_TRUE(busy.has_value());
  EXPECT_GT(*busy, 0.05);  // other programs add to it, and take no more than their share of a CPU from it
  EXPECT_LE(*busy, 4096);
}

}  // namespace
}  // namespace normlab::apps
