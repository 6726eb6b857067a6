#include "normlab/study/duel_text.h"

#include <cmath>

#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/study/text_table.h"
#include "normlab/study/wording.h"

namespace normlab {
namespace {

constexpr const char* kNothing = "-";

constexpr double kBusy = 0.25;  // CPUs of other programs that are worth a word

std::string Milliseconds(double seconds) {
  const double ms = 1e3 * seconds;
  return ms < 1 ? fmt::format("{:.4f}", ms) : ms < 100 ? fmt::format("{:.2f}", ms) : Rounded(ms);
}

std::string Ratio(double ratio) { return fmt::format("{:.4f}", ratio); }

// "simultaneous 95%", for the intervals of the ratios.
std::string Level(const DuelSummary& summary) {
  const stats::ComparisonRule& rule = summary.rule;
  return fmt::format("{}{:g}%", rule.variants * rule.looks > 1 ? "simultaneous " : "",
                     100 * (1 - rule.alpha));
}

std::string_view Word(stats::Verdict verdict) {
  switch (verdict) {
    case stats::Verdict::kBetter:
      return "less time";
    case stats::Verdict::kWorse:
      return "more time";
    case stats::Verdict::kNone:
      return "no verdict";
    default:
      return stats::VerdictName(verdict);
  }
}

std::string RatioTable(const DuelSummary& summary, size_t columns) {
  TextTable table({{"time / baseline's"},
                   {"ratio"},
                   {fmt::format("{:g}% interval", 100 * (1 - summary.rule.alpha))},
                   {"+-"},
                   {"verdict", true}});
  for (const DuelVariant& variant : summary.variants) {
    const auto& time = variant.time;
    table.AddRow({Printable(variant.name), time && time->ratio ? Ratio(*time->ratio) : kNothing,
                  time && time->ci_low ? fmt::format("{} to {}", Ratio(*time->ci_low), Ratio(*time->ci_high))
                                       : kNothing,
                  variant.half_width ? FormatPercent(*variant.half_width) : kNothing,
                  std::string(time ? Word(time->verdict) : "baseline")});
  }
  return table.Render(columns);
}

std::string TimeTable(const DuelSummary& summary, size_t columns) {
  TextTable table({{"step"}, {"ms"}, {"quartiles"}, {"tokens/s"}, {"95% interval"}, {"MiB"}});
  for (const DuelVariant& variant : summary.variants) {
    const auto& step = variant.step_s;
    const auto& rate = variant.tokens_per_s_interval;
    table.AddRow(
        {Printable(variant.name), step ? Milliseconds(step->median) : kNothing,
         step ? Milliseconds(step->first_quartile) + "-" + Milliseconds(step->third_quartile) : kNothing,
         variant.tokens_per_s ? Rounded(*variant.tokens_per_s) : kNothing,
         rate ? Rounded(rate->low) + "-" + Rounded(rate->high) : kNothing,
         fmt::format("{:.1f}", static_cast<double>(variant.peak_bytes) / (1 << 20))});
  }
  return table.Render(columns);
}

std::string Disturbances(const DuelSummary& summary) {
  size_t blocks = 0;
  for (const DuelVariant& variant : summary.variants) blocks += variant.blocks;
  std::string text = fmt::format("The system took a processor away in {} of {}", summary.interrupted_blocks(),
                                 Counted(blocks, "block"));
  if (summary.stolen_s)
    text += fmt::format("; others on the hardware got {} of processor time, in {}",
                        FormatDuration(*summary.stolen_s), Counted(summary.stolen_rounds, "round"));
  if (summary.least_mhz)
    text += *summary.least_mhz == *summary.most_mhz
                ? fmt::format("; processors ran at {} MHz", Rounded(*summary.most_mhz))
                : fmt::format("; processors ran at {} to {} MHz", Rounded(*summary.least_mhz),
                              Rounded(*summary.most_mhz));
  text += ". All of them count.";
  if (summary.busy_cpus && *summary.busy_cpus >= kBusy)
    text += fmt::format(" Other programs kept {:.1f} CPUs busy as the duel began.", *summary.busy_cpus);
  return text;
}

std::string Groups(const DuelSummary& summary) {
  std::string text;
  for (const DuelVariant& variant : summary.variants) {
    if (!variant.groups) continue;
    text += fmt::format(
        " Steps of {} fall into two groups, {:.0f}% at about {} ms and {:.0f}% at {} ms: the machine ran at "
        "two "
        "speeds, and a median says little.",
        Printable(variant.name), 100 * (1 - variant.groups->high_share), Milliseconds(variant.groups->low),
        100 * variant.groups->high_share, Milliseconds(variant.groups->high));
  }
  return text;
}

}  // namespace

std::string DuelVerdicts(const DuelSummary& summary, size_t columns) {
  std::string text;
  for (const DuelVariant& variant : summary.variants)
    if (variant.time)
      text += Wrap(fmt::format("{} against {}: {}", Printable(variant.name), Printable(variant.baseline),
                               variant.explanation),
                   columns, "", "  ");
  return text;
}

std::string DuelTables(const DuelSummary& summary, size_t columns) {
  std::string text;
  std::string legend;
  if (summary.variants.size() > 1) {
    text += RatioTable(summary, columns) + "\n";
    const size_t others = static_cast<size_t>(summary.rule.variants);
    legend = fmt::format(
        "Ratio: time of a step over that of {}; its {} interval is over the batches{}; +-: half its width. ",
        summary.one_baseline() ? Printable(summary.baseline()) : "the baseline of its group", Level(summary),
        others > 1 ? fmt::format(", for {} together", Counted(others, "comparison")) : "");
  }
  text += TimeTable(summary, columns);
  legend +=
      "ms: median over all blocks, and quartiles. tokens/s: from the batches, with a 95% interval for each "
      "variant alone, by inverse times. MiB: memory of its arenas at the most.";
  return text + Wrap(legend, columns);
}

std::string DuelMethod(const DuelSummary& summary, size_t columns) {
  std::string text = fmt::format(
      "{} batch{} of {}, {} a block; before them a pilot of {}, in which everything warmed up, excluded (its "
      "log ratios had a standard deviation of {}).",
      summary.batches, summary.batches == 1 ? "" : "es", Counted(summary.rounds_per_batch, "round"),
      Counted(static_cast<size_t>(summary.steps_per_block), "step"), Counted(summary.pilot_rounds, "round"),
      FormatPercent(summary.pilot.sd));
  if (summary.half_width)
    text += fmt::format(" Precision reached: {}, asked for: {} (half a width of the interval).",
                        FormatPercent(*summary.half_width),
                        FormatPercent(std::expm1(summary.settings.half_width)));
  if (summary.autocorrelation)
    text += fmt::format(" Autocorrelation of successive rounds: {:.2f}.", *summary.autocorrelation);
  if (summary.cut && summary.seconds_needed)
    text += fmt::format(
        " There was no time for as many rounds as the precision asks for. About {} would do for {}.",
        FormatDuration(*summary.seconds_needed),
        summary.batches < stats::kFewestJudgedBatches ? "a verdict" : "it");
  return Wrap(text, columns) + Wrap(Disturbances(summary) + Groups(summary), columns);
}

}  // namespace normlab
