#pragma once
// Tables for people in a fixed number of columns, that fold where they are too wide. Widths count characters
// of UTF-8, not bytes.

#include <cstddef>
#include <string>
#include <vector>

namespace normlab {

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
