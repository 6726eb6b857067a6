#include "normlab/study/text_table.h"

#include <algorithm>

#include "normlab/base/error.h"
#include "normlab/base/text.h"

namespace normlab {
namespace {

constexpr std::string_view kGap = "  ";

std::string Pad(std::string_view text, size_t width, bool left) {
  const size_t have = Characters(text);
  const std::string blanks(have < width ? width - have : 0, ' ');
  return left ? std::string(text) + blanks : blanks + std::string(text);
}

void TrimRight(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

void TextTable::AddRow(std::vector<std::string> fields) {
  NL_CHECK_EQ(fields.size(), columns_.size());
  rows_.push_back(std::move(fields));
}

std::string TextTable::Render(size_t columns) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = Characters(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, Characters(row[c]));
    widths.push_back(width);
  }
  size_t total = 0;
  for (const size_t width : widths) total += width + (total == 0 ? 0 : kGap.size());
  const bool fold = total > columns;

  const auto rest_of = [&](const std::vector<std::string>& row, std::string line) {
    for (size_t c = 1; c < row.size(); ++c)
      line += std::string(kGap) + Pad(row[c], widths[c], columns_[c].left);
    TrimRight(line);
    return line + "\n";
  };
  const auto whole = [&](const std::vector<std::string>& row) {
    if (!fold) return rest_of(row, Pad(row[0], widths[0], true));
    return Wrap(row[0], columns) + rest_of(row, "");
  };

  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string text = whole(titles);
  for (const auto& row : rows_) text += whole(row);
  return text;
}

}  // namespace normlab
