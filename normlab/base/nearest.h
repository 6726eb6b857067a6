#pragma once
// "did you mean ...?": the known name closest to a mistyped one.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace normlab {

// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours) to `text`, if
// it is near enough to be meant: at most a third of the longer length, and at least 2.
std::optional<std::string> Nearest(std::string_view text, std::span<const std::string> candidates);

// ` "rmsnrm"; did you mean "rmsnorm"?` or ` "zzz"; known: a, b, c` as the end of a message.
std::string UnknownName(std::string_view text, std::span<const std::string> candidates);

}  // namespace normlab
