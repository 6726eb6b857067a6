#include "normlab/study/duel_summary.h"

#include <algorithm>
#include <cmath>

#include "normlab/base/progress.h"
#include "normlab/stats/batched_ratio.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/multiplicity.h"

namespace normlab {
namespace {

constexpr double kRateAlpha = 0.05;  // of the interval of one variant's tokens/s, which decides nothing
// What a pilot of a few rounds tells of durations is rough.
constexpr double kSecondsReserve = 1.25;

std::vector<double> Logs(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  return logs;
}

std::vector<double> Exps(const std::vector<double>& values) {
  std::vector<double> exps;
  for (const double value : values) exps.push_back(std::exp(value));
  return exps;
}

// What one variant took, whatever the others did.
DuelVariant Alone(const DuelRecord& record, size_t v) {
  const DuelContender& contender = record.contenders[v];
  const DuelTimes& times = record.result.times[v];
  DuelVariant variant{.name = contender.name,
                      .norm_implementation = contender.norm_implementation,
                      .peak_bytes = contender.peak_bytes,
                      .blocks = times.seconds.size()};
  variant.interrupted_blocks = static_cast<size_t>(std::ranges::count(times.interrupted, true));
  for (const DuelRound& round : record.result.round_log) variant.first_in_round += round.order.at(0) == v;
  if (times.seconds.empty()) return variant;

  std::vector<double> step_s = times.seconds;
  for (double& value : step_s) value /= static_cast<double>(record.steps_per_block);
  variant.step_s = StepTimes{.median = stats::Median(step_s),
                             .mean = stats::Mean(step_s),
                             .first_quartile = stats::Quantile(step_s, 0.25),
                             .third_quartile = stats::Quantile(step_s, 0.75)};
  variant.groups = stats::FindTwoGroups(step_s);
  const double tokens = static_cast<double>(contender.tokens_per_step);
  if (record.result.batches < 2) {
    variant.tokens_per_s = tokens / variant.step_s->median;
    return variant;
  }
  const stats::BatchedRatio seconds = stats::RatioOfBatches(Logs(step_s), record.result.batches, kRateAlpha);
  variant.tokens_per_s = tokens / seconds.ratio;
  if (seconds.interval)
    variant.tokens_per_s_interval =
        stats::Interval{.low = tokens / seconds.interval->high, .high = tokens / seconds.interval->low};
  return variant;
}

// Whoever ends a duel has seen it: a verdict then would be one of their choosing.
stats::Comparison Judge(const DuelRecord& record, const std::vector<double>& medians,
                        const stats::ComparisonRule& rule) {
  stats::Comparison comparison = stats::CompareBatches(medians, rule);
  if (record.result.stopped) {
    comparison.verdict = stats::Verdict::kNone;
    comparison.reason = "it was interrupted before its planned end";
  }
  return comparison;
}

void AgainstBaseline(const DuelRecord& record, size_t v, DuelVariant& variant) {
  const DuelResult& result = record.result;
  const size_t b = record.contenders[v].baseline;
  variant.baseline = record.contenders[b].name;
  const std::vector<double>& own = result.times[v].seconds;
  const std::vector<double>& other = result.times[b].seconds;
  for (size_t r = 0; r < own.size(); ++r) variant.round_ratios.push_back(own[r] / other[r]);

  std::vector<double> medians;
  if (result.batches == 1) medians = {std::log(stats::Median(variant.round_ratios))};
  if (result.batches > 1) {
    const double alpha = stats::AlphaPerVerdict(record.rule.alpha, record.rule.variants, record.rule.looks);
    const stats::BatchedRatio ratio =
        stats::RatioOfBatches(Logs(variant.round_ratios), result.batches, alpha);
    if (ratio.half_width) variant.half_width = std::expm1(*ratio.half_width);
    variant.autocorrelation = ratio.lag_one_autocorrelation;
    medians = ratio.medians;
  }
  variant.batch_ratios = Exps(medians);
  variant.time = Judge(record, medians, record.rule);
  variant.explanation =
      stats::ExplainBatches(*variant.time, record.rule, {.rounds_per_batch = result.plan.rounds_per_batch});

  // A step may hold another number of tokens than the baseline's.
  const double tokens = std::log(static_cast<double>(record.contenders[v].tokens_per_step) /
                                 static_cast<double>(record.contenders[b].tokens_per_step));
  for (double& value : medians) value = tokens - value;
  stats::ComparisonRule rule = record.rule;
  rule.higher_is_better = true;
  variant.tokens_rate = Judge(record, medians, rule);
}

void TakeConditions(const DuelRecord& record, DuelSummary& summary) {
  summary.busy_cpus = record.busy_cpus;
  for (const DuelRound& round : record.result.round_log) {
    if (round.stolen_s) {
      summary.stolen_s = summary.stolen_s.value_or(0) + *round.stolen_s;
      summary.stolen_rounds += *round.stolen_s > 0;
    }
    if (!round.mhz) continue;
    summary.least_mhz = std::min(summary.least_mhz.value_or(*round.mhz), *round.mhz);
    summary.most_mhz = std::max(summary.most_mhz.value_or(*round.mhz), *round.mhz);
  }
}

// What would have to be allowed for the next better answer: any verdict, or the precision that was asked for.
// `half_width`: what was reached, as the settings have it.
std::optional<double> SecondsNeeded(const DuelRecord& record, std::optional<double> half_width) {
  const DuelResult& result = record.result;
  if (!result.plan.cut || result.stopped) return std::nullopt;
  if (result.batches < stats::kFewestJudgedBatches)
    return kSecondsReserve * SecondsForBatches(result.pilot, stats::kFewestJudgedBatches);
  if (half_width && *half_width <= record.settings.half_width) return std::nullopt;
  DuelSettings unlimited = record.settings;
  unlimited.seconds.reset();
  const DuelPlan whole = PlanDuel(unlimited, result.pilot);
  const double batches = static_cast<double>(whole.batches);
  const double planned_s =
      result.pilot.spent_s +
      batches * (result.pilot.place_s + static_cast<double>(whole.rounds_per_batch) * result.pilot.round_s);
  // The pilot may have been calmer than what followed: an interval shrinks with the root of the time.
  const double widened = half_width.value_or(0) / record.settings.half_width;
  const double seen_s =
      result.pilot.spent_s + (*record.settings.seconds - result.pilot.spent_s) * widened * widened;
  return kSecondsReserve * std::max({SecondsForBatches(result.pilot, whole.batches), planned_s, seen_s});
}

// The next step for whoever wants to know more, as the end of a sentence.
std::string NextStep(const DuelSummary& summary, const stats::Comparison& time) {
  using stats::Verdict;
  if (time.verdict != Verdict::kNone && time.verdict != Verdict::kUndecided) return "";
  if (summary.seconds_needed)
    return fmt::format(
        " About {} of duel would do for {}.", FormatDuration(*summary.seconds_needed),
        time.verdict == Verdict::kNone ? "a verdict" : "all rounds that the precision asks for");
  if (time.verdict == Verdict::kUndecided && !summary.stopped) return " A higher precision may decide.";
  return "";
}

Json StepTimesJson(const std::optional<StepTimes>& times) {
  if (!times)
    return {{"median", nullptr}, {"mean", nullptr}, {"first_quartile", nullptr}, {"third_quartile", nullptr}};
  return {{"median", ToJson(times->median)},
          {"mean", ToJson(times->mean)},
          {"first_quartile", ToJson(times->first_quartile)},
          {"third_quartile", ToJson(times->third_quartile)}};
}

Json VariantJson(const DuelVariant& variant) {
  const auto time = variant.time.value_or(stats::Comparison{});
  const bool decided = time.verdict != stats::Verdict::kNone;
  Json json;
  json["name"] = variant.name;
  json["norm_implementation"] = variant.norm_implementation;
  json["step_s"] = StepTimesJson(variant.step_s);
  json["tokens_per_s"] = ToJson(variant.tokens_per_s);
  const auto& rate = variant.tokens_per_s_interval;
  json["tokens_per_s_low"] = rate ? ToJson(rate->low) : Json();
  json["tokens_per_s_high"] = rate ? ToJson(rate->high) : Json();
  json["peak_bytes"] = variant.peak_bytes;
  json["compared_with"] = variant.baseline.empty() ? variant.name : variant.baseline;
  json["ratio"] = ToJson(time.ratio);
  json["ci_low"] = ToJson(time.ci_low);
  json["ci_high"] = ToJson(time.ci_high);
  json["equivalence_ci_low"] = ToJson(time.equivalence_ci_low);
  json["equivalence_ci_high"] = ToJson(time.equivalence_ci_high);
  json["confidence"] = variant.time ? ToJson(time.confidence) : Json();
  json["verdict"] = decided ? Json(stats::VerdictName(time.verdict)) : Json();
  json["explanation"] = variant.explanation.empty() ? Json() : Json(variant.explanation);
  json["half_width"] = ToJson(variant.half_width);
  json["autocorrelation"] = ToJson(variant.autocorrelation);
  json["interrupted_blocks"] = variant.interrupted_blocks;
  json["blocks"] = variant.blocks;
  json["first_in_round"] = variant.first_in_round;
  json["two_groups"] = Json();
  if (variant.groups)
    json["two_groups"] = {{"low_s", ToJson(variant.groups->low)},
                          {"high_s", ToJson(variant.groups->high)},
                          {"high_share", ToJson(variant.groups->high_share)},
                          {"separation", ToJson(variant.groups->separation)}};
  json["batch_ratios"] = variant.batch_ratios;
  json["round_ratios"] = variant.round_ratios;
  return json;
}

}  // namespace

size_t DuelSummary::interrupted_blocks() const {
  size_t count = 0;
  for (const DuelVariant& variant : variants) count += variant.interrupted_blocks;
  return count;
}

bool DuelSummary::one_baseline() const {
  return std::ranges::all_of(variants, [&](const DuelVariant& variant) {
    return variant.baseline.empty() ? variant.name == baseline() : variant.baseline == baseline();
  });
}

DuelSummary Summarize(const DuelRecord& record) {
  const DuelResult& result = record.result;
  DuelSummary summary{.started_at = record.started_at,
                      .machine = record.machine,
                      .settings = record.settings,
                      .rule = record.rule,
                      .steps_per_block = record.steps_per_block,
                      .pilot_rounds = result.pilot_rounds,
                      .pilot = result.pilot,
                      .batches = result.batches,
                      .rounds_per_batch = result.plan.rounds_per_batch,
                      .cut = result.plan.cut,
                      .stopped = result.stopped};
  TakeConditions(record, summary);
  for (size_t v = 0; v < record.contenders.size(); ++v) {
    DuelVariant variant = Alone(record, v);
    if (v != record.contenders[v].baseline) AgainstBaseline(record, v, variant);
    if (variant.half_width)
      summary.half_width = std::max(summary.half_width.value_or(0), *variant.half_width);
    if (variant.autocorrelation &&
        std::abs(*variant.autocorrelation) >= std::abs(summary.autocorrelation.value_or(0)))
      summary.autocorrelation = variant.autocorrelation;
    summary.variants.push_back(std::move(variant));
  }
  std::optional<double> half_width;
  if (summary.half_width) half_width = std::log1p(*summary.half_width);
  summary.seconds_needed = SecondsNeeded(record, half_width);
  for (DuelVariant& variant : summary.variants)
    if (variant.time) variant.explanation += NextStep(summary, *variant.time);
  return summary;
}

Json ToJson(const DuelSummary& summary) {
  Json variants = Json::array();
  for (const DuelVariant& variant : summary.variants) variants.push_back(VariantJson(variant));
  Json json;
  json["started_at"] = summary.started_at;
  json["machine"] = ToJson(summary.machine);
  json["settings"] = {{"seconds", ToJson(summary.settings.seconds)},
                      {"half_width", ToJson(std::expm1(summary.settings.half_width))},
                      {"speed_margin", ToJson(summary.rule.margin)},
                      {"alpha", ToJson(summary.rule.alpha)},
                      {"looks", summary.rule.looks},
                      {"seed", summary.settings.seed},
                      {"steps_per_block", summary.steps_per_block}};
  json["baseline"] = summary.baseline();
  json["pilot_rounds"] = summary.pilot_rounds;
  json["pilot"] = {{"rounds", summary.pilot_rounds},
                   {"sd", ToJson(summary.pilot.sd)},
                   {"round_s", ToJson(summary.pilot.round_s)},
                   {"place_s", ToJson(summary.pilot.place_s)}};
  json["batches"] = summary.batches;
  json["rounds_per_batch"] = summary.rounds_per_batch;
  json["cut"] = summary.cut;
  json["half_width_asked"] = ToJson(std::expm1(summary.settings.half_width));
  json["half_width_reached"] = ToJson(summary.half_width);
  json["autocorrelation"] = ToJson(summary.autocorrelation);
  json["interrupted_blocks"] = summary.interrupted_blocks();
  json["stolen_s"] = ToJson(summary.stolen_s);
  json["stolen_rounds"] = summary.stolen_rounds;
  json["least_mhz"] = ToJson(summary.least_mhz);
  json["most_mhz"] = ToJson(summary.most_mhz);
  json["seconds_needed"] = ToJson(summary.seconds_needed);
  json["variants"] = std::move(variants);
  return json;
}

Json DuelJson(const DuelRecord& record) {
  Json json = ToJson(record);
  const Json summary = ToJson(Summarize(record));
  for (const auto& [key, value] : summary.items())
    if (!json.contains(key)) json[key] = value;
  for (size_t v = 0; v < json["variants"].size(); ++v) json["variants"][v].update(summary["variants"][v]);
  return json;
}

}  // namespace normlab
