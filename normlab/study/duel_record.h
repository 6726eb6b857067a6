#pragma once
// What a duel of training steps was and every block that it timed: DIR/duel.json of a study, and the output
// of `normlab duel`. Everything that is told about it (duel_summary.h) follows from this record.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/json.h"
#include "normlab/stats/comparison.h"
#include "normlab/study/duel.h"
#include "normlab/train/config.h"
#include "normlab/train/machine.h"

namespace normlab {

struct DuelContender {
  std::string name;
  Json varied, config;              // the varied keys; every key but the seed and the number of steps
  std::string norm_implementation;  // what norm_type resolved to
  int64_t tokens_per_step = 0;
  size_t peak_bytes = 0;  // of its arenas, scratch included
  size_t baseline = 0;    // index of the contender that its times are divided by; of a baseline, its own
};

struct DuelRecord {
  static constexpr int kSchemaVersion = 1;

  std::string started_at;  // UTC, ISO 8601
  Machine machine;
  Json data;                        // null: random tokens
  std::optional<double> busy_cpus;  // with other programs, when it started
  DuelSettings settings;            // its alpha is that of `rule` for one look
  stats::ComparisonRule rule;       // of times: log_ratio
  int64_t steps_per_block = 1;
  std::vector<DuelContender> contenders;
  DuelResult result;
};

Json ToJson(const DuelRecord& record);

// A record that only a newer normlab can read: nobody may write over it.
struct NewerDuel : Error {
  using Error::Error;
};

// Throws Error that names the source and what is wrong; NewerDuel for a record of a newer normlab.
DuelRecord DuelRecordFromJson(const Json& json, std::string_view source);

// The configuration as a record keeps it.
Json DuelConfig(const TrainConfig& config);

}  // namespace normlab
