#include "normlab/stats/loss_course.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/base/random.h"

namespace normlab::stats {
namespace {

// A loss that falls from 5 to 2.5 with the noise of batches; `change` alters the loss of a step (from 1).
template <class Change>
std::vector<LossSpike> SpikesOf(int64_t steps, const Change& change, double noise = 0.03, uint64_t seed = 1) {
  const RandomStream stream(seed, "losses");
  SpikeWatch watch;
  for (int64_t step = 1; step <= steps; ++step) {
    const double loss = 2.5 + 2.5 * std::exp(-static_cast<double>(step) / 40) +
                        noise * stream.Normal(static_cast<uint64_t>(step));
    const size_t before = watch.spikes().size();
    const bool begins = watch.See(change(step, loss));
    EXPECT_EQ(begins, watch.spikes().size() > before);
  }
  return watch.spikes();
}

TEST(SpikeWatch, AFallingLossWithNoiseHasNone) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    for (const double noise : {0.01, 0.03, 0.1})
      EXPECT_TRUE(SpikesOf(
                      2000, [](int64_t, double loss) { return loss; }, noise, seed)
                      .empty())
          << seed;
}

TEST(SpikeWatch, ASpikeHasItsStepLevelPeakAndRecovery) {
  const std::vector<LossSpike> spikes = SpikesOf(400, [](int64_t step, double loss) {
    if (step == 303) return 3.2;
    if (step == 304) return 3.6;
    if (step >= 305 && step < 312) return 3.0;
    return loss;
  });
  ASSERT_EQ(spikes.size(), 1u);
  EXPECT_EQ(spikes[0].step, 303);
  EXPECT_EQ(spikes[0].loss, 3.2);
  EXPECT_EQ(spikes[0].peak, 3.6);
  EXPECT_NEAR(spikes[0].before, 2.5, 0.05);
  EXPECT_EQ(spikes[0].recovered_after, 9);
}

TEST(SpikeWatch, TwoSpikesAreTwoAndTheFirstIsNotInTheLevelOfTheSecond) {
  const std::vector<LossSpike> spikes = SpikesOf(
      400, [](int64_t step, double loss) { return (step >= 300 && step < 310) || step == 315 ? 3.1 : loss; });
  ASSERT_EQ(spikes.size(), 2u);
  EXPECT_EQ(spikes[1].step, 315);
  EXPECT_NEAR(spikes[1].before, 2.5, 0.05);
  EXPECT_EQ(spikes[1].recovered_after, 1);
}

TEST(SpikeWatch, ALossThatStaysUpIsOneSpikeThatIsNotOver) {
  const std::vector<LossSpike> spikes =
      SpikesOf(500, [](int64_t step, double loss) { return step >= 300 ? loss + 1 : loss; });
  ASSERT_EQ(spikes.size(), 1u);
  EXPECT_FALSE(spikes[0].recovered_after.has_value());
}

TEST(SpikeWatch, ARiseBelowTheLeastIsNone) {
  const auto rise = [](double by) {
    return SpikesOf(
               200, [by](int64_t step, double) { return step == 150 ? 2 + by : 2.0; }, 0)
        .size();
  };
  EXPECT_EQ(rise(0.9 * kLeastRise), 0u);
  EXPECT_EQ(rise(1.1 * kLeastRise), 1u);
}

// T-37
TEST(StartWatch, SaysOnceThatALossStaysAboveItsStart) {
  StartWatch watch;
  std::vector<int64_t> said;
  for (int64_t step = 1; step <= 60; ++step)
    if (watch.See(step < 11 ? 5.5 - 0.1 * static_cast<double>(step) : 8)) said.push_back(step);
  EXPECT_EQ(said, (std::vector<int64_t>{10 + StartWatch::kSteps}));
  EXPECT_EQ(watch.since(), 11);
  EXPECT_EQ(watch.first(), 5.4);
  watch.See(3);  // it learned after all
  EXPECT_FALSE(watch.since().has_value());
}

TEST(StartWatch, NoiseAboveTheStartIsNothing) {
  StartWatch watch;
  watch.See(5.5);
  for (int step = 0; step < 100; ++step) EXPECT_FALSE(watch.See(5.5 + 0.9 * kLeastRise));
  EXPECT_FALSE(watch.since().has_value());
}

}  // namespace
}  // namespace normlab::stats
