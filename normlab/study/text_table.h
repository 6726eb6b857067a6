#pragma once
// Text for people in a fixed number of columns: paragraphs that wrap, tables that fold. Widths count
// characters of UTF-8, not bytes.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace normlab {

// Control characters (a line break in a name, an escape sequence in a path) as \n, \t, \x1b.
std::string Printable(std::string_view text);

// "1 seed", "1,200 seeds"
std::string Counted(size_t count, std::string_view noun);

// "1,234,568" for 1234567.8
std::string Rounded(double value);

// Breaks at spaces, or anywhere in a word that is longer than a line. The first line starts with `first`, the
// others with `rest`. Ends with a line break.
std::string Wrap(std::string_view text, size_t columns, std::string_view first = "",
                 std::string_view rest = "");

// The first column is left-aligned, the others right-aligned, or left-aligned where so asked. Where a row
// would be too wide, every row's first field gets a line of its own, and the others follow below it.
class TextTable {
 public:
  struct Column {
    std::string title;
    bool left = false;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void AddRow(std::vector<std::string> fields);
  std::string Render(size_t columns) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace normlab
