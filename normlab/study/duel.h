#pragma once
// The duel: contenders take turns in short blocks, in an order shuffled per round, and the ratios of their
// times come with intervals (stats/batched_ratio.h has the formula).
//
//   * Rounds form batches. Each batch places the contenders' memory afresh, in shuffled order: one layout of
//     memory is a bias that no number of rounds removes.
//   * A pilot comes first and is then discarded: its spread fixes the rounds of a batch, its duration what
//     fits into the seconds allowed. Nothing is extended after a look at the ratios.
//   * No round is dropped. Blocks in which the system took the processor away are marked and counted, and
//     what the system tells of a round as a whole is kept beside it.
//
// What a block is, where memory lies and what time it is are callbacks: the engine does no I/O, owns no
// clock, and is tested with a clock that a test moves.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "normlab/stats/batched_ratio.h"

namespace normlab {

struct DuelSettings {
  size_t contenders = 2;
  size_t baseline = 0;  // whose time the others' are divided by
  size_t batches = stats::kDefaultBatches;
  size_t pilot_rounds = 100;
  double half_width = 0.00995033085316808;  // asked for, of the log ratios; log(1.01)
  double alpha = 0.05;                      // of all intervals together
  std::optional<double> seconds;            // the whole duel's, pilot included, as far as rounds can be cut
  uint64_t seed = 1;                        // of the orders
};

struct DuelProgress {
  bool pilot = true;
  size_t rounds_done = 0, rounds = 0;  // of the pilot (at the most so many), or of all batches
  double remaining_s = 0;              // an estimate
};

// What the system tells of a moment, where it does.
struct DuelConditions {
  std::optional<double> stolen_s;  // a count that never falls: processor time that others got
  std::optional<double> mhz;       // of the processors now
};

struct DuelCallbacks {
  // Before the pilot (batch 0) and before each batch (1, 2, ...): gives every contender fresh memory, in this
  // order. Not timed.
  std::function<void(size_t batch, std::span<const size_t> order)> place;
  std::function<void(size_t contender)> prepare;  // optional: right before its block, not timed
  std::function<void(size_t contender)> block;    // what is timed
  std::function<double()> now_s;
  std::function<int64_t()> interruptions;               // optional: a count that never falls
  std::function<DuelConditions()> conditions;           // optional: asked before and after each round
  std::function<bool(const DuelProgress&)> keep_going;  // optional: asked after each round
};

// What the pilot decides.
struct DuelPlan {
  size_t batches = 0, rounds_per_batch = 0;
  bool cut = false;  // fewer than the precision asks for: there is no time for more
};
struct DuelPilot {
  double sd = 0;       // of a round's log ratio, the contender's with the largest
  double round_s = 0;  // a round's mean duration
  double place_s = 0;  // of one placement
  double spent_s = 0;  // so far
};
DuelPlan PlanDuel(const DuelSettings& settings, const DuelPilot& pilot);

// The least `seconds` with which PlanDuel would make so many batches.
double SecondsForBatches(const DuelPilot& pilot, size_t batches);

struct DuelTimes {
  std::vector<double> seconds;    // round after round, batch after batch
  std::vector<bool> interrupted;  // the system took a processor away during the block
};

struct DuelRound {
  std::vector<size_t> order;       // the contenders as they took turns
  std::optional<double> stolen_s;  // during the round
  std::optional<double> mhz;       // at its end
};

struct DuelResult {
  DuelPlan plan;
  size_t pilot_rounds = 0;  // measured first, and in nothing below
  DuelPilot pilot;
  size_t batches = 0;                // that are complete: only their rounds are in here
  bool stopped = false;              // keep_going ended it
  std::vector<DuelTimes> times;      // by contender
  std::vector<DuelRound> round_log;  // round after round
  // time / time of the baseline, by contender; nothing for the baseline itself, and for fewer than 2 batches.
  std::vector<std::optional<stats::BatchedRatio>> ratios;

  size_t rounds() const { return times.empty() ? 0 : times[0].seconds.size(); }
  size_t interrupted_blocks() const;
};

// Throws Error for settings that allow no duel, and where the clock stands still during a block.
DuelResult RunDuel(const DuelSettings& settings, const DuelCallbacks& callbacks);

}  // namespace normlab
