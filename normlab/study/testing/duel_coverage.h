#pragma once
// How often the duel's interval holds the true ratio, on machines that disturb it in every way that
// stub_machine.h knows.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdio>

#include "normlab/study/duel.h"
#include "normlab/study/testing/stub_machine.h"

namespace normlab::test {

inline const StubMachine kNoisy{.noise = 0.02};
inline const StubMachine kAutocorrelated{.noise = 0.02, .autocorrelation = 0.5};
inline const StubMachine kLayouts{.noise = 0.02, .layout = 0.01};
inline const StubMachine kAllDisturbances{.noise = 0.02,
                                          .autocorrelation = 0.5,
                                          .layout = 0.01,
                                          .interrupted_share = 0.05,
                                          .drift_per_s = 1e-4,
                                          .first_of_round = 0.01};

// With memory that takes long to place, and so little time that six batches of one round are left: the least
// that gets a verdict.
inline StubMachine Shortest() {
  StubMachine machine = kAllDisturbances;
  machine.place_s = 2;
  return machine;
}
inline constexpr double kShortestSeconds = 33;

inline double Coverage(const StubMachine& model, size_t duels, const DuelSettings& settings) {
  constexpr double kTrueRatio = 1.03;
  size_t covered = 0;
  for (size_t i = 0; i < duels; ++i) {
    StubMachine machine = model;
    machine.seconds = {1, kTrueRatio};
    machine.seed = i + 1;
    DuelSettings own = settings;
    own.seed = i + 1;
    const DuelResult result = RunDuel(own, machine.Callbacks());
    const auto& interval = *result.ratios[1]->interval;
    covered += interval.low <= kTrueRatio && kTrueRatio <= interval.high;
  }
  return static_cast<double>(covered) / static_cast<double>(duels);
}

// Nominal is 95%; a t interval over medians keeps 92 to 96% under these disturbances. To that, three standard
// errors of the count itself.
inline void ExpectCoverage(const StubMachine& model, size_t duels,
                           const DuelSettings& settings = {.half_width = 0.01}) {
  const double coverage = Coverage(model, duels, settings);
  std::printf("%.1f%% of %zu intervals hold the true ratio\n", 100 * coverage, duels);
  const double slack = 3 * std::sqrt(0.95 * 0.05 / static_cast<double>(duels));
  EXPECT_GE(coverage, 0.92 - slack);
  EXPECT_LE(coverage, 0.96 + slack);
}

}  // namespace normlab::test
