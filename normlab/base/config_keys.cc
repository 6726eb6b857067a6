#include "normlab/base/config_keys.h"

#include <algorithm>
#include <cmath>

namespace normlab::internal {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

void RefuseValue(std::string_view name, std::string_view description, const Json& value,
                 std::string_view allowed) {
  std::string shown = DumpJson(value);
  constexpr size_t kMost = 60;
  if (shown.size() > kMost) shown = shown.substr(0, kMost) + "...";
  Fail("{} = {} is not allowed; {} ({}) must be {}", name, shown, name, description, allowed);
}

int64_t CheckedInteger(std::string_view name, std::string_view description, std::string_view allowed,
                       const Json& value, int64_t low, int64_t high) {
  const auto refuse = [&] { RefuseValue(name, description, value, allowed); };
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    const uint64_t unsigned_number = value.get<uint64_t>();
    if (unsigned_number > static_cast<uint64_t>(INT64_MAX)) refuse();
    number = static_cast<int64_t>(unsigned_number);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double real = value.get<double>();
    if (!(std::fabs(real) <= 0x1p53) || real != std::floor(real)) refuse();
    number = static_cast<int64_t>(real);
  } else {
    refuse();
  }
  if (number < low || number > high) refuse();
  return number;
}

double CheckedNumber(std::string_view name, std::string_view description, std::string_view allowed,
                     const Json& value, const std::function<bool(double)>& ok) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || !ok(value.get<double>()))
    RefuseValue(name, description, value, allowed);
  return value.get<double>();
}

std::string WholeNumberRange(int64_t low, int64_t high) {
  if (high == INT64_MAX) return fmt::format("a whole number from {}", low);
  return fmt::format("a whole number from {} to {}", low, high);
}

std::pair<std::string, Json> SplitAssignment(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  const std::string_view name = Trim(assignment.substr(0, std::min(equals, assignment.size())));
  if (equals == std::string_view::npos || name.empty())
    throw UsageError(fmt::format("\"{}\" sets nothing; write key=value, for example steps=300", assignment));
  const std::string_view text = Trim(assignment.substr(equals + 1));
  if (text.empty())
    throw UsageError(
        fmt::format("\"{}\" gives no value; write key=value, for example steps=300", assignment));
  Json value;
  try {
    value = ParseJson(text, name, JsonComments::kRefuse);
  } catch (const Error&) {
    value = std::string(text);  // fused_rmsnorm needs no quotes
  }
  return {std::string(name), std::move(value)};
}

}  // namespace normlab::internal
