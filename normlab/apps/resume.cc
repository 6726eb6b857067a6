#include "normlab/apps/resume.h"

#include <system_error>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/folder_lock.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run_folder.h"

namespace normlab::apps {
namespace {

namespace fs = std::filesystem;

// A run that is done, but whose weights could not be saved, goes on from its checkpoint to save them.
bool IsOver(const RunRecord& record, const fs::path& folder) {
  if (record.status == RunStatus::kDiverged) return true;
  return record.status == RunStatus::kDone &&
         (record.error.empty() || ListCheckpoints(folder).complete.empty());
}

// A checkpoint that was put into the folder of another run would make that one's record say what it never
// was.
void RequireOfRun(const Resumption& resumption, const RunRecord& run, const fs::path& folder) {
  const auto refuse = [&](const std::string& what) {
    Fail(
        "the checkpoint \"{0}\" is not of the run in \"{1}\", whose run.json says otherwise: {2}; delete "
        "that "
        "checkpoint, or go on with it elsewhere: --resume {0} and another --out",
        resumption.checkpoint->string(), folder.string(), what);
  };
  for (const KeyDifference& difference : Differences(run.config, resumption.record.config))
    refuse(fmt::format("{} = {} in run.json, {} in the checkpoint", difference.key,
                       DumpJson(difference.recorded), DumpJson(difference.asked)));
  const Json there = run.data.value("hash", Json()), here = resumption.record.data.value("hash", Json());
  if (there != here)
    refuse(fmt::format("the hash of the text is {} in run.json, {} in the checkpoint", DumpJson(there),
                       DumpJson(here)));
}

Resumption OfRun(const fs::path& folder, const fs::path& checkpoint, const std::optional<RunRecord>& run) {
  Resumption resumption{.record = ReadCheckpointState(checkpoint).record, .checkpoint = checkpoint};
  if (run) RequireOfRun(resumption, *run, folder);
  return resumption;
}

// A checkpoint that the user names: of the run in `folder`, or to go on from in a new folder.
Resumption Named(const fs::path& folder, fs::path checkpoint, const std::optional<RunRecord>& run) {
  if (checkpoint.filename().empty()) checkpoint = checkpoint.parent_path();  // "step-00000100/"
  if (fs::is_regular_file(checkpoint))
    Fail(
        "--resume {} is a file; a run goes on from the folder of a checkpoint, which holds the optimizer's "
        "state too; "
        "to start a new run from weights alone, with a fresh optimizer: --init-weights FILE",
        checkpoint.string());
  if (!fs::exists(checkpoint))
    Fail(
        "--resume {}: there is no such folder; leave the name out to go on from the latest checkpoint of "
        "--out",
        checkpoint.string());
  std::error_code error;
  if (run && !fs::equivalent(checkpoint.parent_path(), CheckpointsOf(folder), error))
    Fail(
        "\"{}\" holds a run, and \"{}\" is no checkpoint of it; choose a new folder for --out to go on from "
        "that "
        "checkpoint there",
        folder.string(), checkpoint.string());
  return OfRun(folder, checkpoint, run);
}

}  // namespace

std::optional<Resumption> FindResumption(const fs::path& folder, const std::string& checkpoint,
                                         const std::function<void(const std::string&)>& note) {
  if (fs::exists(folder) && !fs::is_directory(folder))
    Fail("\"{}\" is a file; --out names a folder", folder.string());
  if (fs::exists(folder / "study.json"))
    Fail("\"{}\" holds a study; `normlab compare` with its options goes on by itself", folder.string());
  const std::optional<RunRecord> run = ReadRunRecord(folder);
  if (run && IsOver(*run, folder)) return Resumption{.record = *run, .checkpoint = std::nullopt};
  if (!checkpoint.empty()) return Named(folder, checkpoint, run);
  if (const auto latest = LatestCheckpoint(folder, note)) return OfRun(folder, *latest, run);
  if (run) return Resumption{.record = *run, .checkpoint = std::nullopt};
  if (fs::exists(folder / FolderLock::kFileName)) return std::nullopt;
  if (fs::exists(folder / kModelFile))
    Fail(
        "\"{}\" holds weights but no run.json and no checkpoint: a run cannot go on without the optimizer's "
        "state; "
        "--init-weights {} and another --out start a new run from them, with a fresh optimizer",
        folder.string(), (folder / kModelFile).string());
  Fail("\"{}\" holds no run to go on with; check --out, or leave --resume out to start one", folder.string());
}

TrainConfig ResumedConfig(const RunArguments& arguments, const std::vector<Assignment>& assignments,
                          bool from_preset, const RunRecord& record) {
  TrainConfig config;
  if (from_preset) {
    config = MakeConfig(arguments, assignments);
  } else {
    Apply(config, record.config, "the configuration of the run");
    for (const Assignment& assignment : assignments) Set(config, assignment.text);
  }
  config.Validate();
  for (const KeyDifference& difference : Differences(record.config, ToJson(config)))
    Fail(
        "the run in \"{}\" goes on with the configuration that it began with: {}; leave that option out, or "
        "choose "
        "another --out for another run",
        arguments.out, difference.ToString());
  return config;
}

std::shared_ptr<const TokenSource> ResumedData(RunArguments arguments, const RunRecord& record) {
  const bool said = !arguments.data.empty();
  std::shared_ptr<const TokenSource> tokens;
  try {
    if (!said)
      for (const Json& file : record.data.at("files"))
        arguments.data.push_back(file.at("path").get<std::string>());
    tokens = ReadData(arguments);
  } catch (const nlohmann::json::exception&) {
    Fail("the record of the run in \"{}\" does not name its text; say it again with --data", arguments.out);
  } catch (const Error& error) {
    if (said) throw;
    Fail("{}; the run in \"{}\" read it: name it with --data where it is now", error.what(), arguments.out);
  }
  const Json there = record.data.value("hash", Json()), here = DataIdentity(*tokens).at("hash");
  if (there != here)
    Fail(
        "the text is not that of the run in \"{}\": its hash is {}, that of {} is {}; name the text of the "
        "run with "
        "--data",
        arguments.out, DumpJson(there), fmt::format("{}", fmt::join(arguments.data, " ")), DumpJson(here));
  return tokens;
}

std::optional<fs::path> ResumedWeights(const RunRecord& record) {
  if (record.initial_weights.is_null()) return std::nullopt;
  const fs::path path = record.initial_weights.at("path").get<std::string>();
  if (const std::string hash = FileHash(path); record.initial_weights.at("hash") != hash)
    Fail(
        "\"{}\", which the run began with, has changed: its hash is {} and was {}; choose another --out for "
        "a new run",
        path.string(), hash, record.initial_weights.at("hash").get<std::string>());
  return path;
}

}  // namespace normlab::apps
