#pragma once
// The pieces of text that messages, records and tables are made of. Widths count characters of UTF-8, not
// bytes.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "normlab/base/progress.h"

namespace normlab {

// Control characters (a line break in a name, an escape sequence in a path) as \n, \t, \x1b. kAsciiOnly: so
// is every byte beyond ASCII, where bytes may be no text at all.
enum class Shown { kText, kAsciiOnly };
std::string Printable(std::string_view text, Shown shown = Shown::kText);

size_t Characters(std::string_view text);
std::string_view FirstCharacters(std::string_view text, size_t count);

// "1 seed", "1,200 seeds"
std::string Counted(std::integral auto count, std::string_view noun) {
  return FormatCount(static_cast<int64_t>(count)) + ' ' + std::string(noun) + (count == 1 ? "" : "s");
}

// "1,234,568" for 1234567.8
std::string Rounded(double value);

// "[2, 3]"
std::string ShapeText(std::span<const int64_t> shape);

// "nan", "inf" or "-inf", for a value that is not finite.
std::string_view NonFiniteText(double value);

// "2030-01-02T03:04:05Z"
std::string UtcNow();

// Breaks at spaces, or anywhere in a word that is longer than a line. The first line starts with `first`, the
// others with `rest`. Ends with a line break.
std::string Wrap(std::string_view text, size_t columns, std::string_view first = "",
                 std::string_view rest = "");

}  // namespace normlab
