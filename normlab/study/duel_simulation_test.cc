// The long form of the duel's simulation: 2,000 duels on each machine.

#include <gtest/gtest.h>

#include "normlab/study/testing/duel_coverage.h"

namespace normlab::test {
namespace {

TEST(DuelSimulation, CoverageUnderNoise) { ExpectCoverage(kNoisy, 2000); }
TEST(DuelSimulation, CoverageUnderAutocorrelation) { ExpectCoverage(kAutocorrelated, 2000); }
TEST(DuelSimulation, CoverageUnderLayouts) { ExpectCoverage(kLayouts, 2000); }
TEST(DuelSimulation, CoverageUnderEverythingAtOnce) { ExpectCoverage(kAllDisturbances, 2000); }

}  // namespace
}  // namespace normlab::test
