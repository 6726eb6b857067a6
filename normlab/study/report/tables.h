#pragma once
// The tables of a report, as Markdown and the page show them. Texts are rounded; each carries the number that
// results.json has. Pure.

#include <string>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/study/comparison.h"
#include "normlab/study/report/logs.h"

namespace normlab {

struct ReportField {
  std::string text;
  std::vector<double> values = {};  // of results.json: one where the text is a number, two for an interval
  bool marked = false;              // stands out, in words and in looks
};

struct ReportTable {
  struct Column {
    std::string title;
    bool left = false;  // words; numbers are right-aligned
  };
  std::string id, title;
  std::vector<Column> columns;
  std::vector<std::vector<ReportField>> rows;  // the first field names the row
  std::string note;                            // what the numbers are, what +- and brackets mean
};

// Means over seeds: loss with its interval, time, tokens/s, memory.
ReportTable VariantsTable(const StudyResults& results);
// The loss of a variant against its baseline, one a row: both means, difference, interval, p, n, verdict.
ReportTable LossTable(const StudyResults& results);
// Times of whole cells, without a verdict: for a study without a duel.
ReportTable WholeRunsTable(const StudyResults& results);
// The speed duel, of results.json's "duel"; no rows where there was none.
ReportTable DuelTable(const StudyResults& results, const Json& duel);
// What each variant is: per norm its kind, eps, learned parts, parameters; and what differs from the baseline
// besides the varied keys, marked.
ReportTable NormsTable(const StudyResults& results);
// One row a cell; runs that are not done, or whose log is not finite, last. `logs` may be empty.
ReportTable CellsTable(const StudyResults& results, const std::vector<CellLog>& logs);

}  // namespace normlab
