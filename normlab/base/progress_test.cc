#include "normlab/base/progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

namespace normlab {
namespace {

// A stream that remembers and a clock that is set by hand.
struct FakeTerminal {
  std::string text;
  double now_s = 100;
  int columns = 80;

  ProgressOptions Options(bool terminal, bool ansi) {
    return {.write = [this](std::string_view written) { text += written; },
            .now_s = [this] { return now_s; },
            .columns = [this] { return columns; },
            .terminal = terminal,
            .ansi = ansi};
  }
  // What was written since the last call.
  std::string Take() { return std::exchange(text, ""); }
};

TEST(Progress, RewritesItsLineOnATerminalAtMostFiveTimesASecond) {
  FakeTerminal fake;
  Progress progress(fake.Options(true, true));
  progress.Update("one");
  EXPECT_EQ(fake.Take(), "\rone\x1b[K");
  fake.now_s += 0.1;
  progress.Update("two");
  EXPECT_EQ(fake.Take(), "");
  fake.now_s += 0.11;
  progress.Update("three");
  EXPECT_EQ(fake.Take(), "\rthree\x1b[K");

  int drawings = 0;
  for (int i = 0; i < 1000; ++i) {  // one second
    fake.now_s += 0.001;
    progress.Update("x");
    if (!fake.Take().empty()) ++drawings;
  }
  EXPECT_GE(drawings, 4);
  EXPECT_LE(drawings, 5);
}

TEST(Progress, ShowsTheLastUpdateAtTheEnd) {
  FakeTerminal fake;
  {
    Progress progress(fake.Options(true, true));
    progress.Update("step 1");
    progress.Update("step 2");
    fake.Take();
  }
  EXPECT_EQ(fake.Take(), "\rstep 2\x1b[K\n");
}

TEST(Progress, WritesNothingWhereNothingHappened) {
  FakeTerminal fake;
  { Progress progress(fake.Options(true, true)); }
  EXPECT_EQ(fake.Take(), "");
}

TEST(Progress, InAPipeIsAPlainLineEveryTenSeconds) {
  FakeTerminal fake;
  Progress progress(fake.Options(false, false));
  progress.Update("one");
  EXPECT_EQ(fake.Take(), "one\n");
  fake.now_s += 9.9;
  progress.Update("two");
  EXPECT_EQ(fake.Take(), "");
  fake.now_s += 0.2;
  progress.Update("three");
  EXPECT_EQ(fake.Take(), "three\n");
  progress.Update("last");
  progress.Finish();
  EXPECT_EQ(fake.Take(), "last\n");
  progress.Finish();
  EXPECT_EQ(fake.Take(), "");
}

TEST(Progress, WithoutEscapeSequencesBlanksTheRestOfTheOldLine) {
  FakeTerminal fake;
  Progress progress(fake.Options(true, false));
  progress.Update("a long line");
  fake.now_s += 1;
  progress.Update("short");
  progress.Message("note");
  progress.Finish();
  const std::string text = fake.Take();
  EXPECT_EQ(text, "\ra long line\rshort      \r     \rnote\n\rshort\n");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Progress, IsCutToTheWidthByCharactersNotBytes) {
  FakeTerminal fake;
  fake.columns = 6;
  Progress progress(fake.Options(true, true));
  progress.Update("0123456789");
  EXPECT_EQ(fake.Take(), "\r01234\x1b[K");
  fake.now_s += 1;
  progress.Update("\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9");
  EXPECT_EQ(fake.Take(), "\r\u00e9\u00e9\u00e9\u00e9\u00e9\x1b[K");
  fake.columns = 0;  // a terminal that tells nonsense
  fake.now_s += 1;
  progress.Update("x");
  EXPECT_EQ(fake.Take(), "\rx\x1b[K");
}

TEST(Progress, AMessageStandsAboveTheLine) {
  FakeTerminal fake;
  Progress progress(fake.Options(true, true));
  progress.Message("before");
  progress.Update("step 1");
  fake.Take();
  progress.Message("seed 2 diverged");
  EXPECT_EQ(fake.Take(), "\r\x1b[Kseed 2 diverged\n\rstep 1\x1b[K");
}

TEST(Progress, LetsNoControlCharacterThrough) {
  FakeTerminal fake;
  Progress progress(fake.Options(true, true));
  progress.Update("a\nb\x1b[2Jc");
  EXPECT_EQ(fake.Take(), "\ra\\nb\\x1b[2Jc\x1b[K");
}

TEST(ProgressOptionsFor, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const ProgressOptions options = ProgressOptionsFor(file, nullptr, "xterm");
  EXPECT_FALSE(options.terminal);
  EXPECT_FALSE(options.ansi);
  EXPECT_EQ(options.columns(), 80);
  const double before = options.now_s();
  EXPECT_LE(before, options.now_s());
  options.write("text");
  EXPECT_EQ(std::ftell(file), 4);
  std::fclose(file);
}

TEST(ProgressOptionsFor, OnATerminalNoColorAndDumbTurnEscapesOff) {
  const int fd = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (fd < 0) GTEST_SKIP() << "no pseudo-terminal here";
  ASSERT_EQ(::grantpt(fd), 0);
  ASSERT_EQ(::unlockpt(fd), 0);
  std::FILE* terminal = std::fopen(::ptsname(fd), "w");
  ASSERT_NE(terminal, nullptr);
  EXPECT_TRUE(ProgressOptionsFor(terminal, nullptr, "xterm").ansi);
  EXPECT_TRUE(ProgressOptionsFor(terminal, "", nullptr).ansi);
  EXPECT_FALSE(ProgressOptionsFor(terminal, "1", "xterm").ansi);
  EXPECT_FALSE(ProgressOptionsFor(terminal, nullptr, "dumb").ansi);
  EXPECT_TRUE(ProgressOptionsFor(terminal, "1", "xterm").terminal);
  std::fclose(terminal);
  ::close(fd);
}

TEST(FormatDuration, RoundsIntoTheNextUnitAndNeverShows60) {
  EXPECT_EQ(FormatDuration(0), "0.00s");
  EXPECT_EQ(FormatDuration(0.25), "0.25s");
  EXPECT_EQ(FormatDuration(0.999), "1.0s");
  EXPECT_EQ(FormatDuration(9.96), "10s");
  EXPECT_EQ(FormatDuration(59.4), "59s");
  EXPECT_EQ(FormatDuration(59.7), "1m 00s");
  EXPECT_EQ(FormatDuration(65), "1m 05s");
  EXPECT_EQ(FormatDuration(3599.6), "1h 00m");
  EXPECT_EQ(FormatDuration(9358), "2h 36m");
  EXPECT_EQ(FormatDuration(86399), "1d 00h");
  EXPECT_EQ(FormatDuration(86400 * 3 + 3600 * 4), "3d 04h");
  EXPECT_EQ(FormatDuration(-1), "?");
  EXPECT_EQ(FormatDuration(std::nan("")), "?");
  EXPECT_EQ(FormatDuration(HUGE_VAL), "?");
}

TEST(FormatCount, GroupsByThousands) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(163009536), "163,009,536");
  EXPECT_EQ(FormatCount(-999), "-999");
  EXPECT_EQ(FormatCount(-1000), "-1,000");
  EXPECT_EQ(FormatCount(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(FormatBytes, ChoosesTheUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(1048575), "1.0 MiB");
  EXPECT_EQ(FormatBytes(2.5 * 1024 * 1024 * 1024), "2.5 GiB");
  EXPECT_EQ(FormatBytes(-1), "?");
}

}  // namespace
}  // namespace normlab
