#pragma once
// A machine whose clock only moves when a contender works: the duel's rules can be tried on times that are
// known. The logarithm of a block's time is the sum of what the contender takes, its layout of memory (drawn
// at each placement), a slow wave that all share, noise of its own, and interruptions.

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "normlab/base/random.h"
#include "normlab/study/duel.h"

namespace normlab::test {

struct StubMachine {
  std::vector<double> seconds;        // of a block of each contender
  double noise = 0;                   // standard deviation of logs
  double autocorrelation = 0;         // of the noise, from block to block of a contender
  double layout = 0;                  // standard deviation over placements
  double interrupted_share = 0;       // of the blocks, which then take 1.5 times as long
  double drift_per_s = 0;             // everything becomes slower as time goes on
  double first_of_round = 0;          // what the first block of a round takes more, in logs
  double place_s = 0, prepare_s = 0;  // durations that are not timed
  double steal_s = 0;                 // in every round; 0: the system does not tell
  double mhz = 0;                     // 0: the system does not tell
  uint64_t seed = 1;

  double now = 0;
  int64_t interruptions = 0;
  double stolen_s = 0;
  size_t in_round = 0;
  std::vector<std::vector<size_t>> placements;  // the orders
  std::vector<size_t> blocks;                   // who worked, in order
  std::vector<double> offsets, waves;
  uint64_t drawn = 0;  // random numbers

  DuelCallbacks Callbacks() {
    const RandomStream random(seed, "stub machine");
    offsets.assign(seconds.size(), 0);
    waves.assign(seconds.size(), 0);
    return {.place =
                [this, random](size_t, std::span<const size_t> order) {
                  placements.emplace_back(order.begin(), order.end());
                  for (const size_t contender : order) offsets[contender] = layout * random.Normal(drawn++);
                  now += place_s;
                },
            .prepare = [this](size_t) { now += prepare_s; },
            .block =
                [this, random](size_t contender) {
                  double& wave = waves[contender];
                  wave = autocorrelation * wave +
                         std::sqrt(1 - autocorrelation * autocorrelation) * random.Normal(drawn++);
                  double log_time =
                      std::log(seconds[contender]) + offsets[contender] + noise * wave + drift_per_s * now;
                  if (in_round++ % seconds.size() == 0) log_time += first_of_round;
                  if (random.Uniform(drawn++) < interrupted_share) {
                    log_time += std::log(1.5);
                    ++interruptions;
                  }
                  blocks.push_back(contender);
                  now += std::exp(log_time);
                },
            .now_s = [this] { return now; },
            .interruptions = [this] { return interruptions; },
            .conditions =
                [this] {
                  DuelConditions conditions;
                  if (steal_s > 0) conditions.stolen_s = stolen_s += steal_s;
                  if (mhz > 0) conditions.mhz = mhz;
                  return conditions;
                },
            .keep_going = {}};
  }
};

}  // namespace normlab::test
