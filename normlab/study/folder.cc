#include "normlab/study/folder.h"

#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/folder_lock.h"
#include "normlab/base/hash.h"
#include "normlab/study/export.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

// File names may have 255 bytes on every common file system.
constexpr size_t kLongestName = 200;

bool StaysInName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-=+,").find(c) != std::string_view::npos;
}

[[noreturn]] void RefuseMix(std::string_view folder, const std::string& what, std::string_view key,
                            std::string_view there, std::string_view here) {
  Fail(
      "{} in \"{}\" ran with {} {}, this start has {}; the two cannot be compared: continue the study where "
      "it was "
      "begun, choose another --out, or delete \"{}\" to start anew",
      what, folder, key, there, here, folder);
}

// Every cell of the plan, with what `look` finds in its folder.
std::vector<Cell> CellsOf(const fs::path& folder, const StudyPlan& plan,
                          const std::function<void(Cell&, const fs::path& run)>& look) {
  std::vector<Cell> cells;
  for (const GridCell& place : CellOrder(plan.variants.size(), plan.seeds.size())) {
    Cell cell{.variant = place.variant, .seed = place.seed, .reason = "not run yet"};
    const fs::path run =
        folder / CellFolder(plan.variants[place.variant].variant.name, plan.Seed(place.variant, place.seed));
    look(cell, run);
    cells.push_back(std::move(cell));
  }
  return cells;
}

// Why cells failed, by variant and seed, as results.json tells.
std::map<std::pair<std::string, uint64_t>, std::string> ToldFailures(const fs::path& folder) {
  std::map<std::pair<std::string, uint64_t>, std::string> failures;
  try {
    const Json results = ParseJson(ReadFile(folder / "results.json"), "results.json", JsonComments::kRefuse);
    for (const Json& cell : results.at("cells"))
      if (cell.at("status") == Name(CellStatus::kFailed))
        failures[{cell.at("variant").get<std::string>(), cell.at("seed").get<uint64_t>()}] =
            cell.at("reason").get<std::string>();
  } catch (const std::exception&) {  // not there yet, or damaged: the folders tell the rest
  }
  return failures;
}

}  // namespace

StudyPlan ReadPlan(const fs::path& folder) {
  const fs::path path = folder / "study.json";
  const auto name_one = [&](const std::string& what) {
    Fail("{}; name the folder of a study, the --out of a `normlab compare`", what);
  };
  if (KindOf(folder) == PathKind::kNothing)
    name_one(fmt::format("there is no folder \"{}\"", folder.string()));
  if (KindOf(folder) == PathKind::kOther) name_one(fmt::format("\"{}\" is a file", folder.string()));
  if (KindOf(path) == PathKind::kNothing)
    name_one(KindOf(folder / kRecordFile) != PathKind::kNothing
                 ? fmt::format("\"{}\" holds a single run, not a study", folder.string())
                 : fmt::format("\"{}\" holds no study (there is no study.json in it)", folder.string()));
  return StudyPlanFromJson(ParseJson(ReadFile(path), path.string(), JsonComments::kRefuse), path.string());
}

std::string FolderName(std::string_view variant) {
  std::string name;
  for (size_t i = 0; i < variant.size(); ++i) {
    const char c = variant[i];
    if (StaysInName(c) && !(i == 0 && c == '.'))  // no hidden folders, and no ".."
      name += c;
    else
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  if (name.size() > kLongestName)
    name = name.substr(0, kLongestName - 17) + "~" + HashHex(variant).substr(0, 16);
  return name;
}

fs::path CellFolder(std::string_view variant, uint64_t seed) {
  return fs::path("runs") / FolderName(variant) / fmt::format("seed-{}", seed);
}

std::string_view Name(CellStatus status) {
  switch (status) {
    case CellStatus::kMissing:
      return "missing";
    case CellStatus::kDone:
      return "done";
    case CellStatus::kDiverged:
      return "diverged";
    case CellStatus::kFailed:
      return "failed";
  }
  return "?";
}

void TakeRecord(Cell& cell, RunRecord record) {
  switch (record.status) {
    case RunStatus::kDone:
      cell.status = CellStatus::kDone;
      cell.reason.clear();
      if (!record.test_loss ||
          !std::isfinite(*record.test_loss)) {  // a number that cannot be averaged is no result
        cell.status = CellStatus::kDiverged;
        cell.reason = "the test loss is not finite";
      }
      if (record.loss_above_start_since) {  // nor is one of a run that learned nothing
        cell.status = CellStatus::kDiverged;
        cell.reason = fmt::format("the training loss stayed above that of the first step from step {} on",
                                  *record.loss_above_start_since);
      }
      if (!record.error.empty()) {  // its weights, which were asked for, could not be saved: it runs again
        cell.status = CellStatus::kFailed;
        cell.reason = record.error;
      }
      break;
    case RunStatus::kDiverged:
      cell.status = CellStatus::kDiverged;
      cell.reason = record.divergence ? record.divergence->ToString() : "diverged";
      break;
    case RunStatus::kFailed:
      cell.status = CellStatus::kFailed;
      cell.reason = record.error.empty() ? "failed" : record.error;
      break;
    case RunStatus::kInterrupted:
      cell.status = CellStatus::kMissing;
      cell.reason = fmt::format("interrupted after {} steps", record.steps_done);
      break;
    case RunStatus::kRunning:  // nobody else holds the lock, so whoever wrote this is gone
      cell.status = CellStatus::kMissing;
      cell.reason = "cut off while it ran";
      break;
  }
  cell.record = std::move(record);
}

std::vector<Cell> ReadCells(const fs::path& folder, const StudyPlan& plan) {
  return CellsOf(folder, plan, [](Cell& cell, const fs::path& run) {
    if (auto record = ReadRunRecord(run)) TakeRecord(cell, std::move(*record));
    if (IsFinished(cell.status)) return;
    cell.resume_from = LatestCheckpoint(run, [&](const std::string& note) { cell.notes.push_back(note); });
    if (cell.resume_from) cell.resumable = ReadCheckpointState(*cell.resume_from).record;
  });
}

std::vector<Cell> CellsAsTheyStand(const fs::path& folder, const StudyPlan& plan) {
  const auto failures = ToldFailures(folder);
  return CellsOf(folder, plan, [&](Cell& cell, const fs::path& run) {
    try {
      if (auto record = ReadRunRecord(run)) TakeRecord(cell, std::move(*record));
      RequireComparable(cell, plan, nullptr, folder.string());
    } catch (const Error& error) {  // the others can be shown
      cell.record.reset();
      cell.status = CellStatus::kFailed;
      cell.reason = error.what();
      return;
    }
    if (cell.record) return;
    const auto failure =
        failures.find({plan.variants[cell.variant].variant.name, plan.Seed(cell.variant, cell.seed)});
    if (failure == failures.end()) return;
    cell.status = CellStatus::kFailed;
    cell.reason = failure->second;
  });
}

std::string MajorMinor(std::string_view build) {
  const size_t first = build.find('.');
  return std::string(
      build.substr(0, first == std::string_view::npos ? first : build.find_first_of(".,", first + 1)));
}

void RequireComparable(const Cell& cell, const StudyPlan& plan, const Machine* machine,
                       std::string_view folder) {
  if (!IsFinished(cell.status) && !cell.resumable) return;
  const RunRecord& record = IsFinished(cell.status) ? *cell.record : *cell.resumable;
  const PlannedVariant& planned = plan.variants[cell.variant];
  const uint64_t seed = plan.Seed(cell.variant, cell.seed);
  const std::string what = fmt::format("{}, seed {}", planned.variant.name, seed);

  for (const KeyDifference& difference :
       Differences(record.config, ToJson(CellConfig(planned.variant, seed))))
    RefuseMix(folder, what, difference.key + " =", DumpJson(difference.recorded), DumpJson(difference.asked));
  for (const char* key : {"tokenizer_hash", "hash"}) {
    const Json there = record.data.value(key, Json()), here = plan.data.value(key, Json());
    if (there != here) RefuseMix(folder, what, fmt::format("data {}", key), DumpJson(there), DumpJson(here));
  }

  if (machine == nullptr) return;
  const auto require_same = [&](std::string_view key, std::string_view there, std::string_view here) {
    if (there != here) RefuseMix(folder, what, key, there, here);
  };
  require_same("build", MajorMinor(record.machine.build), MajorMinor(machine->build));
  require_same("device", record.machine.device, machine->device);
  require_same("instruction set", record.machine.isa, machine->isa);
  if (record.config.value("dtype", "") == "bf16")
    require_same("bf16 products", record.machine.bf16_products, machine->bf16_products);
  require_same("flush_denormals", record.machine.flush_denormals ? "on" : "off",
               machine->flush_denormals ? "on" : "off");
  require_same("norm implementation", record.norm_implementation, planned.norm_implementation);
}

void RequireStudyOrNew(const fs::path& folder) {
  const auto holds = [&](const char* name) { return KindOf(folder / name) != PathKind::kNothing; };
  const PathKind kind = KindOf(folder);
  if (kind == PathKind::kNothing) return;
  if (kind == PathKind::kOther) Fail("\"{}\" is a file; --out names a folder", folder.string());
  if (holds("study.json")) return;
  if (holds(kRecordFile))
    Fail("\"{}\" holds a run of `normlab train`; choose another --out for a study", folder.string());
  if (holds("runs") || holds("results.json"))
    Fail(
        "\"{}\" holds runs or results of a study, but its study.json, which says what they are, is missing; "
        "restore it, choose another --out, or delete \"{}\" to start anew",
        folder.string(), folder.string());
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() == fs::path(FolderLock::kFileName) || IsTemporary(entry.path())) continue;
    Fail("\"{}\" is not empty and holds no study; choose a new folder for --out", folder.string());
  }
}

void RequireNoLostResults(const fs::path& folder, bool any_finished) {
  const fs::path path = folder / "results.json";
  if (KindOf(path) == PathKind::kNothing) return;
  const std::string way_out =
      fmt::format("choose another --out, or delete \"{}\" to start anew", folder.string());
  int version = 0;
  int64_t finished = 0;
  try {
    const Json results = ParseJson(ReadFile(path), path.string(), JsonComments::kRefuse);
    version = results.at("schema_version").get<int>();
    for (const Json& cell : results.at("cells")) {
      const auto status = cell.at("status").get<std::string>();
      if (status == Name(CellStatus::kDone) || status == Name(CellStatus::kDiverged)) ++finished;
    }
  } catch (const std::exception& error) {
    if (version <= kResultsSchemaVersion) {
      if (any_finished) return;  // the cells are there: it is made again from them
      Fail("\"{}\" cannot be read and would be written over: {}; {}", path.string(), error.what(), way_out);
    }
  }
  if (version > kResultsSchemaVersion)
    Fail(
        "\"{}\" has schema version {}, and this normlab writes version {}: a newer normlab wrote it, which "
        "can go "
        "on with it; or {}",
        path.string(), version, kResultsSchemaVersion, way_out);
  if (finished > 0 && !any_finished)
    Fail("\"{}\" tells of {} finished cells, but none of their folders is left in \"{}\"; restore them, {}",
         path.string(), finished, (folder / "runs").string(), way_out);
}

}  // namespace normlab
