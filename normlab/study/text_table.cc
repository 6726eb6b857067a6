#include "normlab/study/text_table.h"

#include <algorithm>
#include <cmath>

#include "normlab/base/error.h"
#include "normlab/base/progress.h"

namespace normlab {
namespace {

constexpr std::string_view kGap = "  ";

bool StartsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, StartsCharacter));
}

// Bytes of the first `count` characters.
size_t BytesOf(std::string_view text, size_t count) {
  for (size_t i = 0; i < text.size(); ++i)
    if (StartsCharacter(text[i]) && count-- == 0) return i;
  return text.size();
}

std::string Pad(std::string_view text, size_t width, bool left) {
  const size_t have = Characters(text);
  const std::string blanks(have < width ? width - have : 0, ' ');
  return left ? std::string(text) + blanks : blanks + std::string(text);
}

void TrimRight(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

std::string Printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      shown += "\\n";
    else if (c == '\t')
      shown += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += c;
  }
  return shown;
}

std::string Counted(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", FormatCount(static_cast<int64_t>(count)), noun, count == 1 ? "" : "s");
}

std::string Rounded(double value) { return FormatCount(std::llround(value)); }

std::string Wrap(std::string_view text, size_t columns, std::string_view first, std::string_view rest) {
  std::string out, line(first);
  size_t used = Characters(first);  // characters of the line
  bool empty = true;                // no word in the line yet
  const auto end_line = [&] {
    TrimRight(line);
    out += line + "\n";
    line = rest;
    used = Characters(rest);
    empty = true;
  };
  while (!text.empty()) {
    const size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size());
    if (!empty && used + 1 + Characters(word) > columns) end_line();
    while (!word.empty()) {
      if (!empty) line += ' ', ++used;
      const size_t room = columns > used ? columns - used : 1;
      const std::string_view part = word.substr(0, BytesOf(word, room));
      line += part;
      used += Characters(part);
      empty = false;
      word.remove_prefix(part.size());
      if (!word.empty()) end_line();
    }
  }
  if (!empty || out.empty()) end_line();
  return out;
}

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
