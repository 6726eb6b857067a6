#include "normlab/base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/text.h"

namespace normlab {
namespace {

constexpr int kMaxDepth = 100;

// "line 3, column 7" of a byte; columns count bytes.
std::string Position(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", lines + 1, before.size() - line_start + 1);
}

// The bytes of a file that is no text go to no terminal, and a string without end fills no screen.
std::string OneLine(std::string_view text) {
  constexpr size_t kLongest = 300;
  const std::string line = Printable(text.substr(0, kLongest + 1), Shown::kAsciiOnly);
  return line.size() > kLongest ? line.substr(0, kLongest) + "..." : line;
}

// What nlohmann says, without its "[json.exception...] parse error at line 1, column 2: ".
std::string Plain(std::string what) {
  if (const size_t bracket = what.find("] "); bracket != std::string::npos) what.erase(0, bracket + 2);
  if (what.starts_with("parse error"))
    if (const size_t colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
  return OneLine(what);
}

}  // namespace

template <class J>
J ParseJson(std::string_view text, std::string_view source, JsonComments comments) {
  // The parser would take a zero byte for the end and ignore what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    Fail("{}, {}: a zero byte; this is not JSON text", source, Position(text, zero));
  // The keys seen so far in each open object.
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, J& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth)
      Fail("{}: nested deeper than {} levels; this is not a file of normlab", source, kMaxDepth);
    if (event == Event::object_start) {
      open.emplace_back();
    } else if (event == Event::object_end) {
      open.pop_back();
    } else if (event == Event::key) {
      const std::string key = parsed.template get<std::string>();
      if (!open.back().insert(key).second) Fail("{}: the key \"{}\" is given twice; keep one", source, key);
    }
    return true;
  };
  try {
    return J::parse(
        text.begin(), text.end(),
        [&](int depth, typename J::parse_event_t event, J& parsed) {
          return watch(depth, static_cast<nlohmann::json::parse_event_t>(event), parsed);
        },
        /*allow_exceptions=*/true, /*ignore_comments=*/comments == JsonComments::kAllow);
  } catch (const typename J::parse_error& error) {
    const size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    Fail("{}, {}: {}", source, Position(text, byte), Plain(error.what()));
  } catch (const typename J::exception& error) {  // a number beyond double
    Fail("{}: {}", source, Plain(error.what()));
  }
}
template Json ParseJson(std::string_view, std::string_view, JsonComments);
template nlohmann::json ParseJson(std::string_view, std::string_view, JsonComments);

Json ToJson(double value) {
  if (!std::isfinite(value)) return NonFiniteText(value);
  return value;
}

Json ToJson(const std::optional<double>& value) { return value ? ToJson(*value) : Json(); }

double NumberFromJson(const Json& value, std::string_view name) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  Fail("{} is {}; it must be a number, or \"nan\", \"inf\" or \"-inf\"", name, DumpJson(value));
}

std::optional<double> OptionalNumberFromJson(const Json& value, std::string_view name) {
  if (value.is_null()) return std::nullopt;
  return NumberFromJson(value, name);
}

std::string DumpJson(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace normlab
