#include "normlab/train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/hash.h"
#include "normlab/train/tensor_file.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "state.json";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kGradients = "gradients.safetensors";

// Takes `prefix` and the number after it from the front of `text`.
std::optional<int64_t> TakeNumber(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  int64_t value = 0;
  const char* begin = text.data() + prefix.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end == begin || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// Steps and micro-batches that the name of a checkpoint's folder tells: its place in the order of
// checkpoints.
std::optional<std::pair<int64_t, int64_t>> PositionOf(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  std::string_view rest = name;
  const auto step = TakeNumber(rest, "step-");
  if (!step) return std::nullopt;
  const auto micro = rest.empty() ? 0 : TakeNumber(rest, "-micro-");
  if (!micro || !rest.empty()) return std::nullopt;
  return std::pair(*step, *micro);
}

std::string Place(const TrainPosition& position) {
  std::string text = fmt::format("step {}", position.step);
  if (position.micro_batches > 0) text += fmt::format(" and {} micro-batches", position.micro_batches);
  return text;
}

// What to do where a checkpoint cannot be used.
std::string WayOut(const fs::path& checkpoint) {
  const fs::path run = checkpoint.parent_path().parent_path();
  std::optional<fs::path> before;
  if (checkpoint.parent_path().filename() == CheckpointsOf(run).filename())
    for (const fs::path& other : ListCheckpoints(run).complete)
      if (PositionOf(other) < PositionOf(checkpoint)) before = other;
  if (before)
    return fmt::format(
        "delete this folder to go on from the checkpoint before it, or name that one: `normlab train "
        "--resume {}`",
        before->string());
  return fmt::format("there is no earlier one: delete the folder \"{}\" to start again from step 1",
                     run.string());
}

[[noreturn]] void Unusable(const fs::path& checkpoint, const std::string& what) {
  Fail("the checkpoint \"{}\" cannot be used: {}; {}", checkpoint.string(), what, WayOut(checkpoint));
}

SafetensorsMetadata PositionMetadata(const TrainPosition& position) {
  return {{"step", std::to_string(position.step)}, {"micro_batches", std::to_string(position.micro_batches)}};
}

// "step 50", as a tensor file says; nothing where it cannot be read or says nothing.
std::optional<std::string> PlaceInFile(const fs::path& path) {
  try {
    const SafetensorsReader reader(path);
    const auto step = reader.metadata().find("step"), micro = reader.metadata().find("micro_batches");
    if (step == reader.metadata().end() || micro == reader.metadata().end()) return std::nullopt;
    return Place({.step = std::stoll(step->second), .micro_batches = std::stoll(micro->second)});
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Json StateToJson(const CheckpointState& state) {
  Json files = Json::object();
  for (const auto& [name, stamp] : state.files) files[name] = {{"bytes", stamp.bytes}, {"hash", stamp.hash}};
  return {{"schema_version", CheckpointState::kSchemaVersion},
          {"step", state.position.step},
          {"micro_batches", state.position.micro_batches},
          {"loss_sum", ToJson(state.position.loss_sum)},
          {"step_time_s", ToJson(state.position.time_s)},
          {"files", std::move(files)},
          {"record", ToJson(state.record)}};
}

// Copies up to `lines` lines: a step that diverged has its line, and is not done.
FileStamp CopyLines(const fs::path& from, const fs::path& to, int64_t lines) {
  std::string bytes = ReadFile(from);
  size_t end = 0;
  for (int64_t line = 0; line < lines && end < bytes.size(); ++line)
    end = std::min(bytes.find('\n', end), bytes.size() - 1) + 1;
  bytes.resize(end);
  WriteFileAtomic(to, bytes);
  return {.bytes = bytes.size(), .hash = HashHex(bytes)};
}

std::vector<FlatTensors> Moments(const Trainer& trainer) {
  return {{"m.", trainer.first_moments()}, {"v.", trainer.second_moments()}};
}

// What a folder of another kind lacks to be a checkpoint.
std::string Lacks(const fs::path& checkpoint) {
  std::string names;
  for (const char* name : {kModelFile, kOptimizer, kState})
    if (!fs::exists(checkpoint / name)) names += (names.empty() ? "" : ", ") + std::string(name);
  std::string text =
      fmt::format("\"{}\" is no complete checkpoint: it has no {}", checkpoint.string(), names);
  if (fs::exists(checkpoint / kModelFile))
    text += fmt::format(
        "; weights alone cannot go on as if nothing had happened, but a new run can start from them with a "
        "fresh "
        "optimizer: --init-weights {} and another --out",
        (checkpoint / kModelFile).string());
  return text;
}

}  // namespace

std::string CheckpointName(const TrainPosition& position) {
  std::string name = fmt::format("step-{:08}", position.step);
  if (position.micro_batches > 0) name += fmt::format("-micro-{:04}", position.micro_batches);
  return name;
}

CheckpointList ListCheckpoints(const fs::path& run) {
  CheckpointList list;
  std::error_code error;
  const fs::path folder = CheckpointsOf(run);
  // Taken for "none", either would make a run begin again.
  if (KindOf(folder) == PathKind::kNothing && fs::is_symlink(folder, error))
    Fail(
        "\"{}\" is a link that leads nowhere; is its disk mounted? Or remove the link to go on without "
        "checkpoints",
        folder.string());
  if (KindOf(folder) == PathKind::kOther)
    Fail("\"{}\" is a file, where the checkpoints of a run belong; move it away", folder.string());
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!PositionOf(entry.path())) continue;
    (fs::exists(entry.path() / kState) ? list.complete : list.incomplete).push_back(entry.path());
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    Fail("cannot list the folder \"{}\": {}", folder.string(), error.message());
  const auto earlier = [](const fs::path& a, const fs::path& b) { return PositionOf(a) < PositionOf(b); };
  std::sort(list.complete.begin(), list.complete.end(), earlier);
  std::sort(list.incomplete.begin(), list.incomplete.end(), earlier);
  return list;
}

std::optional<fs::path> LatestCheckpoint(const fs::path& run,
                                         const std::function<void(const std::string&)>& note) {
  const CheckpointList list = ListCheckpoints(run);
  if (list.complete.empty() && list.incomplete.empty()) return std::nullopt;
  if (list.complete.empty())
    Fail("{}; delete that folder to start again from step 1", Lacks(list.incomplete.back()));
  for (const fs::path& other : list.incomplete)
    if (note && PositionOf(other) > PositionOf(list.complete.back()))
      note(fmt::format("{}; it is passed over for \"{}\"", Lacks(other), list.complete.back().string()));
  return list.complete.back();
}

void SaveCheckpoint(const fs::path& run, const Trainer& trainer, const RunRecord& record,
                    const std::map<std::string, std::string>& more) {
  CheckpointState state{.position = trainer.position(), .record = record};
  const fs::path folder = CheckpointsOf(run);
  CreateDirectories(folder);
  RemoveTemporaries(folder);

  AtomicFolder checkpoint(folder / CheckpointName(state.position));
  const auto write = [&](const char* name, const std::vector<FlatTensors>& tensors, NonFinite non_finite) {
    SafetensorsMetadata metadata = PositionMetadata(state.position);
    metadata["config"] = DumpJson(record.config);
    metadata["tokenizer"] = trainer.tokens().info().tokenizer;
    metadata["tokenizer_hash"] = trainer.tokens().info().tokenizer_hash;
    state.files[name] =
        WriteTensorFile(checkpoint.temporary() / name, trainer.device(), trainer.model().parameters(),
                        tensors, trainer.device().compute_dtype(), non_finite, metadata);
  };
  write(kModelFile, {{"", trainer.model().weights()}}, NonFinite::kRefused);
  write(kOptimizer, Moments(trainer), NonFinite::kAllowed);
  if (state.position.micro_batches > 0)
    write(kGradients, {{"", trainer.model().gradients()}}, NonFinite::kAllowed);
  state.files[kMetricsFile] =
      CopyLines(run / kMetricsFile, checkpoint.temporary() / kMetricsFile, state.position.step);
  for (const auto& [name, bytes] : more) {
    WriteFileAtomic(checkpoint.temporary() / name, bytes);
    state.files[name] = {.bytes = bytes.size(), .hash = HashHex(bytes)};
  }
  WriteCheckpointState(checkpoint.temporary(), state);
  checkpoint.Commit();
}

void PruneCheckpoints(const fs::path& run, const TrainPosition& latest, int64_t keep) {
  NL_CHECK(keep >= 1);
  const std::pair<int64_t, int64_t> last(latest.step, latest.micro_batches);
  std::vector<fs::path> kept;
  for (const fs::path& checkpoint : ListCheckpoints(run).complete) {
    if (PositionOf(checkpoint) > last)
      RemoveFolder(checkpoint);
    else
      kept.push_back(checkpoint);
  }
  for (size_t i = 0; i + static_cast<size_t>(keep) < kept.size(); ++i) RemoveFolder(kept[i]);
}

void RemoveCheckpoints(const fs::path& run) {
  const CheckpointList list = ListCheckpoints(run);
  // One by one: of a link, only the link itself would go with the folder.
  for (const auto* checkpoints : {&list.complete, &list.incomplete})
    for (const fs::path& checkpoint : *checkpoints) RemoveFolder(checkpoint);
  RemoveFolder(CheckpointsOf(run));
}

void WriteCheckpointState(const fs::path& checkpoint, const CheckpointState& state) {
  Json json = StateToJson(state);
  json["checksum"] = HashHex(DumpJson(json));
  WriteFileAtomic(checkpoint / kState, DumpJson(json, 2) + "\n");
}

CheckpointState ReadCheckpointState(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kState;
  if (!fs::exists(path)) Fail("{}", Lacks(checkpoint));
  try {
    Json json = ParseJson(ReadFile(path), kState, JsonComments::kRefuse);
    const std::string checksum = json.at("checksum").get<std::string>();
    json.erase("checksum");
    if (const std::string found = HashHex(DumpJson(json)); found != checksum)
      Fail("{} has the checksum {} where it says {}: it is damaged or was edited", kState, found, checksum);
    const int version = json.at("schema_version").get<int>();
    if (version != CheckpointState::kSchemaVersion)
      Fail("{} has schema version {}; this program reads version {}", kState, version,
           CheckpointState::kSchemaVersion);
    CheckpointState state;
    state.position = {.step = json.at("step").get<int64_t>(),
                      .micro_batches = json.at("micro_batches").get<int64_t>(),
                      .loss_sum = NumberFromJson(json.at("loss_sum"), "loss_sum"),
                      .time_s = NumberFromJson(json.at("step_time_s"), "step_time_s")};
    for (const auto& [name, stamp] : json.at("files").items())
      state.files[name] = {.bytes = stamp.at("bytes").get<uint64_t>(),
                           .hash = stamp.at("hash").get<std::string>()};
    state.record = RunRecordFromJson(json.at("record"), kState);
    return state;
  } catch (const nlohmann::json::exception& error) {
    Unusable(checkpoint, fmt::format("{} is damaged: {}", kState, error.what()));
  } catch (const Error& error) {
    Unusable(checkpoint, error.what());
  }
}

void VerifyCheckpoint(const fs::path& checkpoint, const CheckpointState& state) {
  for (const char* name : {kModelFile, kOptimizer, kMetricsFile, kGradients}) {
    const bool needed = name != kGradients || state.position.micro_batches > 0;
    if (needed && !state.files.contains(name))
      Unusable(checkpoint, fmt::format("{} does not name {}", kState, name));
  }
  for (const auto& [name, stamp] : state.files) {
    const fs::path path = checkpoint / name;
    if (!fs::exists(path)) Unusable(checkpoint, fmt::format("{} is missing", name));
    if (!fs::is_regular_file(path)) Unusable(checkpoint, fmt::format("{} is no file", name));
    const FileStamp found{.bytes = fs::file_size(path), .hash = FileHash(path)};
    if (found == stamp) continue;
    const std::string here = Place(state.position);
    if (const auto there = PlaceInFile(path); there && *there != here)
      Unusable(checkpoint, fmt::format("{} is of {}, {} of {}: files of two checkpoints are mixed", name,
                                       *there, kState, here));
    if (found.bytes != stamp.bytes)
      Unusable(checkpoint, fmt::format("{} has {} bytes where {} says {}: it is damaged", name, found.bytes,
                                       kState, stamp.bytes));
    Unusable(checkpoint, fmt::format("{} has the checksum {} where {} says {}: it is damaged", name,
                                     found.hash, kState, stamp.hash));
  }
}

std::vector<std::string> RequireMatch(const fs::path& checkpoint, const CheckpointState& state,
                                      const RunRecord& now) {
  const RunRecord& then = state.record;
  const std::string name = checkpoint.string();
  for (const KeyDifference& difference : Differences(then.config, now.config))
    Fail(
        "the checkpoint \"{}\" is of another run: {}; leave that option out to go on, or choose another "
        "--out for "
        "another run",
        name, difference.ToString());
  for (const char* key : {"tokenizer_hash", "hash"}) {
    const Json there = then.data.value(key, Json()), here = now.data.value(key, Json());
    if (there != here)
      Fail(
          "the checkpoint \"{}\" is of another text: its {} is {}, that of --data {}; name the text of the "
          "run",
          name, key == std::string_view("hash") ? "hash" : "tokenizer_hash", DumpJson(there), DumpJson(here));
  }
  const auto require = [&](std::string_view what, const std::string& there, const std::string& here,
                           std::string_view way_out) {
    if (there != here)
      Fail(
          "the checkpoint \"{}\" was made with the {} {}, and this start has {}: the run would not go on "
          "with the "
          "same bits; {}",
          name, what, there, here, way_out);
  };
  require("device", then.machine.device, now.machine.device, "use the same device");
  require("instruction set", then.machine.isa, now.machine.isa,
          fmt::format("NORMLAB_ISA={} chooses it on a processor that has it", then.machine.isa));
  if (now.config.value("dtype", "") == "bf16")
    require("bf16 products", then.machine.bf16_products, now.machine.bf16_products,
            "go on where these instructions are");
  require("norm implementation", then.norm_implementation, now.norm_implementation, "name it in norm_type");
  require("flush_denormals", then.machine.flush_denormals ? "on" : "off",
          now.machine.flush_denormals ? "on" : "off", "set it as it was");

  std::vector<std::string> notes;
  const auto compare = [&](std::string_view what, const std::string& there, const std::string& here) {
    if (there != here)
      notes.push_back(
          fmt::format("the run began on {} \"{}\" and goes on on \"{}\": the last bits of its losses may "
                      "differ from those of a run on one of them",
                      what, there, here));
  };
  compare("processor", then.machine.cpu, now.machine.cpu);
  compare("build", then.machine.build, now.machine.build);
  compare("oneDNN", then.machine.onednn, now.machine.onednn);
  if (!then.machine.wait_policy.empty() && then.machine.wait_policy != now.machine.wait_policy)
    notes.push_back(fmt::format(
        "the run began with the wait policy \"{}\" of OpenMP and goes on with \"{}\": the speed of its "
        "two parts differs, and its times say little",
        then.machine.wait_policy, now.machine.wait_policy));
  return notes;
}

void RestoreCheckpoint(const fs::path& checkpoint, const CheckpointState& state, Trainer& trainer) {
  const auto read = [&](const char* name, const std::vector<FlatTensors>& tensors, NonFinite non_finite) {
    ReadTensorFile(checkpoint / name, trainer.device(), trainer.model().parameters(), tensors,
                   trainer.device().compute_dtype(), non_finite);
  };
  try {
    read(kModelFile, {{"", trainer.model().weights()}}, NonFinite::kRefused);
    read(kOptimizer, Moments(trainer), NonFinite::kAllowed);
    if (state.position.micro_batches > 0)
      read(kGradients, {{"", trainer.model().gradients()}}, NonFinite::kAllowed);
  } catch (const Error& error) {
    Unusable(checkpoint, error.what());
  }
  trainer.MoveTo(state.position);
}

}  // namespace normlab
