#include <algorithm>
#include <cmath>
#include <filesystem>

#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/study/duel_text.h"
#include "normlab/study/export.h"
#include "normlab/study/headline.h"
#include "normlab/study/insides.h"
#include "normlab/study/text_table.h"

namespace normlab {
namespace {

constexpr std::string_view kNothing = "-";

std::string OrNothing(const std::optional<double>& value, auto&& format) {
  return value ? std::string(format(*value)) : std::string(kNothing);
}

std::string Seconds(double value) {
  return fmt::format("{:.{}f}", value, value < 10 ? 3 : value < 1000 ? 2 : 0);
}
std::string Loss(double value) { return fmt::format("{:.4f}", value); }
// A difference of losses; one that four decimals would show as nothing keeps its size.
std::string LossDifference(double value) {
  if (std::abs(value) >= 10) return fmt::format("{:+.3f}", value);
  return value == 0 || std::abs(value) >= 5e-5 ? fmt::format("{:+.4f}", value)
                                               : fmt::format("{:+.0e}", value);
}
std::string Mebibytes(double value) { return fmt::format("{:.1f}", value / (1024 * 1024)); }
std::string PValue(double value) { return value < 0.0001 ? "<.0001" : fmt::format("{:.4f}", value); }

// Verdicts in words that say the direction.
std::string Verdict(const MetricComparison& comparison) {
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

// A ratio as a change: "-2.39%"; from tenfold on as a factor.
std::string Change(double ratio) {
  return ratio < 10 ? fmt::format("{:+.2f}%", 100 * (ratio - 1)) : fmt::format("x{:.3g}", ratio);
}

// The level at which the study as a whole may err, and that of each interval.
std::string IntervalName(const StudyPlan& plan) {
  return fmt::format("simultaneous {:g}% interval", 100 * (1 - plan.alpha));
}

std::string IntervalTitle(const StudyPlan& plan) {
  return fmt::format("{:g}% interval", 100 * (1 - plan.alpha));
}

std::string Varied(const StudyPlan& plan) {
  std::string text;
  for (const std::string& key : plan.varied_keys) text += (text.empty() ? "" : ", ") + key;
  return text.empty() ? "one variant" : text;
}

// "1 to 5", or "1, 2, 7"
std::string Seeds(const std::vector<uint64_t>& seeds) {
  if (seeds.size() > 2 && seeds.back() - seeds.front() + 1 == seeds.size() && std::ranges::is_sorted(seeds))
    return fmt::format("{} to {}", seeds.front(), seeds.back());
  std::string text;
  for (const uint64_t seed : seeds) text += fmt::format("{}{}", text.empty() ? "" : ", ", seed);
  return text;
}

// "1 to 5", or "1 to 5 against 6 to 10"
std::string Seeds(const StudyPlan& plan) {
  if (!plan.aa) return Seeds(plan.seeds);
  std::string text;
  for (const PlannedVariant& planned : plan.variants)
    text += (text.empty() ? "" : " against ") + Seeds(planned.seeds);
  return text;
}

// "Baseline: a.", or what it is within each group.
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
    text += ", " + FormatCount(plan.data["tokens"].get<int64_t>()) + " tokens";
  return text + fmt::format(" ({})", plan.data.value("tokenizer", "?"));
}

// "60 steps of 4,096 tokens", from the baseline; keys that vary are shown in the names.
std::string StepsText(const StudyPlan& plan) {
  const TrainConfig& config = plan.variants[plan.Baseline()].variant.config;
  return fmt::format("{} steps of {} tokens", FormatCount(config.steps), FormatCount(config.TokensPerStep()));
}

std::string Header(const StudyResults& results, size_t columns) {
  const StudyPlan& plan = results.plan;
  const Machine& machine = results.machine ? *results.machine : plan.machine;
  const auto line = [&](std::string_view label, const std::string& text) {
    return Wrap(text, columns, fmt::format("{:<9}", label), std::string(9, ' '));
  };
  std::string text =
      line("study", fmt::format("{}: {} x {}; {}", Varied(plan), Counted(plan.variants.size(), "variant"),
                                Counted(plan.seeds.size(), "seed"), StepsText(plan)));
  text += line("data", DataText(plan));
  text +=
      line("machine",
           fmt::format("{}, {}, {}{}{}", machine.cpu, machine.isa, Counted(machine.threads, "thread"),
                       machine.jobs > 1 ? fmt::format(" for each of {} cells at a time", machine.jobs) : "",
                       results.machines_differ ? " (the first cell's; others differ)" : ""));
  text += line("seeds", Seeds(plan));
  text += line("cells", CountsText(results.counts));
  return text;
}

std::string MeansTable(const StudyResults& results, size_t columns) {
  TextTable table({{"norm"}, {"time s"}, {"tokens/s"}, {"test loss"}, {"sd"}, {"peak MiB"}, {"done"}});
  if (results.plan.varied_keys != std::vector<std::string>{"norm_type"})
    table = TextTable({{"variant"}, {"time s"}, {"tokens/s"}, {"test loss"}, {"sd"}, {"peak MiB"}, {"done"}});
  for (const VariantSummary& variant : results.variants)
    table.AddRow({Printable(variant.name), OrNothing(variant.time_s, Seconds),
                  OrNothing(variant.tokens_per_s, Rounded), OrNothing(variant.test_loss, Loss),
                  OrNothing(variant.test_loss_sd, Loss), OrNothing(variant.peak_bytes, Mebibytes),
                  fmt::format("{}/{}", variant.counts.done, variant.counts.planned)});
  return table.Render(columns) + Wrap(fmt::format("Means over the seeds that are done; sd: standard "
                                                  "deviation of the test loss (nats) over them. {}",
                                                  BaselineText(results.plan)),
                                      columns);
}

std::string LossTable(const StudyResults& results, size_t columns) {
  TextTable table({{"test loss, nats"},
                   {"mean"},
                   {"baseline"},
                   {"diff."},
                   {"diff. %"},
                   {IntervalTitle(results.plan)},
                   {"p"},
                   {"verdict", true}});
  for (const MetricComparison& comparison : results.comparisons) {
    if (comparison.metric != Metric::kTestLoss) continue;
    const stats::Comparison& c = comparison.result;
    const std::string interval =
        c.ci_low && c.ci_high ? fmt::format("[{}, {}]", LossDifference(*c.ci_low), LossDifference(*c.ci_high))
                              : std::string(kNothing);
    table.AddRow({Printable(results.variants[comparison.variant].name), OrNothing(c.mean_variant, Loss),
                  OrNothing(c.mean_baseline, Loss), OrNothing(c.difference, LossDifference),
                  OrNothing(c.ratio, Change), interval, OrNothing(c.p_value, PValue), Verdict(comparison)});
  }
  return table.Render(columns);
}

// Of a duel; without one, what whole runs took, which is not judged.
std::string TimeTable(const StudyResults& results, size_t columns) {
  const bool duel = results.duel.has_value();
  const auto ratio = [](double value) { return fmt::format("{:.4f}", value); };
  TextTable table({{duel ? "time of a step" : "training time"},
                   {duel ? "ratio" : "diff."},
                   {IntervalTitle(results.plan)},
                   {duel ? "batches" : "n"},
                   {"verdict", true}});
  for (const MetricComparison& comparison : results.comparisons) {
    if (comparison.metric != Metric::kTime) continue;
    const stats::Comparison& c = comparison.result;
    const std::string interval = c.ci_low && c.ci_high
                                     ? fmt::format("{} to {}", ratio(*c.ci_low), ratio(*c.ci_high))
                                     : std::string(kNothing);
    table.AddRow({Printable(results.variants[comparison.variant].name),
                  duel ? OrNothing(c.ratio, ratio) : OrNothing(c.ratio, Change), interval,
                  fmt::format("{}", c.n), Verdict(comparison)});
  }
  return table.Render(columns);
}

std::string Legend(const StudyResults& results, size_t columns) {
  const StudyPlan& plan = results.plan;
  const stats::Comparison& any = results.comparisons.front().result;
  std::string text = fmt::format(
      "Means are over the seeds that finished in both; differences are variant minus baseline, paired by {}; "
      "interval: {}, over {} and {} ({:.4g}% each); p: paired t test, unadjusted (Holm-adjusted in "
      "results.json). Margins stated beforehand: {}, {}.",
      plan.aa ? "position" : "seed", IntervalName(plan), Counted(plan.comparisons(), "comparison"),
      Counted(plan.looks, "declared look"), 100 * any.confidence,
      plan.margin_nats > 0 ? fmt::format("{:g} nats", plan.margin_nats) : "none for losses",
      plan.speed_margin > 0 ? fmt::format("{:g}% of time", 100 * plan.speed_margin) : "none for times");
  if (plan.look() > 1 || plan.look() > plan.looks) text += fmt::format(" This is look {}.", plan.look());
  text = Wrap(text, columns);
  if (!results.counts.complete())
    text += Wrap("* interim: cells are still to run, and a verdict read now is no verdict of this study.",
                 columns);
  if (plan.look() > plan.looks)
    text += Wrap(
        fmt::format("Exploratory: {} {} declared before the first cell, so these verdicts no longer keep the "
                    "error rate that their intervals name.",
                    Counted(plan.looks, "look"), plan.looks == 1 ? "was" : "were"),
        columns);
  return text;
}

std::string Explanations(const StudyResults& results, size_t columns) {
  std::string text;
  for (size_t v = 0; v < results.variants.size(); ++v) {
    const MetricComparison* loss = results.Find(v, Metric::kTestLoss);
    const MetricComparison* time = results.Find(v, Metric::kTime);
    if (loss == nullptr || time == nullptr) continue;
    text += Wrap(fmt::format("{}: {}", Printable(results.variants[v].name), loss->explanation), columns, "",
                 "  ");
    text += Wrap(fmt::format("Time: {}", time->explanation), columns, "  ", "  ");
  }
  return text;
}

// What else differs between a variant and the baseline: nobody should take it for the effect of the varied
// key.
std::string AlsoDiffers(const StudyResults& results, size_t columns) {
  const StudyPlan& plan = results.plan;
  std::string text;
  for (size_t v = 0; v < plan.variants.size(); ++v) {
    const PlannedVariant &planned = plan.variants[v], &baseline = plan.variants[plan.BaselineOf(v)];
    const Json base_config = ToJson(baseline.variant.config);
    std::vector<std::string> parts;
    const int64_t more = planned.variant.parameters - baseline.variant.parameters;
    if (more != 0)
      parts.push_back(fmt::format("{} parameters {} ({}, of them {} in norms)", FormatCount(std::abs(more)),
                                  more > 0 ? "more" : "fewer", FormatCount(planned.variant.parameters),
                                  FormatCount(planned.variant.norm_parameters)));
    for (const KeyDifference& difference : Differences(base_config, ToJson(planned.variant.config)))
      if (std::ranges::count(plan.varied_keys, difference.key) == 0)
        parts.push_back(fmt::format("{} {} instead of {}", difference.key, DumpJson(difference.asked),
                                    DumpJson(difference.recorded)));
    std::string joined;
    for (const std::string& part : parts) joined += (joined.empty() ? "" : "; ") + part;
    if (!parts.empty())
      text += Wrap(fmt::format("{}: {}", Printable(planned.variant.name), joined), columns, "  ", "    ");
  }
  const PlannedVariant& baseline = plan.variants[plan.Baseline()];
  return Wrap(fmt::format("Besides {}, {} from the baseline ({} parameters, {} of them in norms){}",
                          Varied(plan), text.empty() ? "nothing differs" : "these differ",
                          FormatCount(baseline.variant.parameters),
                          FormatCount(baseline.variant.norm_parameters), text.empty() ? "." : ":"),
              columns) +
         text;
}

// What a comparison of a variant with itself is for.
std::string AboutAa(const StudyPlan& plan, size_t columns) {
  return Wrap(
      fmt::format("An A/A study: both sides run {} with different seeds, as a check of the method. To be "
                  "expected is `equivalent` or `undecided`; a verdict of a lower or higher loss would be "
                  "chance, at a rate of at most {:g}% of studies.",
                  Printable(plan.baseline), 100 * plan.alpha),
      columns);
}

int MostJobs(const StudyResults& results) {
  int most = 1;
  for (const Cell& cell : results.cells)
    if (IsFinished(cell.status)) most = std::max(most, cell.record->machine.jobs);
  return most;
}

std::string Problems(const StudyResults& results, size_t columns) {
  std::string text;
  for (const Cell& cell : results.cells) {
    if (cell.status == CellStatus::kDone) continue;
    text += Wrap(fmt::format("{}, seed {}: {}{}", Printable(results.variants[cell.variant].name),
                             results.plan.Seed(cell.variant, cell.seed), Name(cell.status),
                             cell.reason.empty() ? "" : ": " + Printable(cell.reason)),
                 columns, "  ", "    ");
  }
  return text.empty() ? text : "Cells that are not done:\n" + text;
}

}  // namespace

std::string CountsText(const Counts& counts) {
  return fmt::format("{} planned: {} done, {} diverged, {} failed, {} missing", counts.planned, counts.done,
                     counts.diverged, counts.failed, counts.missing);
}

std::string ResultsText(const StudyResults& results, size_t columns) {
  std::string text = Headline(results);
  if (!text.empty()) text = Wrap(text, columns) + "\n";
  text += Header(results, columns) + "\n" + MeansTable(results, columns);
  const std::string problems = Problems(results, columns);
  if (!problems.empty()) text += "\n" + problems;
  if (results.comparisons.empty()) return text;
  text += "\n" + LossTable(results, columns) + "\n" + TimeTable(results, columns) + Legend(results, columns);
  text += "\n" + Explanations(results, columns);
  if (const std::string insides = InsidesText(results, columns); !insides.empty()) text += "\n" + insides;
  text += "\n" + (results.plan.aa ? AboutAa(results.plan, columns) : AlsoDiffers(results, columns));
  text += "\n" + Wrap(
                     "Seeds vary the initial weights and the order of the data. They do not vary the text, "
                     "its held-out part, "
                     "the learning rate or the machine, so nothing is claimed beyond those.",
                     columns);
  const std::string memory = " Peak memory is counted, not judged.";
  if (results.duel)
    return text + "\nThe duel: steps of all variants in turns.\n" + DuelMethod(*results.duel, columns) +
           Wrap("Ratio: variant over baseline." + memory, columns);
  return text +
         Wrap(fmt::format(
                  "Speed is not judged without a duel (--duel): whole runs {}, and the machine's speed "
                  "may have drifted meanwhile.{}",
                  MostJobs(results) > 1
                      ? fmt::format("shared the machine, up to {} at a time", MostJobs(results))
                      : "follow one another",
                  memory),
              columns);
}

}  // namespace normlab
