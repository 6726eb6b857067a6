#pragma once
// Results as files and as text: one function and one source file per format. None of them computes; every
// number comes from StudyResults.

#include <string>

#include "normlab/base/json.h"
#include "normlab/study/comparison.h"

namespace normlab {

inline constexpr int kResultsSchemaVersion = 1;

// results.json. A number that does not exist is null; one that is not finite is "nan", "inf" or "-inf".
Json ResultsJson(const StudyResults& results);

Json ToJson(const Counts& counts);

// results.csv: a header and one row a cell (RFC 4180: CRLF, quotes doubled). Dot decimals whatever the
// locale; an empty field is a number that does not exist.
std::string ResultsCsv(const StudyResults& results);

// The table for people: within `columns`, without escape sequences, all in ASCII but for names that are not.
std::string ResultsText(const StudyResults& results, size_t columns = 80);

// Markdown for an issue, a README or a paper's source: sentences, tables, method.
std::string ResultsMarkdown(const StudyResults& results);

// "12 planned: 9 done, 1 diverged, 1 failed, 1 missing"
std::string CountsText(const Counts& counts);

}  // namespace normlab
