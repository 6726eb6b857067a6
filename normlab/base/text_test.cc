#include "normlab/base/text.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace normlab {
namespace {

TEST(Text, WrapsAtSpacesAndKeepsEveryWord) {
  EXPECT_EQ(Wrap("one two three", 7), "one two\nthree\n");
  EXPECT_EQ(Wrap("one two", 8, "a: ", "   "), "a: one\n   two\n");
  EXPECT_EQ(Wrap("", 8, "label"), "label\n");
}

TEST(Text, BreaksAWordThatIsLongerThanALine) { EXPECT_EQ(Wrap("ab 1234567 c", 4), "ab\n1234\n567\nc\n"); }

TEST(Text, CountsCharactersNotBytes) { EXPECT_EQ(Wrap("\xc3\xa9\xc3\xa9 ab", 5), "\xc3\xa9\xc3\xa9 ab\n"); }

TEST(Text, ControlCharactersAreShownNotSent) {
  EXPECT_EQ(Printable("a\nb\x1b[31m\t"), "a\\nb\\x1b[31m\\t");
  EXPECT_EQ(Printable("\xc3\xa9\x7f"), "\xc3\xa9\\x7f");
}

TEST(Text, BytesThatMayBeNoTextAreShownAsNumbers) {
  EXPECT_EQ(Printable("a\xed\xff\n", Shown::kAsciiOnly), "a\\xed\\xff\\n");
}

TEST(Text, CharactersAreCutWhole) {
  EXPECT_EQ(Characters("a\xc3\xa9"
                       "b"),
            3u);
  EXPECT_EQ(FirstCharacters("a\xc3\xa9"
                            "b",
                            2),
            "a\xc3\xa9");
  EXPECT_EQ(FirstCharacters("ab", 5), "ab");
  EXPECT_EQ(FirstCharacters("ab", 0), "");
}

TEST(Text, NumbersAreSaidAsPeopleSayThem) {
  EXPECT_EQ(Counted(1, "seed"), "1 seed");
  EXPECT_EQ(Counted(0u, "seed"), "0 seeds");
  EXPECT_EQ(Counted(int64_t{1200}, "seed"), "1,200 seeds");
  EXPECT_EQ(Rounded(1234567.8), "1,234,568");
  EXPECT_EQ(ShapeText(std::vector<int64_t>{2, 3}), "[2, 3]");
  EXPECT_EQ(ShapeText({}), "[]");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(NonFiniteText(infinity), "inf");
  EXPECT_EQ(NonFiniteText(-infinity), "-inf");
  EXPECT_EQ(NonFiniteText(-std::nan("")), "nan");
}

TEST(Text, ATimeIsInUtcAndSorts) {
  const std::string now = UtcNow();
  ASSERT_EQ(now.size(), 20u) << now;
  EXPECT_EQ(now[10], 'T');
  EXPECT_EQ(now.back(), 'Z');
  EXPECT_GT(now, "2024-01-01T00:00:00Z");
}

}  // namespace
}  // namespace normlab
