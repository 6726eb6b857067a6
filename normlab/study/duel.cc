#include "normlab/study/duel.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/random.h"
#include "normlab/stats/descriptive.h"

namespace normlab {
namespace {

// The pilot takes no more than this share of the time allowed, but for the rounds that a spread needs.
constexpr double kPilotShare = 0.2;
constexpr size_t kFewestPilotRounds = 2;
// Where placing memory takes long, batches become fewer until it takes no more than this share.
constexpr double kPlacingShare = 0.5;
// Below so many batches a t interval is wider than anything it could tell.
constexpr size_t kFewestBatches = 3;

double AlphaOfOne(const DuelSettings& settings) {
  return settings.alpha / static_cast<double>(std::max<size_t>(1, settings.contenders - 1));
}

void Check(const DuelSettings& settings) {
  if (settings.contenders < 1 || settings.baseline >= settings.contenders)
    Fail("a duel of {} contenders has no contender {}", settings.contenders, settings.baseline);
  if (settings.batches < 2 || settings.pilot_rounds < kFewestPilotRounds)
    Fail("a duel needs 2 batches and {} pilot rounds; it has {} and {}", kFewestPilotRounds, settings.batches,
         settings.pilot_rounds);
}

class Duel {
 public:
  Duel(const DuelSettings& settings, const DuelCallbacks& callbacks)
      : settings_(settings), callbacks_(callbacks), orders_(settings.seed, "duel orders") {}

  DuelResult Run() {
    const double start = callbacks_.now_s();
    DuelPilot pilot{.place_s = Place(0)};
    std::vector<DuelTimes> times = Empty();
    std::vector<DuelRound> log;
    const double rounds_start = callbacks_.now_s();
    const auto spent = [&] { return callbacks_.now_s() - start; };
    while (!result_.stopped && result_.pilot_rounds < settings_.pilot_rounds && !PilotIsOver(spent())) {
      Round(times, log);
      ++result_.pilot_rounds;
      pilot.round_s = (callbacks_.now_s() - rounds_start) / static_cast<double>(result_.pilot_rounds);
      KeepGoing({.pilot = true,
                 .rounds_done = result_.pilot_rounds,
                 .rounds = settings_.pilot_rounds,
                 .remaining_s = PilotRemaining(pilot, spent())});
    }
    result_.times = Empty();
    result_.ratios.resize(settings_.contenders);
    if (result_.stopped) return result_;
    pilot.sd = LargestSd(times);
    pilot.spent_s = spent();
    result_.pilot = pilot;
    result_.plan = PlanDuel(settings_, pilot);
    Batches(pilot);
    TakeRatios();
    return result_;
  }

 private:
  std::vector<DuelTimes> Empty() const { return std::vector<DuelTimes>(settings_.contenders); }

  // Fisher and Yates.
  std::vector<size_t> ShuffledOrder() {
    std::vector<size_t> order(settings_.contenders);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(orders_.Below(drawn_++, i))]);
    return order;
  }

  double Place(size_t batch) {
    const double start = callbacks_.now_s();
    const std::vector<size_t> order = ShuffledOrder();
    callbacks_.place(batch, order);
    return callbacks_.now_s() - start;
  }

  int64_t Interruptions() const { return callbacks_.interruptions ? callbacks_.interruptions() : 0; }

  DuelConditions Conditions() const {
    return callbacks_.conditions ? callbacks_.conditions() : DuelConditions{};
  }

  void Round(std::vector<DuelTimes>& times, std::vector<DuelRound>& log) {
    const DuelConditions before = Conditions();
    DuelRound round{.order = ShuffledOrder()};
    for (const size_t contender : round.order) {
      if (callbacks_.prepare) callbacks_.prepare(contender);
      const int64_t interruptions = Interruptions();
      const double start = callbacks_.now_s();
      callbacks_.block(contender);
      const double seconds = callbacks_.now_s() - start;
      if (!(seconds > 0)) Fail("a block of a duel took {} s: too short for the clock", seconds);
      times[contender].seconds.push_back(seconds);
      times[contender].interrupted.push_back(Interruptions() != interruptions);
    }
    const DuelConditions after = Conditions();
    if (before.stolen_s && after.stolen_s) round.stolen_s = *after.stolen_s - *before.stolen_s;
    round.mhz = after.mhz;
    log.push_back(std::move(round));
  }

  bool PilotIsOver(double spent_s) const {
    return settings_.seconds && result_.pilot_rounds >= kFewestPilotRounds &&
           spent_s >= kPilotShare * *settings_.seconds;
  }

  double PilotRemaining(const DuelPilot& pilot, double spent_s) const {
    if (settings_.seconds) return std::max(0.0, *settings_.seconds - spent_s);
    const size_t pilot_left = settings_.pilot_rounds - result_.pilot_rounds;
    const size_t fewest = stats::RoundsPerBatch(
        {.half_width = settings_.half_width, .alpha = AlphaOfOne(settings_), .batches = settings_.batches});
    return pilot.round_s * static_cast<double>(pilot_left + settings_.batches * fewest) +
           pilot.place_s * static_cast<double>(settings_.batches);
  }

  void KeepGoing(const DuelProgress& progress) {
    if (callbacks_.keep_going && !callbacks_.keep_going(progress)) result_.stopped = true;
  }

  std::vector<double> LogRatios(const std::vector<DuelTimes>& times, size_t contender) const {
    const std::vector<double>& own = times[contender].seconds;
    const std::vector<double>& other = times[settings_.baseline].seconds;
    std::vector<double> logs(own.size());
    for (size_t r = 0; r < logs.size(); ++r) logs[r] = std::log(own[r] / other[r]);
    return logs;
  }

  double LargestSd(const std::vector<DuelTimes>& times) const {
    double largest = 0;
    for (size_t contender = 0; contender < settings_.contenders; ++contender)
      if (contender != settings_.baseline)
        largest = std::max(largest, stats::SampleSd(LogRatios(times, contender)));
    return largest;
  }

  void Batches(const DuelPilot& pilot) {
    const DuelPlan& plan = result_.plan;
    for (size_t batch = 1; batch <= plan.batches; ++batch) {
      Place(batch);
      std::vector<DuelTimes> times = Empty();
      std::vector<DuelRound> log;
      for (size_t round = 0; round < plan.rounds_per_batch; ++round) {
        Round(times, log);
        const size_t done = (batch - 1) * plan.rounds_per_batch + round + 1;
        const size_t rounds = plan.batches * plan.rounds_per_batch;
        KeepGoing({.pilot = false,
                   .rounds_done = done,
                   .rounds = rounds,
                   .remaining_s = pilot.round_s * static_cast<double>(rounds - done) +
                                  pilot.place_s * static_cast<double>(plan.batches - batch)});
        if (result_.stopped && round + 1 < plan.rounds_per_batch)
          return;  // an unfinished batch does not count
      }
      for (size_t contender = 0; contender < settings_.contenders; ++contender) {
        auto& [seconds, interrupted] = result_.times[contender];
        seconds.insert(seconds.end(), times[contender].seconds.begin(), times[contender].seconds.end());
        interrupted.insert(interrupted.end(), times[contender].interrupted.begin(),
                           times[contender].interrupted.end());
      }
      std::ranges::move(log, std::back_inserter(result_.round_log));
      ++result_.batches;
      if (result_.stopped) return;
    }
  }

  void TakeRatios() {
    if (result_.batches < 2) return;
    for (size_t contender = 0; contender < settings_.contenders; ++contender)
      if (contender != settings_.baseline)
        result_.ratios[contender] = stats::RatioOfBatches(LogRatios(result_.times, contender),
                                                          result_.batches, AlphaOfOne(settings_));
  }

  const DuelSettings& settings_;
  const DuelCallbacks& callbacks_;
  RandomStream orders_;
  uint64_t drawn_ = 0;
  DuelResult result_;
};

}  // namespace

DuelPlan PlanDuel(const DuelSettings& settings, const DuelPilot& pilot) {
  DuelPlan plan{.batches = settings.batches,
                .rounds_per_batch = stats::RoundsPerBatch({.pilot_sd = pilot.sd,
                                                           .half_width = settings.half_width,
                                                           .alpha = AlphaOfOne(settings),
                                                           .batches = settings.batches})};
  if (!settings.seconds) return plan;
  const double left_s = *settings.seconds - pilot.spent_s;
  const double batches = static_cast<double>(plan.batches);
  const double wanted_s =
      batches * (pilot.place_s + static_cast<double>(plan.rounds_per_batch) * pilot.round_s);
  if (!(wanted_s > left_s)) return plan;

  plan.cut = true;
  const auto whole = [](double value, size_t low, size_t high) {
    return static_cast<size_t>(
        std::clamp(std::floor(value), static_cast<double>(low), static_cast<double>(high)));
  };
  const size_t fewest = std::min(kFewestBatches, plan.batches);
  if (pilot.place_s > 0) plan.batches = whole(kPlacingShare * left_s / pilot.place_s, fewest, plan.batches);
  const double rounds = (left_s / static_cast<double>(plan.batches) - pilot.place_s) / pilot.round_s;
  plan.rounds_per_batch = whole(rounds, 1, plan.rounds_per_batch);
  if (rounds < 1) plan.batches = whole(left_s / (pilot.place_s + pilot.round_s), fewest, plan.batches);
  return plan;
}

double SecondsForBatches(const DuelPilot& pilot, size_t batches) {
  // After a pilot that may pass its share by one round, or takes its fewest rounds, as PlanDuel divides what
  // is left: placing no more than its share, or one round a batch.
  const double count = static_cast<double>(batches);
  const double left = count * std::max(pilot.place_s / kPlacingShare, pilot.place_s + pilot.round_s);
  const double fewest_pilot = pilot.place_s + static_cast<double>(kFewestPilotRounds) * pilot.round_s;
  const double seconds = std::max((left + pilot.round_s) / (1 - kPilotShare), left + fewest_pilot);
  return seconds * (1 + 1e-9);  // whole batches come out of a division
}

size_t DuelResult::interrupted_blocks() const {
  size_t count = 0;
  for (const DuelTimes& contender : times)
    count += static_cast<size_t>(std::ranges::count(contender.interrupted, true));
  return count;
}

DuelResult RunDuel(const DuelSettings& settings, const DuelCallbacks& callbacks) {
  Check(settings);
  return Duel(settings, callbacks).Run();
}

}  // namespace normlab
