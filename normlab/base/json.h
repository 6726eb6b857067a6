#pragma once
// JSON as normlab reads and writes it: keys keep their order; a key given twice, bad UTF-8 and nesting beyond
// 100 are errors that name source, line and column. Numbers are written in their shortest form that reads
// back to the same double (never more than 17 digits); JSON has no NaN or infinity, so these are the strings
// "nan", "inf", "-inf".

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace normlab {

using Json = nlohmann::ordered_json;

enum class JsonComments { kRefuse, kAllow };  // allowed: // to the end of the line, and /* */

// `source` names the text in messages: a file name, or "--set". J is Json, or nlohmann::json where objects
// are huge (its look-up by key is faster).
template <class J = Json>
J ParseJson(std::string_view text, std::string_view source, JsonComments comments = JsonComments::kAllow);
extern template Json ParseJson(std::string_view, std::string_view, JsonComments);
extern template nlohmann::json ParseJson(std::string_view, std::string_view, JsonComments);

// A number, or the string that stands for a non-finite one; null for a value that does not exist.
Json ToJson(double value);
Json ToJson(const std::optional<double>& value);

// The reverse: accepts numbers and the three strings. Throws Error that says what `name` holds instead.
double NumberFromJson(const Json& value, std::string_view name);
std::optional<double> OptionalNumberFromJson(const Json& value, std::string_view name);  // null: no value

// Text of a value; indent < 0: one line. Bytes that are not UTF-8 (file names may hold any) become U+FFFD.
std::string DumpJson(const Json& value, int indent = -1);

}  // namespace normlab
