#include "normlab/study/report/tables.h"

#include <algorithm>

#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/norms/norm_list.h"
#include "normlab/study/wording.h"

namespace normlab {
namespace {

using Column = ReportTable::Column;

ReportField Words(const std::string& text) { return {.text = text}; }

template <class Format>
ReportField Number(const std::optional<double>& value, Format&& format) {
  return {.text = OrNothing(value, format),
          .values = value ? std::vector<double>{*value} : std::vector<double>{}};
}

std::string Joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : std::string(between)) + part;
  return text;
}

ReportField Brackets(const std::optional<double>& low, const std::optional<double>& high, auto&& format) {
  if (!low || !high) return Words(std::string(kNothing));
  return {.text = fmt::format("[{}, {}]", format(*low), format(*high)), .values = {*low, *high}};
}

std::string Plain(double value) { return fmt::format("{:g}", value); }
std::string FormatTokens(double value) { return Rounded(value); }

std::optional<double> NumberAt(const Json& json, const char* key) {
  return OptionalNumberFromJson(json.value(key, Json()), key);
}

// "pre: norm1 and norm2 in 4 blocks, final_norm"
std::string Places(const GptConfig& model) {
  std::string text =
      fmt::format("{}: norm1 and norm2 in {}", model.norm_position, Counted(model.n_layers, "block"));
  if (model.final_norm) text += ", final_norm";
  return text;
}

std::vector<ReportField> NormRow(const StudyResults& results, size_t v) {
  const StudyPlan& plan = results.plan;
  const PlannedVariant& planned = plan.variants[v];
  const GptConfig& model = planned.variant.config.model;
  const NormSpec spec = model.Norm();
  const NormInfo& info = InfoOf(spec.kind);
  const auto learned = [](bool has, bool on) { return Words(!has ? "none" : on ? "yes" : "off"); };

  std::vector<std::string> differs = AlsoDiffers(plan, v);
  const int64_t more = planned.variant.parameters - plan.variants[plan.BaselineOf(v)].variant.parameters;
  if (more != 0) differs[0] = fmt::format("params {}{}", more > 0 ? "+" : "-", FormatCount(std::abs(more)));
  ReportField also{.text = "baseline"};
  if (v != plan.BaselineOf(v))
    also = differs.empty()
               ? Words("nothing else")
               : ReportField{.text = fmt::format("also differs: {}", Joined(differs, ", ")), .marked = true};
  return {Words(results.variants[v].name),
          Words(fmt::format("{} ({})", info.name, planned.norm_implementation)),
          Words(info.identity ? "none" : Places(model)),
          info.uses_eps && !info.identity ? Number(spec.eps, Plain) : Words(std::string(kNothing)),
          learned(info.has_gain && !info.identity, spec.gain),
          learned(info.has_bias && !info.identity, spec.bias),
          Number(static_cast<double>(planned.variant.norm_parameters), FormatTokens),
          Number(static_cast<double>(planned.variant.parameters), FormatTokens),
          std::move(also)};
}

}  // namespace

ReportTable VariantsTable(const StudyResults& results) {
  ReportTable table{.id = "variants", .title = "What each variant reached"};
  table.columns = {{"variant", true},
                   {"test loss, mean"},
                   {"95% interval of the mean"},
                   {"sd"},
                   {"n"},
                   {"time s"},
                   {"tokens/s"},
                   {"peak MiB"},
                   {"done", true}};
  for (const VariantSummary& variant : results.variants)
    table.rows.push_back(
        {Words(variant.name), Number(variant.test_loss, FormatLoss),
         variant.test_loss_interval
             ? Brackets(variant.test_loss_interval->low, variant.test_loss_interval->high, FormatLoss)
             : Words(std::string(kNothing)),
         Number(variant.test_loss_sd, FormatLoss), Number(static_cast<double>(variant.counts.done), Plain),
         Number(variant.time_s, FormatSeconds), Number(variant.tokens_per_s, FormatTokens),
         Number(variant.peak_bytes, FormatMebibytes),
         Words(fmt::format("{} of {}", variant.counts.done, variant.counts.planned))});
  table.note = fmt::format(
      "Means over the n seeds that are done. Brackets: 95% interval of the mean (Student's t, n seeds, this "
      "variant alone); sd: standard deviation of the test loss over seeds, in nats. Whether two variants "
      "differ is told by the paired differences below, not by the overlap of these intervals. {}",
      BaselineText(results.plan));
  return table;
}

ReportTable LossTable(const StudyResults& results) {
  const StudyPlan& plan = results.plan;
  ReportTable table{.id = "loss", .title = "Test loss against the baseline"};
  table.columns = {{"variant", true},     {"mean, nats"}, {"baseline's"}, {"diff."},        {"diff. %"},
                   {IntervalTitle(plan)}, {"p"},          {"n"},          {"verdict", true}};
  for (const MetricComparison& comparison : results.comparisons) {
    if (comparison.metric != Metric::kTestLoss) continue;
    const stats::Comparison& c = comparison.result;
    table.rows.push_back({Words(results.variants[comparison.variant].name),
                          Number(c.mean_variant, FormatLoss),
                          Number(c.mean_baseline, FormatLoss),
                          Number(c.difference, FormatLossDifference),
                          Number(c.ratio, FormatChange),
                          Brackets(c.ci_low, c.ci_high, FormatLossDifference),
                          Number(c.p_value, FormatPValue),
                          Number(static_cast<double>(c.n), Plain),
                          {.text = VerdictWord(comparison), .marked = true}});
  }
  if (table.rows.empty()) return table;

  const stats::Comparison& any = results.comparisons.front().result;
  table.note = fmt::format(
      "Variant minus baseline, paired by {} over n seeds. Brackets: {}, simultaneous over {} and {} ({:.4g}% "
      "each). p: paired t test, unadjusted (Holm-adjusted in results.json). {} {}",
      plan.aa ? "position, with different seeds," : "seed", IntervalTitle(plan),
      Counted(plan.comparisons(), "comparison"), Counted(plan.looks, "declared look"), 100 * any.confidence,
      BaselineText(plan),
      plan.margin_nats > 0 ? fmt::format("Margin stated beforehand: {:g} nats.", plan.margin_nats)
                           : "No margin was stated: nothing is called equivalent.");
  if (!results.counts.complete())
    table.note += " * interim: cells are still to run, and a verdict read now is no verdict of this study.";
  if (plan.look() > plan.looks)
    table.note += fmt::format(
        " Exploratory: this is look {} where {} declared, so these verdicts no longer keep their error rate.",
        plan.look(), plan.looks == 1 ? "1 was" : fmt::format("{} were", plan.looks));
  return table;
}

ReportTable WholeRunsTable(const StudyResults& results) {
  ReportTable table{.id = "time", .title = "Times of whole runs"};
  table.columns = {{"variant", true}, {"mean, s"}, {"baseline's"}, {"diff. %"}, {"n"}};
  for (const MetricComparison& comparison : results.comparisons) {
    if (comparison.metric != Metric::kTime) continue;
    const stats::Comparison& c = comparison.result;
    table.rows.push_back({Words(results.variants[comparison.variant].name),
                          Number(c.mean_variant, FormatSeconds), Number(c.mean_baseline, FormatSeconds),
                          Number(c.ratio, FormatChange), Number(static_cast<double>(c.n), Plain)});
  }
  table.note = fmt::format(
      "Means over n pairs of runs. They decide nothing: whole runs {}, and the machine's speed may have "
      "drifted meanwhile.",
      HowRunsShared(results));
  return table;
}

ReportTable DuelTable(const StudyResults& results, const Json& duel) {
  ReportTable table{.id = "duel", .title = "The speed duel"};
  table.columns = {{"variant", true}, {"step ms, median"},           {"quartiles"},   {"tokens/s"},
                   {"time ratio"},    {IntervalTitle(results.plan)}, {"interrupted"}, {"verdict", true}};
  if (!duel.is_object()) return table;
  const auto milliseconds = [](double seconds) { return fmt::format("{:.4g}", 1000 * seconds); };
  const auto ratio = [](double value) { return fmt::format("{:.4f}", value); };
  for (const Json& variant : duel.value("variants", Json::array())) {
    const Json step = variant.value("step_s", Json::object());
    const Json verdict = variant.value("verdict", Json());
    table.rows.push_back(
        {Words(variant.value("name", std::string("?"))),
         Number(NumberAt(step, "median"), milliseconds),
         Brackets(NumberAt(step, "first_quartile"), NumberAt(step, "third_quartile"), milliseconds),
         Number(NumberAt(variant, "tokens_per_s"), FormatTokens),
         Number(NumberAt(variant, "ratio"), ratio),
         Brackets(NumberAt(variant, "ci_low"), NumberAt(variant, "ci_high"), ratio),
         Number(NumberAt(variant, "interrupted_blocks"), Plain),
         {.text = !verdict.is_string()  ? std::string(kNothing)
                  : verdict == "better" ? "less time"
                  : verdict == "worse"  ? "more time"
                                        : verdict.get<std::string>(),
          .marked = true}});
  }
  table.note =
      "Time of a step over the baseline's; below 1: less time. Brackets of the ratio: " +
      IntervalName(results.plan) +
      " of batch medians, simultaneous over the comparisons; brackets of the step: first and third quartile. "
      "tokens/s follow from the geometric mean of the batches' medians, which need not be the median of all "
      "blocks.";
  if (const auto batches = NumberAt(duel, "batches"), rounds = NumberAt(duel, "rounds_per_batch");
      batches && rounds)
    table.note +=
        fmt::format(" {:g} batches of {:g} rounds; memory is placed anew in each batch.", *batches, *rounds);
  if (const auto correlation = NumberAt(duel, "autocorrelation"))
    table.note += fmt::format(" Lag-1 autocorrelation of rounds: {:.2f}.", *correlation);
  return table;
}

ReportTable NormsTable(const StudyResults& results) {
  ReportTable table{.id = "norms", .title = "What each variant is"};
  table.columns = {{"variant", true},
                   {"norm (who computes it)", true},
                   {"places", true},
                   {"eps"},
                   {"gain", true},
                   {"bias", true},
                   {"norm params"},
                   {"all params"},
                   {fmt::format("besides {}", Varied(results.plan)), true}};
  for (size_t v = 0; v < results.variants.size(); ++v) table.rows.push_back(NormRow(results, v));
  table.note =
      "Gain and bias: learned parts of the norm (none: this norm has no such part). What differs from the "
      "baseline besides what was varied is marked; nobody should take it for the effect of the norm.";
  return table;
}

ReportTable CellsTable(const StudyResults& results, const std::vector<CellLog>& logs) {
  ReportTable table{.id = "cells", .title = "Every run"};
  table.columns = {{"variant", true}, {"seed"},     {"status", true}, {"test loss"}, {"train loss"},
                   {"time s"},        {"tokens/s"}, {"peak MiB"},     {"steps"},     {"not finite", true}};
  std::vector<std::vector<ReportField>> last;
  for (size_t i = 0; i < results.cells.size(); ++i) {
    const Cell& cell = results.cells[i];
    const bool finished = IsFinished(cell.status);
    const RunRecord none;
    const RunRecord& record = finished ? *cell.record : none;
    const auto known = [finished](double value) {
      return finished ? std::optional(value) : std::optional<double>();
    };
    std::vector<std::string> broken;
    if (!logs.empty()) {
      if (std::string text = NotFiniteText(logs[i].steps.loss); !text.empty())
        broken.push_back("loss " + text);
      if (std::string text = NotFiniteText(logs[i].steps.gradient_norm); !text.empty())
        broken.push_back("gradient " + text);
      if (const size_t lines = logs[i].steps.unreadable; finished && lines > 0)
        broken.push_back(Counted(lines, "unreadable line"));
    }
    std::string status(Name(cell.status));
    if (!cell.reason.empty()) status += ": " + cell.reason;
    const bool good = cell.status == CellStatus::kDone && broken.empty();
    if (cell.status == CellStatus::kDone && !good) status = "done, but its log is broken";
    std::vector<ReportField> row = {
        Words(results.variants[cell.variant].name),
        Number(static_cast<double>(results.plan.Seed(cell.variant, cell.seed)), Plain),
        {.text = status, .marked = !good},
        Number(record.test_loss, FormatLoss),
        Number(record.train_loss, FormatLoss),
        Number(known(record.time_s), FormatSeconds),
        Number(record.tokens_per_s, FormatTokens),
        Number(known(static_cast<double>(record.peak_bytes)), FormatMebibytes),
        Number(known(static_cast<double>(record.steps_done)), FormatTokens),
        {.text = broken.empty() ? std::string(kNothing) : Joined(broken, "; "), .marked = !broken.empty()}};
    (good ? table.rows : last).push_back(std::move(row));
  }
  table.rows.insert(table.rows.end(), last.begin(), last.end());
  table.note =
      "Runs that are not done, or whose log holds values that are not finite, stand last. Test loss in nats "
      "over the held-out windows; train loss: mean of the last tenth of the steps.";
  return table;
}

}  // namespace normlab
