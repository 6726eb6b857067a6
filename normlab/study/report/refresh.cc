#include "normlab/study/report/refresh.h"

#include <algorithm>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/text.h"
#include "normlab/study/export.h"
#include "normlab/study/study_duel.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

// Cells by their records alone: checkpoints may come and go while this is read.
std::vector<Cell> CellsAsTheyStand(const fs::path& folder, const StudyPlan& plan) {
  std::vector<Cell> cells;
  for (const GridCell& place : CellOrder(plan.variants.size(), plan.seeds.size())) {
    Cell cell{.variant = place.variant, .seed = place.seed, .reason = "not run yet"};
    const fs::path run =
        folder / CellFolder(plan.variants[place.variant].variant.name, plan.Seed(place.variant, place.seed));
    if (auto record = ReadRunRecord(run)) {
      const bool running = record->status == RunStatus::kRunning;
      TakeRecord(cell, std::move(*record));
      if (running) cell.reason = "running, or cut off while it ran";
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace

StudyResults ReadStudy(const fs::path& folder) {
  const fs::path path = folder / "study.json";
  if (KindOf(folder) == PathKind::kNothing)
    Fail("there is no folder \"{}\"; name the --out of a `normlab compare`", folder.string());
  if (KindOf(folder) == PathKind::kOther)
    Fail("\"{}\" is a file; name the folder of a study, the --out of a `normlab compare`", folder.string());
  if (KindOf(path) == PathKind::kNothing && KindOf(folder / kRecordFile) != PathKind::kNothing)
    Fail("\"{}\" holds a single run, not a study; name the --out of a `normlab compare`", folder.string());
  if (KindOf(path) == PathKind::kNothing)
    Fail("\"{}\" holds no study (there is no study.json in it); name the --out of a `normlab compare`",
         folder.string());
  const StudyPlan plan =
      StudyPlanFromJson(ParseJson(ReadFile(path), path.string(), JsonComments::kRefuse), path.string());
  std::optional<DuelRecord> duel;
  try {
    duel = ReadDuel(folder);
  } catch (const Error&) {  // as compare does: the study is whole without it
  }
  return Evaluate(plan, CellsAsTheyStand(folder, plan), duel ? &*duel : nullptr);
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
