#pragma once
// What a study was asked to do, as study.json keeps it: the grid, what is compared with what, and the margins
// and looks that were declared before the first cell ran. A later start may add seeds and variants (that is a
// further look at the data); whatever would make cells or verdicts incomparable is refused, by name.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/study/grid.h"
#include "normlab/train/machine.h"

namespace normlab {

// A state of the study on which verdicts can be read.
struct Look {
  std::vector<std::string> variants;
  std::vector<uint64_t> seeds;
  std::string started_at;  // UTC, ISO 8601
};

struct PlannedVariant {
  Variant variant;
  std::string norm_implementation;  // what norm_type resolved to
  std::vector<uint64_t> seeds;      // of an A/A study: its own; else empty, and those of the study
};

struct StudyPlan {
  static constexpr int kSchemaVersion = 1;

  std::vector<std::string> varied_keys;
  std::vector<PlannedVariant> variants;  // in the order asked for
  std::vector<uint64_t> seeds;           // of an A/A study: the baseline's
  std::string baseline;                  // name of a variant
  std::vector<std::string> within;  // varied keys: each of their values is a group with a baseline of its own
  bool aa = false;                  // a variant against itself with other seeds: a check of the method
  double alpha = 0.05;              // of the study as a whole
  double margin_nats = 0.01;        // equivalence of losses
  double speed_margin = 0.01;       // equivalence of times, as a fraction
  int looks = 2;                    // declared
  std::vector<Look> history;        // looks so far, this one last
  Json data;                        // files, tokens, hash, tokenizer, tokenizer_hash
  Machine machine;                  // of the start that wrote this

  size_t Baseline() const;  // index of the baseline
  // Index of what a variant is compared with, itself where it is a baseline: the variant that has its values
  // of the keys `within`, and in all else the baseline's.
  size_t BaselineOf(size_t variant) const;
  size_t comparisons() const;  // variants that are no baseline: K of the statistics
  // Seed of a cell by indices. Cells with equal second indices are pairs.
  uint64_t Seed(size_t variant, size_t seed) const;
  int look() const { return static_cast<int>(history.size()); }
  size_t cells() const { return variants.size() * seeds.size(); }
};

Json ToJson(const StudyPlan& plan);
StudyPlan StudyPlanFromJson(const Json& json, std::string_view source);

// What one start asks for. An option that is not given keeps what the study has, or takes the default.
struct StudyRequest {
  Grid grid;
  std::vector<std::string> norm_implementations;  // of each variant, on this machine
  std::optional<std::vector<uint64_t>> seeds;     // default 1 to 5
  std::optional<std::string> baseline;            // default the first variant
  std::optional<std::vector<std::string>> within;
  bool aa = false;  // the grid is an AaGrid; of the seeds, their number counts
  std::optional<double> margin_nats, speed_margin;
  std::optional<int> looks;
  Json data;
  Machine machine;
  std::string started_at;
};

// The plan of a new study. Throws Error for an unknown baseline, and for keys `within` which there is nothing
// to compare.
StudyPlan MakePlan(const StudyRequest& request);

// The plan of a start on a folder that holds a study with finished cells. `seen`: verdicts could be read from
// them, so that more seeds or variants are a further look. Throws Error that names what differs, both values,
// and the way out.
StudyPlan ExtendPlan(const StudyPlan& recorded, const StudyRequest& request, bool seen,
                     std::string_view folder);

}  // namespace normlab
