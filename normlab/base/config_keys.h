#pragma once
// One table of keys drives everything about a configuration: reading JSON, --set key=value, writing, and
// help. A key knows its name, what it means, what is allowed, how to set it from a JSON value (checking type
// and range) and how to read it. Checks that need several keys belong to the configuration's own Validate.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/json.h"
#include "normlab/base/nearest.h"

namespace normlab {

template <class Config>
struct ConfigKey {
  std::string name;
  std::string description;
  std::string allowed;
  std::function<void(Config&, const Json&)> set;    // throws Error
  std::function<Json(const Config&)> get;           // the value in use, defaults filled in
  std::function<Json(const Config&)> get_as_given;  // null where a default is in use
};

namespace internal {

// `emb_dim = "wide" is not allowed; emb_dim (width of the model) must be a whole number from 1 to 1048576`
[[noreturn]] void RefuseValue(std::string_view name, std::string_view description, const Json& value,
                              std::string_view allowed);
int64_t CheckedInteger(std::string_view name, std::string_view description, std::string_view allowed,
                       const Json& value, int64_t low, int64_t high);
double CheckedNumber(std::string_view name, std::string_view description, std::string_view allowed,
                     const Json& value, const std::function<bool(double)>& ok);
std::string WholeNumberRange(int64_t low, int64_t high);

// "key=value" cut at the first "="; the value as JSON where it is JSON, else as a string.
std::pair<std::string, Json> SplitAssignment(std::string_view assignment);

}  // namespace internal

// A whole number in [low, high]; 1e3 and 1000.0 are whole. `field` is the member.
template <class Config, class Integer>
ConfigKey<Config> IntegerKey(std::string name, std::string description, int64_t low, int64_t high,
                             Integer Config::*field) {
  std::string allowed = internal::WholeNumberRange(low, high);
  const auto set = [=](Config& config, const Json& value) {
    config.*field =
        static_cast<Integer>(internal::CheckedInteger(name, description, allowed, value, low, high));
  };
  const auto get = [field](const Config& config) -> Json { return config.*field; };
  return {name, description, allowed, set, get, get};
}

// The same for an optional member: null clears it, `filled` gives the value in use.
template <class Config, class Filled>
ConfigKey<Config> OptionalIntegerKey(std::string name, std::string description, int64_t low, int64_t high,
                                     std::optional<int64_t> Config::*field, Filled filled) {
  std::string allowed = internal::WholeNumberRange(low, high) + ", or null for its default";
  const auto set = [=](Config& config, const Json& value) {
    if (value.is_null())
      (config.*field).reset();
    else
      config.*field = internal::CheckedInteger(name, description, allowed, value, low, high);
  };
  const auto as_given = [field](const Config& config) -> Json {
    const std::optional<int64_t>& member = config.*field;
    return member ? Json(*member) : Json();
  };
  return {name, description, allowed, set, [filled](const Config& c) -> Json { return filled(c); }, as_given};
}

// A finite number for which ok(value) holds; `allowed` says the same in words.
template <class Config>
ConfigKey<Config> NumberKey(std::string name, std::string description, std::string allowed,
                            const std::function<bool(double)>& ok, double Config::*field) {
  const auto set = [=](Config& config, const Json& value) {
    config.*field = internal::CheckedNumber(name, description, allowed, value, ok);
  };
  const auto get = [field](const Config& config) -> Json { return config.*field; };
  return {name, description, allowed, set, get, get};
}

template <class Config, class Filled>
ConfigKey<Config> OptionalNumberKey(std::string name, std::string description, std::string allowed,
                                    const std::function<bool(double)>& ok,
                                    std::optional<double> Config::*field, Filled filled) {
  allowed += ", or null for its default";
  const auto set = [=](Config& config, const Json& value) {
    if (value.is_null())
      (config.*field).reset();
    else
      config.*field = internal::CheckedNumber(name, description, allowed, value, ok);
  };
  const auto as_given = [field](const Config& config) -> Json {
    const std::optional<double>& member = config.*field;
    return member ? Json(*member) : Json();
  };
  return {name, description, allowed, set, [filled](const Config& c) -> Json { return filled(c); }, as_given};
}

template <class Config>
ConfigKey<Config> BoolKey(std::string name, std::string description, bool Config::*field) {
  const std::string allowed = "true or false";
  const auto set = [=](Config& config, const Json& value) {
    if (!value.is_boolean()) internal::RefuseValue(name, description, value, allowed);
    config.*field = value.template get<bool>();
  };
  const auto get = [field](const Config& config) -> Json { return config.*field; };
  return {name, description, allowed, set, get, get};
}

// Text that check(text) accepts or throws Error about; the member holds what it returns.
template <class Config>
ConfigKey<Config> TextKey(std::string name, std::string description, std::string allowed,
                          const std::function<std::string(const std::string&)>& check,
                          std::string Config::*field) {
  const auto set = [=](Config& config, const Json& value) {
    if (!value.is_string()) internal::RefuseValue(name, description, value, allowed);
    config.*field = check(value.template get<std::string>());
  };
  const auto get = [field](const Config& config) -> Json { return config.*field; };
  return {name, description, allowed, set, get, get};
}

// The same key, for a configuration that holds the other one as its member `inner`.
template <class Outer, class Config>
ConfigKey<Outer> Nested(const ConfigKey<Config>& key, Config Outer::*inner) {
  return {key.name,
          key.description,
          key.allowed,
          [=](Outer& outer, const Json& value) { key.set(outer.*inner, value); },
          [=](const Outer& outer) { return key.get(outer.*inner); },
          [=](const Outer& outer) { return key.get_as_given(outer.*inner); }};
}

template <class Config>
const ConfigKey<Config>& FindKey(std::span<const ConfigKey<Config>> keys, std::string_view name) {
  std::vector<std::string> names;
  for (const ConfigKey<Config>& key : keys) {
    if (key.name == name) return key;
    names.push_back(key.name);
  }
  Fail("unknown configuration key {}", UnknownName(name, names));
}

// Sets every key of a flat JSON object. Messages begin with `source`.
template <class Config>
void ApplyJson(std::span<const ConfigKey<Config>> keys, Config& config, const Json& json,
               std::string_view source) {
  if (!json.is_object())
    Fail("{}: a configuration is an object of keys and values, {{\"steps\": 300, ...}}, not {}", source,
         json.type_name());
  for (const auto& [name, value] : json.items()) {
    try {
      FindKey(keys, name).set(config, value);
    } catch (const Error& error) {
      Fail("{}: {}", source, error.what());
    }
  }
}

// Sets one key from "key=value". Throws UsageError where there is no "=".
template <class Config>
void ApplyAssignment(std::span<const ConfigKey<Config>> keys, Config& config, std::string_view assignment) {
  const auto [name, value] = internal::SplitAssignment(assignment);
  FindKey(keys, name).set(config, value);
}

template <class Config>
Json DumpKeys(std::span<const ConfigKey<Config>> keys, const Config& config, bool as_given = false) {
  Json json = Json::object();
  for (const ConfigKey<Config>& key : keys)
    json[key.name] = as_given ? key.get_as_given(config) : key.get(config);
  return json;
}

}  // namespace normlab
