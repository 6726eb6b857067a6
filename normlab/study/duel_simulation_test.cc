// The long form of the duel's simulation: 2,000 duels on each machine.

#include <gtest/gtest.h>

#include "normlab/study/testing/duel_coverage.h"

namespace normlab::test {
namespace {

TEST(DuelSimulation, CoverageUnderNoise) { ExpectCoverage(kNoisy, 2000); }
TEST(DuelSimulation, CoverageUnderAutocorrelation) { ExpectCoverage(kAutocorrelated, 2000); }
TEST(DuelSimulation, CoverageUnderLayouts) { ExpectCoverage(kLayouts, 2000); }
TEST(DuelSimulation, CoverageOfTheShortestDuelThatIsJudged) {
  const DuelSettings settings{.half_width = 0.01, .seconds = kShortestSeconds};
  StubMachine machine = Shortest();
  machine.seconds = {1, 1};
  const DuelResult one = RunDuel(settings, machine.Callbacks());
  EXPECT_EQ(one.batches, 6u);
  EXPECT_EQ(one.plan.rounds_per_batch, 1u);
  ExpectCoverage(Shortest(), 2000, settings);
}
TEST(DuelSimulation, CoverageUnderEverythingAtOnce) { ExpectCoverage(kAllDisturbances, 2000); }

}  // namespace
}  // namespace normlab::test
