#include "normlab/study/text_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace normlab {
namespace {

TEST(TextTableTest, WrapsAtSpacesAndKeepsEveryWord) {
  EXPECT_EQ(Wrap("one two three", 7), "one two\nthree\n");
  EXPECT_EQ(Wrap("one two", 8, "a: ", "   "), "a: one\n   two\n");
  EXPECT_EQ(Wrap("", 8, "label"), "label\n");
}

TEST(TextTableTest, BreaksAWordThatIsLongerThanALine) {
  EXPECT_EQ(Wrap("ab 1234567 c", 4), "ab\n1234\n567\nc\n");
}

TEST(TextTableTest, CountsCharactersNotBytes) {
  EXPECT_EQ(Wrap("\xc3\xa9\xc3\xa9 ab", 5), "\xc3\xa9\xc3\xa9 ab\n");
}

TEST(TextTableTest, ControlCharactersAreShownNotSent) {
  EXPECT_EQ(Printable("a\nb\x1b[31m\t"), "a\\nb\\x1b[31m\\t");
}

TEST(TextTableTest, FoldsWhereARowIsTooWide) {
  TextTable table({{"name"}, {"value"}});
  table.AddRow({"short", "1"});
  EXPECT_EQ(table.Render(20), "name   value\nshort      1\n");
  table.AddRow({"a name that is long", "2"});
  EXPECT_EQ(table.Render(20), "name\n  value\nshort\n      1\na name that is long\n      2\n");
}

}  // namespace
}  // namespace normlab
