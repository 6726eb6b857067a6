#include "normlab/study/text_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace normlab {
namespace {

TEST(TextTableTest, FoldsWhereARowIsTooWide) {
  TextTable table({{"name"}, {"value"}});
  table.AddRow({"short", "1"});
  EXPECT_EQ(table.Render(20), "name   value\nshort      1\n");
  table.AddRow({"a name that is long", "2"});
  EXPECT_EQ(table.Render(20), "name\n  value\nshort\n      1\na name that is long\n      2\n");
}

}  // namespace
}  // namespace normlab
