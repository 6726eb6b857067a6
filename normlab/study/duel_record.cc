#include "normlab/study/duel_record.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "normlab/base/error.h"

namespace normlab {
namespace {

Json SettingsJson(const DuelRecord& record) {
  const DuelSettings& settings = record.settings;
  return {{"seconds", ToJson(settings.seconds)},
          {"half_width", ToJson(std::expm1(settings.half_width))},
          {"speed_margin", ToJson(record.rule.margin)},
          {"alpha", ToJson(record.rule.alpha)},
          {"looks", record.rule.looks},
          {"look", record.rule.look},
          {"batches", settings.batches},
          {"pilot_rounds", settings.pilot_rounds},
          {"seed", settings.seed}};
}

// Numbers of rounds in which the block was interrupted.
Json InterruptedRounds(const DuelTimes& times) {
  Json rounds = Json::array();
  for (size_t r = 0; r < times.interrupted.size(); ++r)
    if (times.interrupted[r]) rounds.push_back(r);
  return rounds;
}

Json ContenderJson(const DuelRecord& record, size_t v) {
  const DuelContender& contender = record.contenders[v];
  const DuelTimes& times = record.result.times[v];
  Json json = {{"name", contender.name},
               {"varied", contender.varied},
               {"config", contender.config},
               {"norm_implementation", contender.norm_implementation},
               {"tokens_per_step", contender.tokens_per_step},
               {"peak_bytes", contender.peak_bytes},
               {"compared_with", record.contenders.at(contender.baseline).name}};
  json["block_s"] = times.seconds;
  json["interrupted_rounds"] = InterruptedRounds(times);
  return json;
}

DuelContender ContenderFromJson(const Json& json) {
  return {.name = json.at("name").get<std::string>(),
          .varied = json.at("varied"),
          .config = json.at("config"),
          .norm_implementation = json.at("norm_implementation").get<std::string>(),
          .tokens_per_step = json.at("tokens_per_step").get<int64_t>(),
          .peak_bytes = json.at("peak_bytes").get<size_t>()};
}

DuelTimes TimesFromJson(const Json& json, size_t rounds) {
  DuelTimes times{.seconds = json.at("block_s").get<std::vector<double>>(),
                  .interrupted = std::vector<bool>(rounds)};
  if (times.seconds.size() != rounds)
    Fail("{} has {} blocks in {} rounds", json.at("name").get<std::string>(), times.seconds.size(), rounds);
  for (const double seconds : times.seconds)
    if (!(seconds > 0)) Fail("a block took {} s", seconds);
  for (const Json& round : json.at("interrupted_rounds")) times.interrupted.at(round.get<size_t>()) = true;
  return times;
}

// What each is compared with, and how many comparisons that makes.
void TakeBaselines(const Json& variants, DuelRecord& record) {
  record.rule.variants = 0;
  for (size_t v = 0; v < record.contenders.size(); ++v) {
    const std::string name = variants[v].at("compared_with").get<std::string>();
    const auto found = std::ranges::find(record.contenders, name, &DuelContender::name);
    if (found == record.contenders.end())
      Fail("{} is compared with {}, which is not there", record.contenders[v].name, name);
    record.contenders[v].baseline = static_cast<size_t>(found - record.contenders.begin());
    record.rule.variants += record.contenders[v].baseline != v;
  }
  record.rule.variants = std::max(1, record.rule.variants);
}

// What the summary takes for granted.
void RequireSound(const DuelRecord& record, const std::string& baseline) {
  const DuelSettings& settings = record.settings;
  const DuelPilot& pilot = record.result.pilot;
  const auto require = [](bool good, std::string_view what) {
    if (!good) Fail("its {} cannot be", what);
  };
  require(settings.batches >= 2, "batches");
  require(std::isfinite(settings.half_width) && settings.half_width > 0, "half_width");
  require(record.rule.alpha > 0 && record.rule.alpha < 1, "alpha");
  require(record.rule.looks >= 1 && record.rule.look >= 1, "looks");
  require(record.rule.margin >= 0, "speed_margin");
  require(!settings.seconds || *settings.seconds > 0, "seconds");
  require(record.steps_per_block >= 1, "steps_per_block");
  require(std::isfinite(pilot.sd) && pilot.sd >= 0 && pilot.round_s > 0 && pilot.place_s >= 0 &&
              pilot.spent_s >= 0,
          "pilot");
  require(record.contenders[settings.baseline].name == baseline, "baseline");
  for (const DuelContender& contender : record.contenders)
    require(contender.tokens_per_step >= 1, "tokens_per_step");
  for (const DuelTimes& times : record.result.times)
    require(std::ranges::all_of(times.seconds, [](double s) { return std::isfinite(s) && s > 0; }),
            "block_s");
  for (const DuelRound& round : record.result.round_log)
    require(round.order.size() == record.contenders.size(), "orders");
}

}  // namespace

Json DuelConfig(const TrainConfig& config) {
  Json json = ToJson(config);
  json.erase("seed");
  json.erase("steps");
  return json;
}

Json ToJson(const DuelRecord& record) {
  const DuelResult& result = record.result;
  Json orders = Json::array(), stolen = Json::array(), mhz = Json::array();
  for (const DuelRound& round : result.round_log) {
    orders.push_back(round.order);
    stolen.push_back(ToJson(round.stolen_s));
    mhz.push_back(ToJson(round.mhz));
  }
  Json variants = Json::array();
  for (size_t v = 0; v < record.contenders.size(); ++v) variants.push_back(ContenderJson(record, v));

  Json json;
  json["schema_version"] = DuelRecord::kSchemaVersion;
  json["kind"] = "duel";
  json["status"] = result.stopped ? "interrupted" : "done";
  json["started_at"] = record.started_at;
  json["machine"] = ToJson(record.machine);
  json["data"] = record.data;
  json["busy_cpus"] = ToJson(record.busy_cpus);
  json["settings"] = SettingsJson(record);
  json["baseline"] = record.contenders.at(record.settings.baseline).name;
  json["pilot"] = {{"rounds", result.pilot_rounds},
                   {"sd", ToJson(result.pilot.sd)},
                   {"round_s", ToJson(result.pilot.round_s)},
                   {"place_s", ToJson(result.pilot.place_s)},
                   {"spent_s", ToJson(result.pilot.spent_s)}};
  json["batches"] = result.batches;
  json["rounds_per_batch"] = result.plan.rounds_per_batch;
  json["steps_per_block"] = record.steps_per_block;
  json["cut"] = result.plan.cut;
  json["variants"] = std::move(variants);
  json["orders"] = std::move(orders);
  json["stolen_s"] = std::move(stolen);
  json["mhz"] = std::move(mhz);
  return json;
}

DuelRecord DuelRecordFromJson(const Json& json, std::string_view source) {
  try {
    const int version = json.at("schema_version").get<int>();
    if (version > DuelRecord::kSchemaVersion)
      throw NewerDuel(
          fmt::format("{} has schema version {}, and this normlab reads version {}: a newer normlab wrote it",
                      source, version, DuelRecord::kSchemaVersion));
    if (version != DuelRecord::kSchemaVersion)
      Fail("it has schema version {}; this normlab reads version {}", version, DuelRecord::kSchemaVersion);
    const Json& settings = json.at("settings");
    const Json& pilot = json.at("pilot");
    DuelRecord record{.started_at = json.at("started_at").get<std::string>(),
                      .machine = MachineFromJson(json.at("machine")),
                      .data = json.at("data"),
                      .busy_cpus = OptionalNumberFromJson(json.at("busy_cpus"), "busy_cpus"),
                      .steps_per_block = json.at("steps_per_block").get<int64_t>()};
    const Json& variants = json.at("variants");
    record.rule = {.alpha = NumberFromJson(settings.at("alpha"), "alpha"),
                   .looks = settings.at("looks").get<int>(),
                   .look = settings.at("look").get<int>(),
                   .margin = NumberFromJson(settings.at("speed_margin"), "speed_margin"),
                   .log_ratio = true};
    record.settings = {.contenders = variants.size(),
                       .batches = settings.at("batches").get<size_t>(),
                       .pilot_rounds = settings.at("pilot_rounds").get<size_t>(),
                       .half_width = std::log1p(NumberFromJson(settings.at("half_width"), "half_width")),
                       .alpha = record.rule.alpha / record.rule.looks,
                       .seconds = OptionalNumberFromJson(settings.at("seconds"), "seconds"),
                       .seed = settings.at("seed").get<uint64_t>()};
    DuelResult& result = record.result;
    result.plan = {.batches = json.at("batches").get<size_t>(),
                   .rounds_per_batch = json.at("rounds_per_batch").get<size_t>(),
                   .cut = json.at("cut").get<bool>()};
    result.batches = result.plan.batches;
    result.stopped = json.at("status").get<std::string>() != "done";
    result.pilot_rounds = pilot.at("rounds").get<size_t>();
    result.pilot = {.sd = NumberFromJson(pilot.at("sd"), "sd"),
                    .round_s = NumberFromJson(pilot.at("round_s"), "round_s"),
                    .place_s = NumberFromJson(pilot.at("place_s"), "place_s"),
                    .spent_s = NumberFromJson(pilot.at("spent_s"), "spent_s")};
    const size_t rounds = result.batches * result.plan.rounds_per_batch;
    for (const Json& variant : variants) {
      record.contenders.push_back(ContenderFromJson(variant));
      if (record.contenders.back().name == json.at("baseline").get<std::string>())
        record.settings.baseline = record.contenders.size() - 1;
      result.times.push_back(TimesFromJson(variant, rounds));
    }
    if (record.contenders.empty()) Fail("it holds no variant");
    TakeBaselines(variants, record);
    for (size_t r = 0; r < rounds; ++r)
      result.round_log.push_back({.order = json.at("orders").at(r).get<std::vector<size_t>>(),
                                  .stolen_s = OptionalNumberFromJson(json.at("stolen_s").at(r), "stolen_s"),
                                  .mhz = OptionalNumberFromJson(json.at("mhz").at(r), "mhz")});
    RequireSound(record, json.at("baseline").get<std::string>());
    return record;
  } catch (const NewerDuel&) {
    throw;
  } catch (const std::exception& error) {
    Fail("{} is not the record of a duel that can be read: {}", source, error.what());
  }
}

}  // namespace normlab
