#pragma once
// The grid of a study: every combination of the varied keys' values is a variant, and every variant is
// trained once per seed. Pure: nothing here reads or writes files.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/train/config.h"

namespace normlab {

struct VariedKey {
  std::string key;
  std::vector<Json> values;
};

// "norm_type=layernorm,rmsnorm", or "key=[...]" with a JSON array. Throws UsageError where there is no value.
VariedKey ParseVariedKey(std::string_view assignment);

struct Variant {
  std::string name;    // the value where norm_type alone varies, else "key=value,key=value"
  Json varied;         // the varied keys, each with its value
  TrainConfig config;  // its seed means nothing
  int64_t parameters = 0, norm_parameters = 0;
};

struct Grid {
  std::vector<std::string> varied_keys;
  std::vector<Variant> variants;   // in the order asked for; the first key varies slowest
  std::vector<std::string> notes;  // what was dropped, and what varies besides
};

// Validates every variant; equal ones are dropped with a note. Throws Error, and UsageError for a key that
// cannot be varied (the seed is no variant; the held-out text is the yardstick of all).
Grid MakeGrid(const TrainConfig& base, std::span<const VariedKey> keys);

// The grid of an A/A study: one variant (the one that is named, or the first), and the same again under its
// name with a prime. What is left out is noted. Throws Error for an unknown name.
Grid AaGrid(Grid grid, const std::string& variant);

// The name that a variant has for whoever asks for it: where norm_type alone varies, aliases and unsaid forms
// of a norm are understood. A name of no variant comes back as it is.
std::string VariantName(const std::string& asked, const Grid& grid);

// The configuration of one cell.
TrainConfig CellConfig(const Variant& variant, uint64_t seed);

// "1,2,7"; a seed given twice is refused. Throws UsageError.
std::vector<uint64_t> ParseSeeds(std::string_view text);

// The order in which cells run: seed by seed, and within a seed variants take turns in a Williams design
// (Williams 1949, Aust. J. Sci. Res. A 2): over as many seeds as there are variants (twice as many where that
// number is odd) every variant stands equally often at every place and after every other. A drift of the
// machine's speed then favours none.
struct GridCell {
  size_t variant = 0, seed = 0;  // indices
  bool operator==(const GridCell&) const = default;
};
std::vector<GridCell> CellOrder(size_t variants, size_t seeds);

}  // namespace normlab
