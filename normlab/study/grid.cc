#include "normlab/study/grid.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"
#include "normlab/model/parameters.h"
#include "normlab/norms/norm_type.h"

namespace normlab {
namespace {

std::string Shown(const Json& value) {
  return value.is_string() ? value.get<std::string>() : DumpJson(value);
}

// What may not differ between variants, and why.
void RequireVariable(const std::string& key) {
  if (key == "seed")
    throw UsageError(
        "the seed is no variant: every variant is trained with every seed; use --seeds or --seed-list");
  if (key == "held_out_fraction" || key == "held_out_windows")
    throw UsageError(fmt::format(
        "{} cannot vary: all variants must be tested on the same text; set it for all with --set {}=...", key,
        key));
}

// Keys whose values change what a step or the test loss means.
void NoteSideEffects(const Grid& grid, std::vector<std::string>& notes) {
  const auto varies = [&](std::string_view key) { return std::ranges::count(grid.varied_keys, key) > 0; };
  if (varies("batch") || varies("window") || varies("steps"))
    notes.push_back(
        "variants train on different numbers of tokens: judge their losses and times with that in mind");
  if (varies("window") || varies("context_length"))
    notes.push_back("variants see windows of different lengths, in training and in the test loss");
}

std::string NameOf(const Grid& grid, const Json& varied) {
  if (grid.varied_keys.size() == 1 && grid.varied_keys[0] == "norm_type") return Shown(varied["norm_type"]);
  std::string name;
  for (const auto& [key, value] : varied.items())
    name += fmt::format("{}{}={}", name.empty() ? "" : ",", key, Shown(value));
  return name;
}

// Sets the keys of `values` on top of `base`; `asked` is what the user wrote, for notes.
Variant MakeVariant(const TrainConfig& base, const Grid& grid, const std::vector<Json>& values) {
  Variant variant{.config = base};
  for (size_t k = 0; k < values.size(); ++k) Set(variant.config, grid.varied_keys[k], values[k]);
  const Json in_use = ToJson(variant.config);
  variant.varied = Json::object();
  for (const std::string& key : grid.varied_keys) variant.varied[key] = in_use[key];
  variant.name = NameOf(grid, variant.varied);
  try {
    variant.config.Validate();
  } catch (const Error& error) {
    Fail("variant {}: {}", variant.name, error.what());
  }
  const ParameterList parameters(variant.config.model, variant.config.init);
  variant.parameters = parameters.count();
  variant.norm_parameters = parameters.norm_count();
  return variant;
}

}  // namespace

VariedKey ParseVariedKey(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == assignment.size())
    throw UsageError(fmt::format(
        "\"{}\" varies nothing; write key=value1,value2, for example norm_eps=1e-5,1e-6", assignment));
  VariedKey varied{.key = std::string(assignment.substr(0, equals))};
  std::string_view rest = assignment.substr(equals + 1);
  if (rest.front() == '[') {
    const Json array = ParseJson(rest, varied.key, JsonComments::kRefuse);
    varied.values.assign(array.begin(), array.end());
  } else {
    while (true) {
      const std::string_view item = rest.substr(0, rest.find(','));
      if (item.find_first_not_of(" \t") == std::string_view::npos)
        throw UsageError(fmt::format("\"{}\" holds an empty value; write key=value1,value2", assignment));
      varied.values.push_back(internal::SplitAssignment(fmt::format("{}={}", varied.key, item)).second);
      if (item.size() == rest.size()) break;
      rest.remove_prefix(item.size() + 1);
    }
  }
  if (varied.values.empty()) throw UsageError(fmt::format("\"{}\" gives no value to vary", assignment));
  return varied;
}

Grid MakeGrid(const TrainConfig& base, std::span<const VariedKey> keys) {
  Grid grid;
  size_t combinations = 1;
  for (const VariedKey& key : keys) {
    FindKey(TrainConfigKeys(), key.key);
    RequireVariable(key.key);
    if (std::ranges::count(grid.varied_keys, key.key) > 0)
      throw UsageError(fmt::format("{} is varied twice; name all its values once", key.key));
    grid.varied_keys.push_back(key.key);
    combinations *= key.values.size();
    if (combinations > 10000) Fail("the grid has more than 10,000 variants; vary fewer keys or values");
  }

  std::vector<Json> kept;  // configurations so far
  for (size_t i = 0; i < combinations; ++i) {
    std::vector<Json> values(keys.size());
    std::string asked;
    size_t rest = i;
    for (size_t k = keys.size(); k-- > 0; rest /= keys[k].values.size())
      values[k] = keys[k].values[rest % keys[k].values.size()];
    for (const Json& value : values) asked += fmt::format("{}{}", asked.empty() ? "" : ",", Shown(value));

    Variant variant = MakeVariant(base, grid, values);
    Json config = ToJson(variant.config);
    const auto same = std::ranges::find(kept, config);
    if (same != kept.end()) {
      const std::string& first = grid.variants[static_cast<size_t>(same - kept.begin())].name;
      grid.notes.push_back(asked == first
                               ? fmt::format("{} is named twice: used once", first)
                               : fmt::format("{} is the same as {}, named before: dropped", asked, first));
      continue;
    }
    kept.push_back(std::move(config));
    grid.variants.push_back(std::move(variant));
  }
  NoteSideEffects(grid, grid.notes);
  return grid;
}

Grid AaGrid(Grid grid, const std::string& variant) {
  std::vector<std::string> names;
  for (const Variant& known : grid.variants) names.push_back(known.name);
  const auto found = variant.empty() ? names.begin() : std::ranges::find(names, variant);
  if (found == names.end()) Fail("unknown baseline {}", UnknownName(variant, names));
  Variant side = grid.variants[static_cast<size_t>(found - names.begin())];
  if (names.size() > 1)
    grid.notes.push_back(
        fmt::format("an A/A study compares one variant with itself: {}; the others are left out", side.name));
  Variant other = side;
  other.name += "'";
  grid.variants = {std::move(side), std::move(other)};
  return grid;
}

std::string VariantName(const std::string& asked, const Grid& grid) {
  if (std::ranges::find(grid.variants, asked, &Variant::name) != grid.variants.end()) return asked;
  if (grid.varied_keys != std::vector<std::string>{"norm_type"}) return asked;
  try {
    return Name(ParseNormType(asked));
  } catch (const Error&) {
    return asked;  // the caller refuses it, with the names that there are
  }
}

TrainConfig CellConfig(const Variant& variant, uint64_t seed) {
  TrainConfig config = variant.config;
  config.seed = seed;
  return config;
}

std::vector<uint64_t> ParseSeeds(std::string_view text) {
  std::vector<uint64_t> seeds;
  while (true) {
    const std::string_view item = text.substr(0, text.find(','));
    uint64_t seed = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), seed);
    if (error != std::errc() || end != item.data() + item.size() || seed > static_cast<uint64_t>(INT64_MAX))
      throw UsageError(
          fmt::format("\"{}\" is no seed; --seed-list takes whole numbers from 0, for example 1,2,7", item));
    if (std::ranges::count(seeds, seed) > 0)
      throw UsageError(fmt::format("seed {} is given twice; the same seed gives the same run", seed));
    seeds.push_back(seed);
    if (item.size() == text.size()) return seeds;
    text.remove_prefix(item.size() + 1);
  }
}

std::vector<GridCell> CellOrder(size_t variants, size_t seeds) {
  // First row of the design: 0, 1, n-1, 2, n-2, ...; row r adds r to it. Where n is odd, the next n rows are
  // these read backwards.
  std::vector<size_t> first(variants);
  for (size_t j = 1; j < variants; ++j) first[j] = j % 2 == 1 ? (j + 1) / 2 : variants - j / 2;
  std::vector<GridCell> order;
  for (size_t s = 0; s < seeds; ++s) {
    const bool backwards = variants % 2 == 1 && (s / std::max<size_t>(variants, 1)) % 2 == 1;
    for (size_t j = 0; j < variants; ++j)
      order.push_back({(first[backwards ? variants - 1 - j : j] + s) % variants, s});
  }
  return order;
}

}  // namespace normlab
