#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/study/duel_text.h"
#include "normlab/study/export.h"
#include "normlab/study/headline.h"
#include "normlab/study/insides.h"
#include "normlab/study/text_table.h"
#include "normlab/study/wording.h"

namespace normlab {
namespace {

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
  text += line("machine", fmt::format("{}, {}, {}{}", machine.cpu, machine.isa, ThreadsText(machine),
                                      results.machines_differ ? " (the first cell's; others differ)" : ""));
  text += line("seeds", SeedsText(plan));
  text += line("cells", CountsText(results.counts));
  return text;
}

std::string MeansTable(const StudyResults& results, size_t columns) {
  TextTable table({{"norm"}, {"time s"}, {"tokens/s"}, {"test loss"}, {"sd"}, {"peak MiB"}, {"done"}});
  if (results.plan.varied_keys != std::vector<std::string>{"norm_type"})
    table = TextTable({{"variant"}, {"time s"}, {"tokens/s"}, {"test loss"}, {"sd"}, {"peak MiB"}, {"done"}});
  for (const VariantSummary& variant : results.variants)
    table.AddRow({Printable(variant.name), OrNothing(variant.time_s, FormatSeconds),
                  OrNothing(variant.tokens_per_s, Rounded), OrNothing(variant.test_loss, FormatLoss),
                  OrNothing(variant.test_loss_sd, FormatLoss), OrNothing(variant.peak_bytes, FormatMebibytes),
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
        c.ci_low && c.ci_high
            ? fmt::format("[{}, {}]", FormatLossDifference(*c.ci_low), FormatLossDifference(*c.ci_high))
            : std::string(kNothing);
    table.AddRow({Printable(results.variants[comparison.variant].name), OrNothing(c.mean_variant, FormatLoss),
                  OrNothing(c.mean_baseline, FormatLoss), OrNothing(c.difference, FormatLossDifference),
                  OrNothing(c.ratio, FormatChange), interval, OrNothing(c.p_value, FormatPValue),
                  VerdictWord(comparison)});
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
                  duel ? OrNothing(c.ratio, ratio) : OrNothing(c.ratio, FormatChange), interval,
                  fmt::format("{}", c.n), VerdictWord(comparison)});
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

std::string AlsoDiffersText(const StudyResults& results, size_t columns) {
  const StudyPlan& plan = results.plan;
  std::string text;
  for (size_t v = 0; v < plan.variants.size(); ++v) {
    std::string joined;
    for (const std::string& part : AlsoDiffers(plan, v)) joined += (joined.empty() ? "" : "; ") + part;
    if (!joined.empty())
      text += Wrap(fmt::format("{}: {}", Printable(results.variants[v].name), joined), columns, "  ", "    ");
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
  text += Header(results, columns);
  const auto add = [&text](const std::string& part) {
    if (!part.empty()) (text += '\n') += part;
  };
  add(MeansTable(results, columns));
  add(Problems(results, columns));
  if (results.comparisons.empty()) return text;
  add(LossTable(results, columns));
  add(TimeTable(results, columns) + Legend(results, columns));
  add(Explanations(results, columns));
  add(InsidesText(results, columns));
  add(results.plan.aa ? AboutAa(results.plan, columns) : AlsoDiffersText(results, columns));
  add(Wrap(
      "Seeds vary the initial weights and the order of the data. They do not vary the text, its held-out "
      "part, the learning rate or the machine, so nothing is claimed beyond those.",
      columns));
  constexpr const char* kMemory = "Peak memory is counted, not judged.";
  if (results.duel) {
    add("The duel: steps of all variants in turns.\n" + DuelMethod(*results.duel, columns));
    return text + Wrap(fmt::format("Ratio: variant over baseline. {}", kMemory), columns);
  }
  return text + Wrap(fmt::format("Speed is not judged without a duel (--duel): whole runs {}, and the "
                                 "machine's speed may have drifted meanwhile. {}",
                                 HowRunsShared(results), kMemory),
                     columns);
}

}  // namespace normlab
