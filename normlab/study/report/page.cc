#include "normlab/study/report/page.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/study/export.h"
#include "normlab/study/headline.h"
#include "normlab/study/report/assets.h"
#include "normlab/study/report/summary.h"
#include "normlab/study/report/tables.h"
#include "normlab/study/wording.h"

namespace normlab {
namespace {

std::string Replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// {{name}} by its text, in one pass: what is put in is never searched again.
std::string Filled(std::string_view page, const std::vector<std::pair<std::string, std::string>>& texts) {
  std::string filled;
  while (true) {
    const size_t open = page.find("{{");
    filled += page.substr(0, open);
    if (open == std::string_view::npos) return filled;
    const size_t close = page.find("}}", open);
    NL_CHECK(close != std::string_view::npos);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    const auto text = std::ranges::find(texts, name, &std::pair<std::string, std::string>::first);
    NL_CHECK(text != texts.end());
    filled += text->second;
    page.remove_prefix(close + 2);
  }
}

std::string TextHtml(std::string_view text) { return HtmlEscaped(Printable(text)); }

std::string Missing(std::string_view text) { return fmt::format("<p class=\"missing\">{}</p>", text); }

std::string FieldHtml(const ReportField& field) {
  const std::string text = TextHtml(field.text);
  if (field.values.size() == 1) return fmt::format("<data value=\"{}\">{}</data>", field.values[0], text);
  if (field.values.size() == 2)
    return fmt::format("<span data-low=\"{}\" data-high=\"{}\">{}</span>", field.values[0], field.values[1],
                       text);
  return text;
}

// Roles are given too: on narrow screens rows become blocks, and would lose them.
std::string TableHtml(const ReportTable& table) {
  if (table.rows.empty()) return "";
  std::string html = fmt::format(
      "<div class=\"table stack\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n<table "
      "id=\"{1}-table\" "
      "role=\"table\">\n<caption>{0}</caption>\n<thead role=\"rowgroup\"><tr role=\"row\">",
      TextHtml(table.title), table.id);
  for (const ReportTable::Column& column : table.columns)
    html += fmt::format("<th scope=\"col\" role=\"columnheader\"{}>{}</th>",
                        column.left ? " class=\"words\"" : "", TextHtml(column.title));
  html += "</tr></thead>\n<tbody role=\"rowgroup\">\n";
  for (const std::vector<ReportField>& row : table.rows) {
    html += "<tr role=\"row\">";
    for (size_t c = 0; c < row.size(); ++c) {
      const ReportField& field = row[c];
      if (c == 0) {
        html += fmt::format("<th scope=\"row\" role=\"rowheader\">{}</th>", FieldHtml(field));
        continue;
      }
      std::string looks = table.columns[c].left ? "words" : "";
      if (table.columns[c].left && Characters(field.text) > 24) looks += " wrap";
      if (field.marked) looks += table.id == "norms" || table.id == "cells" ? " marked alarm" : " marked";
      html += fmt::format("<td role=\"cell\"{} data-label=\"{}\">{}</td>",
                          looks.empty() ? "" : fmt::format(" class=\"{}\"", looks),
                          TextHtml(table.columns[c].title), FieldHtml(field));
    }
    html += "</tr>\n";
  }
  html += "</tbody>\n</table>\n</div>\n";
  if (!table.note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", TextHtml(table.note));
  return html;
}

std::string Explanations(const StudyResults& results) {
  std::string html;
  for (const MetricComparison& comparison : results.comparisons)
    if (comparison.metric == Metric::kTestLoss)
      html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", TextHtml(results.variants[comparison.variant].name),
                          TextHtml(comparison.explanation));
  return html.empty() ? html : "<h3>In words</h3>\n<dl class=\"explain\">\n" + html + "</dl>";
}

std::string LiveHtml(const StudyResults& results, const PageContext& context) {
  if (!context.live) return "";
  const Counts& counts = results.counts;
  const size_t ended = counts.done + counts.diverged;
  std::string text = fmt::format(
      "<p class=\"live\" role=\"status\"><b>Running:</b> {0} of {1} runs have ended <progress value=\"{0}\" "
      "max=\"{1}\" aria-label=\"Runs that have ended\"></progress>",
      ended, counts.planned);
  if (context.live->remaining_s)
    text += fmt::format(" about {} left", FormatDuration(*context.live->remaining_s));
  if (!context.live->now.empty()) text += fmt::format("; now {}", TextHtml(context.live->now));
  return text +
         fmt::format(
             ". Written at {}. <label hidden><input type=\"checkbox\" id=\"refresh\" checked> load again "
             "every {:g} s</label></p>",
             TextHtml(context.written_at), context.live->refresh_s);
}

std::string DuelHtml(const StudyResults& results, const Json& json) {
  const ReportTable table = DuelTable(results, json.value("duel", Json()));
  if (table.rows.empty())
    return Missing(
        "This study has no speed duel, in which variants take turns in short blocks of steps: the strongest "
        "evidence on speed. <code>normlab compare</code> runs one unless it is told <code>--duel 0</code>.");
  return fmt::format(
             "<figure class=\"chart\" id=\"duel-figure\">\n<figcaption><b>Time of a step over that of "
             "{}.</b> "
             "Small dots: every round; marker and line: ratio with its {}; shaded: the margin stated "
             "beforehand.</figcaption>\n<div class=\"plot\" data-chart=\"duel\"></div>\n<p "
             "class=\"remark\"></p>\n</figure>\n",
             TextHtml(results.plan.baseline), IntervalName(results.plan)) +
         TableHtml(table);
}

std::string IntervalCaption(const StudyPlan& plan) {
  return fmt::format(
      "Marker: mean over the paired seeds; thin line: {}; thick line: interval of the two one-sided tests of "
      "equivalence; small dots: single seeds; shaded: the margin of {} stated beforehand.",
      IntervalName(plan), fmt::format("{:g} nats", plan.margin_nats));
}

std::string WholeRunsHtml(const StudyResults& results) {
  if (results.duel)
    return "<p class=\"note\">Mean times of whole runs stand in the first table. They followed one another, "
           "and the machine's speed may have drifted meanwhile: the duel judges.</p>";
  const ReportTable table = WholeRunsTable(results);
  return table.rows.empty() ? "" : TableHtml(table);
}

std::string ProfileHtml(const Json& series) {
  if (series["profiles"].empty())
    return Missing(
        "No run of this study kept a profile of its operations. <code>normlab compare --profile</code> keeps "
        "one "
        "for every run, <code>normlab train --profile</code> for a single one.");
  std::string counts;
  for (const Json& profile : series["profiles"])
    counts += fmt::format("{}{}: n = {}", counts.empty() ? "" : ", ",
                          TextHtml(profile["variant"].get<std::string>()), profile["n"].get<int64_t>());
  return fmt::format(
      "<figure class=\"chart\" id=\"profile-figure\">\n<figcaption><b>Milliseconds of a step by "
      "operation.</b> "
      "Means over the runs that kept a profile ({}); one marker a variant, as in the legend of the "
      "curves.</figcaption>\n<div class=\"plot\" data-chart=\"profile\"></div>\n</figure>",
      counts);
}

std::string InsideHtml(const Json& series) {
  if (series["heat_maps"].empty())
    return Missing(
        "No run of this study logged what its norms saw and how its tensors moved (inside.jsonl): there are "
        "no "
        "layer by step maps to show.");
  return "<form class=\"controls\" aria-label=\"What the maps show\" hidden><label>Quantity <select "
         "id=\"heat-quantity\"></select></label></form>\n<figure class=\"chart\" id=\"inside-figure\">\n"
         "<figcaption></figcaption>\n<p class=\"scale\" aria-label=\"Scale of the maps, least to "
         "greatest\"></p>\n"
         "<div class=\"maps\" data-chart=\"inside\"></div>\n</figure>";
}

std::string Facts(const StudyResults& results) {
  const StudyPlan& plan = results.plan;
  const Machine& machine = results.machine.value_or(plan.machine);
  std::string html;
  const auto fact = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, TextHtml(text));
  };
  fact("Processor", machine.cpu + (results.machines_differ ? " (the first run's; others differ)" : ""));
  fact("Instructions", machine.isa);
  fact("Threads", fmt::format("{}, on {}", ThreadsText(machine), Counted(machine.cpus, "CPU")));
  fact("Thread runtime", machine.thread_runtime);
  fact("oneDNN", machine.onednn);
  fact("Build", machine.build);
  fact("Data", DataText(plan));
  fact("Data hash", plan.data.value("hash", std::string()));
  fact("Cells", CountsText(results.counts));
  for (const Look& look : plan.history)
    fact("Look", fmt::format("{}: {}, {}", look.started_at, Counted(look.variants.size(), "variant"),
                             Counted(look.seeds.size(), "seed")));
  return html;
}

std::string MethodHtml(const StudyResults& results) {
  std::string html;
  for (const std::string& paragraph : Method(results))
    html += fmt::format("<p>{}</p>\n", TextHtml(paragraph));
  return html;
}

std::string CommandHtml(const StudyPlan& plan, const std::string& folder) {
  const std::string command = ReproducingCommand(plan, folder);
  if (command.empty())
    return "<p>No one command makes this study anew: its variants are no grid, or it is an A/A study that "
           "was "
           "extended. study.json in its folder holds the configuration and the seeds of each variant.</p>";
  return fmt::format(
      "<p>On a like machine and build this gives the same losses, bit for bit; times are measured anew. The "
      "data "
      "must have the hash above.</p>\n<pre tabindex=\"0\" aria-label=\"Command\"><code "
      "id=\"command\">{}</code></pre>\n<p>This page again, from the folder of the study: <code>normlab "
      "report {} "
      "--format html</code></p>",
      HtmlEscaped(command), TextHtml(ShellQuoted(folder)));
}

}  // namespace

std::string HtmlEscaped(std::string_view text) {
  std::string html;
  for (const char c : text) switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  return html;
}

std::string ScriptJson(const Json& json) { return Replaced(DumpJson(json), "<", "\\u003c"); }

std::string ReportPage(const StudyResults& results, const Json& json, const std::vector<CellLog>& logs,
                       const PageContext& context) {
  const StudyPlan& plan = results.plan;
  Json data = json;
  data["series"] = SeriesJson(results, logs);
  data["report"] = {{"written_at", context.written_at}, {"live", nullptr}};
  if (context.live)
    data["report"]["live"] = {{"now", context.live->now},
                              {"remaining_s", ToJson(context.live->remaining_s)},
                              {"refresh_s", context.live->refresh_s}};
  const bool any_log =
      std::ranges::any_of(logs, [](const CellLog& log) { return !log.steps.loss.step.empty(); });
  const std::string study = fmt::format("{}: {} x {}", Varied(plan), Counted(plan.variants.size(), "variant"),
                                        Counted(plan.seeds.size(), "seed"));
  return Filled(
      assets::kPage,
      {{"title", TextHtml(fmt::format("normlab: {}", study))},
       {"refresh", context.live
                       ? fmt::format("<noscript><meta http-equiv=\"refresh\" content=\"{:.0f}\"></noscript>",
                                     context.live->refresh_s)
                       : ""},
       {"css", std::string(assets::kStyle)},
       {"kicker", TextHtml(fmt::format("normlab · {} · {} · {}", study, StepsText(plan), DataText(plan)))},
       {"live", LiveHtml(results, context)},
       {"headline", TextHtml(LossHeadline(results))},
       {"speed", TextHtml(SpeedHeadline(results))},
       {"baseline", TextHtml(plan.baseline)},
       {"variants_table", TableHtml(VariantsTable(results))},
       {"loss_caption", TextHtml(IntervalCaption(plan))},
       {"loss_table", TableHtml(LossTable(results))},
       {"explanations", Explanations(results)},
       {"curves_missing",
        any_log ? "" : Missing("No run has logged a step yet: there are no curves to show.")},
       {"duel", DuelHtml(results, json)},
       {"whole_runs", WholeRunsHtml(results)},
       {"profile", ProfileHtml(data["series"])},
       {"inside", InsideHtml(data["series"])},
       {"norms_table", TableHtml(NormsTable(results))},
       {"cells_table", TableHtml(CellsTable(results, logs))},
       {"method", MethodHtml(results)},
       {"facts", Facts(results)},
       {"command", CommandHtml(plan, context.folder)},
       {"footer",
        fmt::format("Written at {} by {}. Charts: Chart.js, MIT licence; its notice stands in the source "
                    "of this page.",
                    TextHtml(context.written_at), TextHtml(results.machine.value_or(plan.machine).build))},
       {"data", ScriptJson(data)},
       {"chart_js", std::string(assets::kChartScript)},
       {"js", std::string(assets::kScript)}});
}

}  // namespace normlab
