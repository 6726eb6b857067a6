#include "normlab/study/status.h"

#include <algorithm>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/study/export.h"
#include "normlab/study/remaining.h"
#include "normlab/study/study_duel.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

constexpr int kStatusSchemaVersion = 1;

// The last lines of metrics.jsonl; one that is being written is no line yet.
std::vector<Json> LastSteps(const fs::path& run, size_t most) {
  std::vector<Json> steps;
  if (KindOf(run / kMetricsFile) == PathKind::kNothing) return steps;
  const std::string text = ReadFile(run / kMetricsFile);
  size_t end = text.rfind('\n');
  while (end != std::string::npos && steps.size() < most) {
    const size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    steps.push_back(ParseJson(std::string_view(text).substr(begin, end - begin), kMetricsFile));
    end = before;
  }
  return steps;
}

CellAtWork LookAt(const fs::path& run, const Cell& cell, size_t index, const TrainConfig& config) {
  CellAtWork look{.cell = index, .steps = config.steps};
  const std::vector<Json> last = LastSteps(run, 256);
  if (last.empty()) return look;
  look.steps_done = last[0].at("step").get<int64_t>();
  double sum_s = 0;  // the mean: on a busy machine the median knows nothing of the waits
  for (const Json& step : last) sum_s += NumberFromJson(step.at("time_s"), "time_s");
  const double step_s = sum_s / static_cast<double>(last.size());
  look.elapsed_s = step_s * static_cast<double>(look.steps_done);
  look.remaining_s = step_s * static_cast<double>(look.steps - look.steps_done) +
                     EvaluationSteps(cell.record->data, config) * step_s;
  return look;
}

std::optional<fs::path> CheckpointOf(const fs::path& run) {
  try {
    return LatestCheckpoint(run);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string CellName(const StudyStatus& status, const Cell& cell) {
  return fmt::format("{}, seed {}", Printable(status.plan.variants[cell.variant].variant.name),
                     status.plan.Seed(cell.variant, cell.seed));
}

std::string OwnerText(const StudyStatus& status) {
  if (!status.lock) return "nobody";
  const std::string owner = status.lock->owner.ToString();
  switch (status.lock->state) {
    case OwnerState::kAlive:
      return status.at_work.empty() ? owner
                                    : fmt::format("{}, {} at a time", owner, Counted(status.jobs, "cell"));
    case OwnerState::kDead:
      return fmt::format("nobody; {} was killed", owner);
    case OwnerState::kUnknown:
      return fmt::format("{}; whether it still is cannot be told from this host", owner);
  }
  return "";
}

std::string AtWorkText(const CellAtWork& look) {
  std::string text = look.steps_done < look.steps
                         ? fmt::format("running, step {} of {}", look.steps_done, look.steps)
                         : "running, testing";
  if (look.remaining_s) text += fmt::format(", about {} left", FormatDuration(*look.remaining_s));
  return text;
}

const CellAtWork* Find(const StudyStatus& status, size_t cell) {
  const auto found = std::ranges::find(status.at_work, cell, &CellAtWork::cell);
  return found == status.at_work.end() ? nullptr : &*found;
}

void ForetellRest(StudyStatus& status) {
  RemainingTime remaining(WorkOfVariants(status.plan));
  std::vector<RunningCell> running;
  std::vector<size_t> waiting;
  for (size_t i = 0; i < status.cells.size(); ++i) {
    const Cell& cell = status.cells[i];
    const TrainConfig& config = status.plan.variants[cell.variant].variant.config;
    if (const CellAtWork* look = Find(status, i))
      running.push_back({cell.variant, look->elapsed_s, look->remaining_s});
    else if (!IsFinished(cell.status))
      waiting.push_back(cell.variant);
    else if (cell.status == CellStatus::kDone)
      remaining.Add(cell.variant, SecondsOf(*cell.record, config));
  }
  if (!running.empty())
    status.remaining_s =
        remaining.Total(running, waiting, std::max(running.size(), static_cast<size_t>(status.jobs)));
}

}  // namespace

StudyStatus ReadStatus(const fs::path& folder) {
  StudyStatus status{.folder = folder, .plan = ReadPlan(folder), .lock = ReadLock(folder)};
  status.cells = CellsAsTheyStand(folder, status.plan);
  for (size_t i = 0; i < status.cells.size(); ++i) {
    Cell& cell = status.cells[i];
    const Variant& variant = status.plan.variants[cell.variant].variant;
    const fs::path run = folder / CellFolder(variant.name, status.plan.Seed(cell.variant, cell.seed));
    if (cell.record && cell.record->status == RunStatus::kRunning && status.AnyoneAtWork()) {
      const CellAtWork look = LookAt(run, cell, i, variant.config);
      cell.reason = AtWorkText(look);
      status.jobs = std::max(status.jobs, cell.record->machine.jobs);
      status.at_work.push_back(look);
    } else if (!IsFinished(cell.status)) {
      cell.resume_from = CheckpointOf(run);
    }
  }
  status.counts = CountCells(status.cells);
  status.has_duel = KindOf(folder / kDuelFile) != PathKind::kNothing;
  ForetellRest(status);
  return status;
}

Json StatusJson(const StudyStatus& status) {
  Json json;
  json["schema_version"] = kStatusSchemaVersion;
  json["folder"] = status.folder.string();
  json["complete"] = status.counts.complete();
  json["counts"] = ToJson(status.counts);
  json["running"] = status.at_work.size();
  json["has_duel"] = status.has_duel;
  json["jobs"] = status.at_work.empty() ? Json() : Json(status.jobs);
  json["remaining_s"] = ToJson(status.remaining_s);
  json["owner"] = nullptr;
  if (status.lock) {
    const LockOwner& owner = status.lock->owner;
    constexpr const char* kStates[] = {"alive", "dead", "unknown"};
    json["owner"] = {{"pid", owner.pid > 0 ? Json(owner.pid) : Json()},
                     {"host", owner.host.empty() ? Json() : Json(owner.host)},
                     {"program", owner.program.empty() ? Json() : Json(owner.program)},
                     {"since", owner.since.empty() ? Json() : Json(owner.since)},
                     {"state", kStates[static_cast<size_t>(status.lock->state)]}};
  }
  json["cells"] = Json::array();
  for (size_t i = 0; i < status.cells.size(); ++i) {
    const Cell& cell = status.cells[i];
    const CellAtWork* look = Find(status, i);
    const Json done = cell.record ? Json(cell.record->steps_done) : Json();
    json["cells"].push_back(
        {{"variant", status.plan.variants[cell.variant].variant.name},
         {"seed", status.plan.Seed(cell.variant, cell.seed)},
         {"status", Name(cell.status)},
         {"running", look != nullptr},
         {"reason", cell.reason.empty() ? Json() : Json(cell.reason)},
         {"steps_done", look != nullptr ? Json(look->steps_done) : done},
         {"steps", status.plan.variants[cell.variant].variant.config.steps},
         {"remaining_s", look != nullptr ? ToJson(look->remaining_s) : Json()},
         {"checkpoint", cell.resume_from ? Json(cell.resume_from->filename().string()) : Json()}});
  }
  return json;
}

std::string StatusText(const StudyStatus& status, size_t columns) {
  const auto line = [&](std::string_view label, const std::string& text) {
    return Wrap(text, columns, fmt::format("{:<9}", label), std::string(9, ' '));
  };
  std::string text = line("study", fmt::format("{}: {} x {}", Printable(status.folder.string()),
                                               Counted(status.plan.variants.size(), "variant"),
                                               Counted(status.plan.seeds.size(), "seed")));
  text += line("cells", CountsText(status.counts));
  text += line("at work", OwnerText(status));
  if (status.remaining_s) text += line("left", "about " + FormatDuration(*status.remaining_s));
  size_t untouched = 0;
  for (size_t i = 0; i < status.cells.size(); ++i) {
    const Cell& cell = status.cells[i];
    if (cell.status == CellStatus::kDone) continue;
    if (cell.status == CellStatus::kMissing && !cell.record && !cell.resume_from) {
      ++untouched;
      continue;
    }
    const bool works = Find(status, i) != nullptr;
    text += Wrap(
        fmt::format(
            "{}: {}{}{}", CellName(status, cell), works ? "" : fmt::format("{}: ", Name(cell.status)),
            Printable(cell.reason),
            cell.resume_from ? fmt::format("; goes on from {}", cell.resume_from->filename().string()) : ""),
        columns, "  ", "    ");
  }
  if (untouched > 0) text += fmt::format("  {}: not run yet\n", Counted(untouched, "cell"));
  if (status.counts.complete() && !status.has_duel && status.AnyoneAtWork())
    text += "All cells have ended; a speed duel may be running.\n";
  if (status.counts.complete() && !status.has_duel && !status.AnyoneAtWork())
    text += Wrap("There is no speed duel yet; the command that began it runs one, unless it has --duel 0.",
                 columns);
  if (!status.counts.complete() && !status.AnyoneAtWork())
    text += Wrap("The command that began it runs what failed or is missing, and nothing else.", columns);
  return text;
}

}  // namespace normlab
