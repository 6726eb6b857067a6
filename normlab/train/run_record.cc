#include "normlab/train/run_record.h"

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

constexpr struct {
  RunStatus status;
  std::string_view name;
} kStatuses[] = {{RunStatus::kRunning, "running"},
                 {RunStatus::kDone, "done"},
                 {RunStatus::kDiverged, "diverged"},
                 {RunStatus::kInterrupted, "interrupted"},
                 {RunStatus::kFailed, "failed"}};

RunStatus StatusFromName(const std::string& name) {
  for (const auto& entry : kStatuses)
    if (entry.name == name) return entry.status;
  Fail("unknown status \"{}\"", name);
}

Json DivergenceToJson(const Divergence& divergence) {
  return {{"step", divergence.step},
          {"what", divergence.what},
          {"tensor", divergence.tensor ? Json(*divergence.tensor) : Json()},
          {"activation", divergence.activation ? Json(*divergence.activation) : Json()},
          {"last_inside_step", divergence.last_inside_step ? Json(*divergence.last_inside_step) : Json()},
          {"value", ToJson(divergence.value)}};
}

template <class T>
std::optional<T> Optional(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return std::nullopt;
  return it->get<T>();
}

}  // namespace

std::string_view Name(RunStatus status) {
  for (const auto& entry : kStatuses)
    if (entry.status == status) return entry.name;
  return "?";
}

Json DataIdentity(const TokenSource& tokens) {
  Json files = Json::array();
  for (const TokenFile& file : tokens.info().files)
    files.push_back({{"path", file.path}, {"bytes", file.bytes}});
  return {{"files", std::move(files)},
          {"tokens", tokens.size()},
          {"hash", tokens.info().data_hash},
          {"tokenizer", tokens.info().tokenizer},
          {"tokenizer_hash", tokens.info().tokenizer_hash}};
}

Json ToJson(const RunRecord& record) {
  Json blocks = Json::array();
  for (const double loss : record.test_block_losses) blocks.push_back(ToJson(loss));
  Json json;
  json["schema_version"] = RunRecord::kSchemaVersion;
  json["status"] = Name(record.status);
  json["error"] = record.error.empty() ? Json() : Json(record.error);
  json["divergence"] = record.divergence ? DivergenceToJson(*record.divergence) : Json();
  json["started_at"] = record.started_at;
  json["resumed_from"] = record.resumed_from;
  json["initial_weights"] = record.initial_weights;
  json["config"] = record.config;
  json["norm_implementation"] = record.norm_implementation;
  json["data"] = record.data;
  json["machine"] = ToJson(record.machine);
  json["parameters"] = record.parameters;
  json["norm_parameters"] = record.norm_parameters;
  json["steps_done"] = record.steps_done;
  json["tokens"] = record.tokens;
  json["time_s"] = ToJson(record.time_s);
  json["tokens_per_s"] = ToJson(record.tokens_per_s);
  json["train_loss"] = ToJson(record.train_loss);
  json["test_loss"] = ToJson(record.test_loss);
  json["products_bound_s"] = ToJson(record.products_bound_s);
  json["products_share"] = ToJson(record.products_share);
  if (!record.profile.empty()) {
    json["profile"] = Json::array();
    for (const OperationTime& time : record.profile)
      json["profile"].push_back({{"operation", time.name}, {"calls", time.calls}, {"seconds", time.seconds}});
  }
  json["copy_bytes_per_s"] = ToJson(record.copy_bytes_per_s);
  json["bound_s"] = ToJson(record.bound_s);
  json["bound_share"] = ToJson(record.bound_share);
  json["inside_every"] = record.inside_every ? Json(*record.inside_every) : Json();
  json["inside_time_s"] = ToJson(record.inside_time_s);
  json["spikes"] = Json::array();
  for (const SpikeRecord& spike : record.spikes) json["spikes"].push_back(ToJson(spike));
  json["loss_above_start_since"] =
      record.loss_above_start_since ? Json(*record.loss_above_start_since) : Json();
  json["inside"] = record.inside;
  json["peak_bytes"] = record.peak_bytes;
  json["process_peak_bytes"] = record.process_peak_bytes ? Json(*record.process_peak_bytes) : Json();
  json["test_block_losses"] = std::move(blocks);
  return json;
}

RunRecord RunRecordFromJson(const Json& json, std::string_view source) {
  try {
    const int version = json.at("schema_version").get<int>();
    if (version != RunRecord::kSchemaVersion)
      Fail("it has schema version {}; this normlab reads version {}{}", version, RunRecord::kSchemaVersion,
           version > RunRecord::kSchemaVersion ? ": a newer normlab wrote it, which can go on with it" : "");
    RunRecord record;
    record.status = StatusFromName(json.at("status").get<std::string>());
    record.error = Optional<std::string>(json, "error").value_or("");
    record.started_at = json.value("started_at", "");
    record.resumed_from = json.value("resumed_from", std::vector<int64_t>());
    record.initial_weights = json.value("initial_weights", Json());
    record.config = json.at("config");
    record.norm_implementation = json.at("norm_implementation").get<std::string>();
    record.data = json.at("data");
    record.machine = MachineFromJson(json.at("machine"));
    record.parameters = json.at("parameters").get<int64_t>();
    record.norm_parameters = json.at("norm_parameters").get<int64_t>();
    record.steps_done = json.at("steps_done").get<int64_t>();
    record.tokens = json.at("tokens").get<int64_t>();
    record.time_s = NumberFromJson(json.at("time_s"), "time_s");
    record.tokens_per_s = OptionalNumberFromJson(json.at("tokens_per_s"), "tokens_per_s");
    record.train_loss = OptionalNumberFromJson(json.at("train_loss"), "train_loss");
    record.test_loss = OptionalNumberFromJson(json.at("test_loss"), "test_loss");
    record.products_bound_s = OptionalNumberFromJson(json.at("products_bound_s"), "products_bound_s");
    record.products_share = OptionalNumberFromJson(json.at("products_share"), "products_share");
    for (const Json& time : json.value("profile", Json::array()))
      record.profile.push_back({.name = time.at("operation").get<std::string>(),
                                .calls = time.at("calls").get<int64_t>(),
                                .seconds = NumberFromJson(time.at("seconds"), "seconds")});
    const auto number = [&](const char* key) { return OptionalNumberFromJson(json.value(key, Json()), key); };
    record.copy_bytes_per_s = number("copy_bytes_per_s");
    record.bound_s = number("bound_s");
    record.bound_share = number("bound_share");
    // Records of versions without these are read too.
    record.inside_every = Optional<int64_t>(json, "inside_every");
    record.inside_time_s = number("inside_time_s").value_or(0);
    record.inside = json.value("inside", Json());
    for (const Json& spike : json.value("spikes", Json::array()))
      record.spikes.push_back(SpikeFromJson(spike));
    record.loss_above_start_since = Optional<int64_t>(json, "loss_above_start_since");
    record.peak_bytes = json.at("peak_bytes").get<size_t>();
    record.process_peak_bytes = Optional<size_t>(json, "process_peak_bytes");
    for (const Json& loss : json.at("test_block_losses"))
      record.test_block_losses.push_back(NumberFromJson(loss, "test_block_losses"));
    if (const Json& divergence = json.at("divergence"); !divergence.is_null())
      record.divergence = Divergence{.step = divergence.at("step").get<int64_t>(),
                                     .what = divergence.at("what").get<std::string>(),
                                     .tensor = Optional<std::string>(divergence, "tensor"),
                                     .activation = Optional<std::string>(divergence, "activation"),
                                     .value = NumberFromJson(divergence.at("value"), "value"),
                                     .last_inside_step = Optional<int64_t>(divergence, "last_inside_step")};
    return record;
  } catch (const nlohmann::json::exception& e) {
    Fail("{} is not a record of a run: {}; delete its folder to run it again", source, e.what());
  } catch (const Error& e) {
    Fail("{} cannot be used: {}; delete its folder to run it again", source, e.what());
  }
}

std::optional<RunRecord> ReadRunRecord(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kRecordFile;
  if (KindOf(path) == PathKind::kNothing) return std::nullopt;
  Json json;
  try {
    json = ParseJson(ReadFile(path), path.string(), JsonComments::kRefuse);
  } catch (const Error& e) {
    Fail("{}; delete the folder \"{}\" to run it again", e.what(), folder.string());
  }
  return RunRecordFromJson(json, path.string());
}

}  // namespace normlab
