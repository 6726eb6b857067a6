#include <cmath>
#include <vector>

#include "normlab/study/export.h"

namespace normlab {
namespace {

// RFC 4180: fields with a comma, a quote or a line break are quoted, quotes doubled.
std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

// fmt writes a dot whatever the locale, and the shortest digits that read back to the same number.
std::string Number(double value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{}", value);
}
std::string Number(const std::optional<double>& value) { return value ? Number(*value) : ""; }

std::string Row(const std::vector<std::string>& fields) {
  std::string row;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) row += ',';
    row += Field(fields[i]);
  }
  return row + "\r\n";
}

std::vector<std::string> CellRow(const StudyPlan& plan, const Cell& cell) {
  const PlannedVariant& planned = plan.variants[cell.variant];
  const bool finished = IsFinished(cell.status);
  const RunRecord none;
  const RunRecord& record = finished ? *cell.record : none;
  const auto known = [finished](std::string text) { return finished ? std::move(text) : std::string(); };
  return {planned.variant.name,
          fmt::format("{}", plan.Seed(cell.variant, cell.seed)),
          std::string(Name(cell.status)),
          planned.variant.config.model.norm_type,
          known(record.norm_implementation),
          fmt::format("{}", planned.variant.parameters),
          fmt::format("{}", planned.variant.norm_parameters),
          Number(record.test_loss),
          Number(record.train_loss),
          known(Number(record.time_s)),
          known(fmt::format("{}", record.tokens)),
          Number(record.tokens_per_s),
          Number(record.products_share),
          known(fmt::format("{}", record.peak_bytes)),
          known(fmt::format("{}", record.steps_done)),
          known(fmt::format("{}", record.machine.threads)),
          record.machine.isa,
          record.machine.cpu,
          record.started_at,
          cell.reason,
          known(fmt::format("{}", record.machine.jobs))};
}

}  // namespace

std::string ResultsCsv(const StudyResults& results) {
  std::string csv = Row({"variant",
                         "seed",
                         "status",
                         "norm_type",
                         "norm_implementation",
                         "parameters",
                         "norm_parameters",
                         "test_loss",
                         "train_loss",
                         "time_s",
                         "tokens",
                         "tokens_per_s",
                         "products_share",
                         "peak_bytes",
                         "steps_done",
                         "threads",
                         "isa",
                         "cpu",
                         "started_at",
                         "reason",
                         "jobs"});
  for (const Cell& cell : results.cells) csv += Row(CellRow(results.plan, cell));
  return csv;
}

}  // namespace normlab
