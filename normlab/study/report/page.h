#pragma once
// report.html: one file with all that a reader needs, that opens from disk without a network. Sentences and
// tables are text in it; charts are drawn from its data block, which is results.json plus the curves
// ("series", logs.h) and what the page itself is ("report"). Pure.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/study/comparison.h"
#include "normlab/study/report/logs.h"

namespace normlab {

// How far a study is that is running. The page loads itself again while it has this.
struct Live {
  std::string now;                    // "fused_rmsnorm, seed 2, step 45 of 300"
  std::optional<double> remaining_s;  // of the whole study
  double refresh_s = 10;
};

struct PageContext {
  std::string folder;      // of the study, as the reader may name it in commands
  std::string written_at;  // UTC, ISO 8601
  std::optional<Live> live;
};

// `json`: results.json as it stands, ResultsJson or with more fields.
std::string ReportPage(const StudyResults& results, const Json& json, const std::vector<CellLog>& logs,
                       const PageContext& context);

// Text as HTML shows it: no markup comes out of a name.
std::string HtmlEscaped(std::string_view text);

// JSON that may stand in a script element: nothing in it can end the element.
std::string ScriptJson(const Json& json);

}  // namespace normlab
