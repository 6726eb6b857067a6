#pragma once
// A loss spike as the record of a run keeps it: when, how high, how long, and what moved before.

#include <cstdint>
#include <string>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/stats/loss_course.h"

namespace normlab {

// A signal (train/inside.h) that left its level in the steps before a spike.
struct MovedSignal {
  std::string what, name;
  int64_t step = 0;  // from 1
  double ratio = 0;  // to its level before
  bool operator==(const MovedSignal&) const = default;
};

struct SpikeRecord {
  static constexpr size_t kMostMoved = 8;

  stats::LossSpike loss;
  // The earliest first; at one step activations, gradients, updates, of each the largest first. At most
  // kMostMoved.
  std::vector<MovedSignal> moved;
  bool operator==(const SpikeRecord&) const = default;
};

Json ToJson(const SpikeRecord& spike);
SpikeRecord SpikeFromJson(const Json& json);  // throws what nlohmann::json throws

}  // namespace normlab
