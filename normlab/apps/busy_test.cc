#include "normlab/apps/busy.h"

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

TEST(Busy, TheShareIsBetweenNothingAndAllCpus) {
  const auto busy = BusyCpus();
  if (!busy) return;  // a system without /proc/stat
  EXPECT_GE(*busy, 0);
  EXPECT_LE(*busy, 4096);
}

}  // namespace
}  // namespace normlab::apps
