#include "normlab/study/report/refresh.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/text.h"
#include "normlab/study/export.h"
#include "normlab/study/study_duel.h"

namespace normlab {

namespace fs = std::filesystem;

StudyResults ReadStudy(const fs::path& folder) {
  const StudyPlan plan = ReadPlan(folder);
  std::optional<DuelRecord> duel;
  try {
    duel = ReadDuel(folder);
  } catch (const Error&) {  // as compare does: the study is whole without it
  }
  std::vector<Cell> cells = CellsAsTheyStand(folder, plan);
  for (Cell& cell : cells)
    if (cell.record && cell.record->status == RunStatus::kRunning)
      cell.reason = "running, or cut off while it ran";
  return Evaluate(plan, cells, duel ? &*duel : nullptr);
}

std::string FolderPage(const StudyResults& results, const fs::path& folder, const std::optional<Live>& live) {
  return ReportPage(results, ResultsJson(results), ReadLogs(folder, results),
                    {.folder = folder.string(), .written_at = UtcNow(), .live = live});
}

void WriteReport(const StudyResults& results, const fs::path& folder, const std::optional<Live>& live) {
  WriteFileAtomic(folder / kReportFile, FolderPage(results, folder, live));
}

ReportRefresher::ReportRefresher(fs::path folder, std::function<double()> now_s)
    : folder_(std::move(folder)), now_s_(std::move(now_s)), next_s_(now_s_()) {}

void ReportRefresher::Update(const StudyProgress& progress, const std::function<StudyResults()>& results) {
  const double start_s = now_s_();
  if (start_s < next_s_) return;
  try {
    WriteReport(results(), folder_, StateOf(progress));
  } catch (const std::exception&) {  // a full disk, say: the next one may go well, and the end tells
  }
  const double end_s = now_s_();
  every_s_ = std::max(kEvery_s, (end_s - start_s) / kMostShare);
  next_s_ = end_s + every_s_;
}

Live ReportRefresher::StateOf(const StudyProgress& progress) const {
  std::string now;
  for (const CellProgress& cell : progress.running)
    now += fmt::format("{}{}, seed {}, step {} of {}", now.empty() ? "" : "; ", cell.variant, cell.seed,
                       FormatCount(cell.run.steps_done), FormatCount(cell.run.steps));
  return {.now = now, .remaining_s = progress.remaining_s, .refresh_s = every_s_};
}

}  // namespace normlab
