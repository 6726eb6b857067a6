#include "normlab/base/text.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

namespace normlab {
namespace {

bool StartsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

}  // namespace

std::string Printable(std::string_view text, Shown shown) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      printable += "\\n";
    else if (c == '\t')
      printable += "\\t";
    else if (byte < 0x20 || byte == 0x7f || (byte > 0x7f && shown == Shown::kAsciiOnly))
      printable += fmt::format("\\x{:02x}", byte);
    else
      printable += c;
  }
  return printable;
}

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, StartsCharacter));
}

std::string_view FirstCharacters(std::string_view text, size_t count) {
  for (size_t i = 0; i < text.size(); ++i)
    if (StartsCharacter(text[i]) && count-- == 0) return text.substr(0, i);
  return text;
}

std::string Rounded(double value) { return FormatCount(std::llround(value)); }

std::string ShapeText(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string_view NonFiniteText(double value) {
  if (std::isnan(value)) return "nan";
  return value < 0 ? "-inf" : "inf";
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string Wrap(std::string_view text, size_t columns, std::string_view first, std::string_view rest) {
  std::string out, line(first);
  size_t used = Characters(first);  // characters of the line
  bool empty = true;                // no word in the line yet
  const auto end_line = [&] {
    line.erase(line.find_last_not_of(' ') + 1);
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
      const std::string_view part = FirstCharacters(word, room);
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

}  // namespace normlab
