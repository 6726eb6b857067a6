#include "normlab/study/wording.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "normlab/base/progress.h"
#include "normlab/base/text.h"

namespace normlab {

std::string FormatSeconds(double value) {
  return fmt::format("{:.{}f}", value, value < 10 ? 3 : value < 1000 ? 2 : 0);
}
std::string FormatLoss(double value) { return fmt::format("{:.4f}", value); }
std::string FormatPercent(double fraction) {
  const double percent = 100 * fraction;
  return std::abs(percent) < 99.5 ? fmt::format("{:.2g}%", percent) : Rounded(percent) + "%";
}

std::string FormatMebibytes(double value) { return fmt::format("{:.1f}", value / (1024 * 1024)); }
std::string FormatPValue(double value) { return value < 0.0001 ? "<.0001" : fmt::format("{:.4f}", value); }

std::string FormatLossDifference(double value) {
  if (std::abs(value) >= 10) return fmt::format("{:+.3f}", value);
  return value == 0 || std::abs(value) >= 5e-5 ? fmt::format("{:+.4f}", value)
                                               : fmt::format("{:+.0e}", value);
}

std::string FormatChange(double ratio) {
  return ratio < 10 ? fmt::format("{:+.2f}%", 100 * (ratio - 1)) : fmt::format("x{:.3g}", ratio);
}

std::string VerdictWord(const MetricComparison& comparison) {
  const bool time = comparison.metric == Metric::kTime;
  std::string word;
  switch (comparison.result.verdict) {
    case stats::Verdict::kNone:
      if (time)
        word = comparison.result.test.empty() ? "no duel" : "no verdict";
      else
        word = comparison.result.n == 1 ? "one seed" : "no pair";
      break;
    case stats::Verdict::kBetter:
      word = time ? "less time" : "lower loss";
      break;
    case stats::Verdict::kWorse:
      word = comparison.result.worse_by_divergence ? "diverges" : time ? "more time" : "higher loss";
      break;
    case stats::Verdict::kEquivalent:
      word = "equivalent";
      break;
    case stats::Verdict::kIdentical:
      word = "identical";
      break;
    case stats::Verdict::kDiverged:
      word = "diverged";
      break;
    case stats::Verdict::kUndecided:
      word = "undecided";
      break;
  }
  return comparison.interim && !time ? word + "*" : word;
}

std::string IntervalTitle(const StudyPlan& plan) {
  return fmt::format("{:g}% interval", 100 * (1 - plan.alpha));
}

std::string IntervalName(const StudyPlan& plan) { return "simultaneous " + IntervalTitle(plan); }

std::string Varied(const StudyPlan& plan) {
  std::string text;
  for (const std::string& key : plan.varied_keys) text += (text.empty() ? "" : ", ") + key;
  return text.empty() ? "one variant" : text;
}

namespace {

std::string SeedsText(const std::vector<uint64_t>& seeds) {
  if (seeds.size() > 2 && seeds.back() - seeds.front() + 1 == seeds.size() && std::ranges::is_sorted(seeds))
    return fmt::format("{} to {}", seeds.front(), seeds.back());
  std::string text;
  for (const uint64_t seed : seeds) text += fmt::format("{}{}", text.empty() ? "" : ", ", seed);
  return text;
}

}  // namespace

std::string SeedsText(const StudyPlan& plan) {
  if (!plan.aa) return SeedsText(plan.seeds);
  std::string text;
  for (const PlannedVariant& planned : plan.variants)
    text += (text.empty() ? "" : " against ") + SeedsText(planned.seeds);
  return text;
}

std::string BaselineText(const StudyPlan& plan) {
  if (plan.within.empty()) return fmt::format("Baseline: {}.", Printable(plan.baseline));
  std::string text;
  for (const auto& [key, value] : plan.variants[plan.Baseline()].variant.varied.items())
    if (std::ranges::count(plan.within, key) == 0)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", key,
                          value.is_string() ? value.get<std::string>() : DumpJson(value));
  return fmt::format("Baseline within each {}: {}.", fmt::join(plan.within, ", "), Printable(text));
}

std::string DataText(const StudyPlan& plan) {
  const Json files = plan.data.value("files", Json::array());
  std::string text = "unknown";
  if (!files.empty()) text = Printable(std::filesystem::path(files[0].value("path", "")).filename().string());
  if (files.size() > 1) text += fmt::format(" and {} more files", files.size() - 1);
  if (plan.data.contains("tokens"))
    text += fmt::format(", {} tokens", FormatCount(plan.data["tokens"].get<int64_t>()));
  return text + fmt::format(" ({})", plan.data.value("tokenizer", "?"));
}

std::string StepsText(const StudyPlan& plan) {
  const TrainConfig& config = plan.variants[plan.Baseline()].variant.config;
  return fmt::format("{} steps of {} tokens", FormatCount(config.steps), FormatCount(config.TokensPerStep()));
}

std::vector<std::string> AlsoDiffers(const StudyPlan& plan, size_t variant) {
  const Variant &baseline = plan.variants[plan.BaselineOf(variant)].variant,
                &other = plan.variants[variant].variant;
  std::vector<std::string> parts;
  const int64_t more = other.parameters - baseline.parameters;
  if (more != 0)
    parts.push_back(fmt::format("{} parameters {} ({}, of them {} in norms)", FormatCount(std::abs(more)),
                                more > 0 ? "more" : "fewer", FormatCount(other.parameters),
                                FormatCount(other.norm_parameters)));
  for (const KeyDifference& difference : Differences(ToJson(baseline.config), ToJson(other.config)))
    if (std::ranges::count(plan.varied_keys, difference.key) == 0)
      parts.push_back(fmt::format("{} {} instead of {}", difference.key, DumpJson(difference.asked),
                                  DumpJson(difference.recorded)));
  return parts;
}

std::string ThreadsText(const Machine& machine) {
  return Counted(machine.threads, "thread") +
         (machine.jobs > 1 ? fmt::format(" for each of {} cells at a time", machine.jobs) : "");
}

std::string HowRunsShared(const StudyResults& results) {
  int most = 1;
  for (const Cell& cell : results.cells)
    if (IsFinished(cell.status)) most = std::max(most, cell.record->machine.jobs);
  return most > 1 ? fmt::format("shared the machine, up to {} at a time", most) : "followed one another";
}

}  // namespace normlab
