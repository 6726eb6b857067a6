#include "normlab/base/text.h"
#include "normlab/study/export.h"
#include "normlab/study/headline.h"
#include "normlab/study/report/summary.h"
#include "normlab/study/report/tables.h"
#include "normlab/study/wording.h"

namespace normlab {
namespace {

// Text that Markdown shows as it is, also inside a table.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : Printable(text)) {
    if (std::string_view("\\`*_[]<>|#&~").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string Table(const ReportTable& table) {
  if (table.rows.empty()) return "";
  std::string text = fmt::format("## {}\n\n|", Escaped(table.title)), rule = "|";
  for (const ReportTable::Column& column : table.columns) {
    text += fmt::format(" {} |", Escaped(column.title));
    rule += column.left ? " --- |" : " ---: |";
  }
  text += "\n" + rule + "\n";
  for (const std::vector<ReportField>& row : table.rows) {
    text += "|";
    for (const ReportField& field : row) {
      const std::string shown = Escaped(field.text);
      text += field.marked ? fmt::format(" **{}** |", shown) : fmt::format(" {} |", shown);
    }
    text += "\n";
  }
  return text + "\n" + (table.note.empty() ? "" : Escaped(table.note) + "\n\n");
}

}  // namespace

std::string ResultsMarkdown(const StudyResults& results) {
  std::string text = fmt::format("# {}\n\n", Escaped(LossHeadline(results)));
  if (const std::string line = SpeedHeadline(results); !line.empty()) text += Escaped(line) + "\n\n";
  const ReportTable speed =
      results.duel ? DuelTable(results, ToJson(*results.duel)) : WholeRunsTable(results);
  for (const ReportTable& table :
       {VariantsTable(results), LossTable(results), speed, NormsTable(results), CellsTable(results, {})})
    text += Table(table);
  text += "## Method\n\n";
  for (const std::string& paragraph : Method(results)) text += Escaped(paragraph) + "\n\n";
  const Machine& machine = results.machine.value_or(results.plan.machine);
  return text +
         Escaped(fmt::format("Machine: {}, {}, {}; {}.", machine.cpu, machine.isa, ThreadsText(machine),
                             machine.build)) +
         "\n";
}

}  // namespace normlab
