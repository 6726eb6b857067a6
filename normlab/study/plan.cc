#include "normlab/study/plan.h"

#include <algorithm>
#include <set>

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"

namespace normlab {
namespace {

constexpr uint64_t kDefaultSeeds[] = {1, 2, 3, 4, 5};

template <class T>
bool Contains(const std::vector<T>& all, const T& one) {
  return std::ranges::find(all, one) != all.end();
}

std::vector<std::string> Names(const std::vector<PlannedVariant>& variants) {
  std::vector<std::string> names;
  for (const PlannedVariant& planned : variants) names.push_back(planned.variant.name);
  return names;
}

// Throws Error where a group of --within has no baseline, or no group anything to compare.
void RequireGroups(const StudyPlan& plan) {
  for (const std::string& key : plan.within) {
    if (!Contains(plan.varied_keys, key))
      Fail("--within {}: this key does not vary; varied are {}", key, fmt::join(plan.varied_keys, ", "));
    if (std::ranges::count(plan.within, key) > 1) Fail("--within names {} twice; name it once", key);
  }
  for (size_t v = 0; v < plan.variants.size(); ++v) plan.BaselineOf(v);
  if (!plan.within.empty() && plan.comparisons() == 0)
    Fail("--within {} leaves nothing to compare, as nothing else varies; leave it out",
         fmt::join(plan.within, ", "));
}

uint64_t Largest(const std::vector<PlannedVariant>& variants) {
  uint64_t largest = 0;
  for (const PlannedVariant& planned : variants)
    for (const uint64_t seed : planned.seeds) largest = std::max(largest, seed);
  return largest;
}

// Gives every variant seeds of its own, that no other has, until it has `count`. Seeds that it has stay.
void TakeOwnSeeds(std::vector<PlannedVariant>& variants, size_t count) {
  for (PlannedVariant& planned : variants) {
    uint64_t next = Largest(variants) + 1;
    const size_t before = planned.seeds.size();
    for (size_t i = before; i < count; ++i) planned.seeds.push_back(next++);
  }
}

std::string WayOut(std::string_view folder) {
  return fmt::format("choose another --out, or delete \"{}\" to start anew", folder);
}

std::string Keys(const std::vector<std::string>& keys) {
  return keys.empty() ? "none" : fmt::format("{}", fmt::join(keys, ","));
}

Look ThisLook(const StudyPlan& plan, const StudyRequest& request) {
  return {.variants = Names(plan.variants), .seeds = plan.seeds, .started_at = request.started_at};
}

// A declared number stays as it was declared: a verdict may not be shopped for.
template <class T>
void RequireDeclared(std::string_view what, const T& recorded, const std::optional<T>& asked,
                     std::string_view folder) {
  if (!asked || *asked == recorded) return;
  Fail(
      "the study in \"{}\" was declared with {} {}, and has finished cells; {} {} would change the rule "
      "after seeing "
      "the data; leave the option out, or {}",
      folder, what, recorded, what, *asked, WayOut(folder));
}

void RequireSameData(const StudyPlan& recorded, const StudyRequest& request, std::string_view folder) {
  for (const char* key : {"tokenizer", "tokenizer_hash", "hash"}) {
    const Json there = recorded.data.value(key, Json()), here = request.data.value(key, Json());
    if (there == here) continue;
    Fail("the study in \"{}\" was made with other data: data {} = {} there, {} now; name the same files, {}",
         folder, key, DumpJson(there), DumpJson(here), WayOut(folder));
  }
}

}  // namespace

size_t StudyPlan::Baseline() const {
  for (size_t v = 0; v < variants.size(); ++v)
    if (variants[v].variant.name == baseline) return v;
  Fail("the baseline \"{}\" is none of the study's variants", baseline);
}

size_t StudyPlan::BaselineOf(size_t variant) const {
  const size_t baseline_index = Baseline();
  if (within.empty()) return baseline_index;
  Json wanted = variants[baseline_index].variant.varied;
  for (const std::string& key : within) wanted[key] = variants[variant].variant.varied.at(key);
  for (size_t v = 0; v < variants.size(); ++v)
    if (variants[v].variant.varied == wanted) return v;
  Fail("within {}, the variant {} has no baseline: there is no {}", fmt::join(within, ", "),
       variants[variant].variant.name, DumpJson(wanted));
}

size_t StudyPlan::comparisons() const {
  if (within.empty()) return variants.size() - 1;
  size_t count = 0;
  for (size_t v = 0; v < variants.size(); ++v) count += BaselineOf(v) != v;
  return count;
}

uint64_t StudyPlan::Seed(size_t variant, size_t seed) const {
  const std::vector<uint64_t>& own = variants[variant].seeds;
  return own.empty() ? seeds[seed] : own[seed];
}

StudyPlan MakePlan(const StudyRequest& request) {
  NL_CHECK_EQ(request.grid.variants.size(), request.norm_implementations.size());
  StudyPlan plan{.varied_keys = request.grid.varied_keys,
                 .seeds = request.seeds.value_or(
                     std::vector<uint64_t>(std::begin(kDefaultSeeds), std::end(kDefaultSeeds))),
                 .data = request.data,
                 .machine = request.machine};
  for (size_t v = 0; v < request.grid.variants.size(); ++v)
    plan.variants.push_back({request.grid.variants[v], request.norm_implementations[v]});
  NL_CHECK(!plan.variants.empty() && !plan.seeds.empty());
  const std::vector<std::string> names = Names(plan.variants);
  plan.baseline = request.baseline.value_or(names[0]);
  if (!Contains(names, plan.baseline)) Fail("unknown baseline {}", UnknownName(plan.baseline, names));
  plan.within = request.within.value_or(std::vector<std::string>());
  RequireGroups(plan);
  plan.aa = request.aa;
  if (plan.aa) {
    TakeOwnSeeds(plan.variants, plan.seeds.size());
    plan.seeds = plan.variants[plan.Baseline()].seeds;
  }
  if (request.margin_nats) plan.margin_nats = *request.margin_nats;
  if (request.speed_margin) plan.speed_margin = *request.speed_margin;
  if (request.looks) plan.looks = *request.looks;
  plan.history = {ThisLook(plan, request)};
  return plan;
}

StudyPlan ExtendPlan(const StudyPlan& recorded, const StudyRequest& request, bool seen,
                     std::string_view folder) {
  RequireSameData(recorded, request, folder);
  RequireDeclared("--margin", recorded.margin_nats, request.margin_nats, folder);
  if (request.speed_margin)
    RequireDeclared("--speed-margin", 100 * recorded.speed_margin, std::optional(100 * *request.speed_margin),
                    folder);
  RequireDeclared("--looks", recorded.looks, request.looks, folder);
  RequireDeclared("--baseline", recorded.baseline, request.baseline, folder);
  if (recorded.aa != request.aa)
    Fail("the study in \"{}\" was declared {} --aa, and has finished cells; {}", folder,
         recorded.aa ? "with" : "without", WayOut(folder));
  if (request.within && *request.within != recorded.within)
    Fail(
        "the study in \"{}\" was declared with --within {}, and has finished cells; leave the option out, or "
        "{}",
        folder, Keys(recorded.within), WayOut(folder));

  StudyRequest completed = request;
  completed.baseline = recorded.baseline;
  completed.within = recorded.within;
  if (!request.seeds) completed.seeds = recorded.seeds;
  if (recorded.aa) {
    if (completed.seeds->size() < recorded.seeds.size())
      Fail(
          "the study in \"{}\" has {} seeds of each side, and this command asks for {}; seeds can be added "
          "to a "
          "study, not taken away; ask for {}, {}",
          folder, recorded.seeds.size(), completed.seeds->size(), recorded.seeds.size(), WayOut(folder));
    std::vector<PlannedVariant> sides = recorded.variants;
    TakeOwnSeeds(sides, completed.seeds->size());
    completed.seeds = sides[recorded.Baseline()].seeds;
  }

  // Every recorded variant and seed must be asked for again: dropping some after seeing them is choosing
  // results.
  const std::vector<std::string> names = Names(recorded.variants);
  for (const PlannedVariant& there : recorded.variants) {
    const std::string& name = there.variant.name;
    const auto same_name = [&](const Variant& variant) { return variant.name == name; };
    const auto here = std::ranges::find_if(request.grid.variants, same_name);
    if (here == request.grid.variants.end())
      Fail(
          "the study in \"{}\" has the variant {}, which this command leaves out; variants can be added to a "
          "study, "
          "not taken away; name it too, {}",
          folder, name, WayOut(folder));
    const std::vector<KeyDifference> differences =
        Differences(ToJson(there.variant.config), ToJson(here->config));
    for (const KeyDifference& difference : differences)
      if (difference.key != "seed")
        Fail("the study in \"{}\" cannot be continued with these options: {} (variant {}); {}", folder,
             difference.ToString(), name, WayOut(folder));
  }
  for (const uint64_t seed : recorded.seeds)
    if (!Contains(*completed.seeds, seed))
      Fail(
          "the study in \"{}\" has seed {}, which this command leaves out; seeds can be added to a study, "
          "not taken away; "
          "ask for it too, {}",
          folder, seed, WayOut(folder));

  StudyPlan plan = MakePlan(completed);
  if (recorded.aa) {
    for (size_t v = 0; v < plan.variants.size(); ++v) plan.variants[v].seeds = recorded.variants[v].seeds;
    TakeOwnSeeds(plan.variants, completed.seeds->size());
    plan.seeds = plan.variants[plan.Baseline()].seeds;
  }
  plan.alpha = recorded.alpha;
  plan.margin_nats = recorded.margin_nats;
  plan.speed_margin = recorded.speed_margin;
  plan.looks = recorded.looks;
  const bool grows =
      plan.variants.size() > recorded.variants.size() || plan.seeds.size() > recorded.seeds.size();
  plan.history = recorded.history;
  if (grows && !seen) plan.history.pop_back();  // nothing could be read from it
  if (grows) plan.history.push_back(ThisLook(plan, request));
  return plan;
}

Json ToJson(const StudyPlan& plan) {
  Json variants = Json::array();
  for (const PlannedVariant& planned : plan.variants) {
    Json config = ToJson(planned.variant.config);
    config.erase("seed");
    variants.push_back({{"name", planned.variant.name},
                        {"varied", planned.variant.varied},
                        {"norm_implementation", planned.norm_implementation},
                        {"seeds", planned.seeds.empty() ? Json() : Json(planned.seeds)},
                        {"parameters", planned.variant.parameters},
                        {"norm_parameters", planned.variant.norm_parameters},
                        {"config", std::move(config)}});
  }
  Json history = Json::array();
  for (const Look& look : plan.history)
    history.push_back({{"started_at", look.started_at}, {"variants", look.variants}, {"seeds", look.seeds}});
  Json order = Json::array();
  for (const GridCell& cell : CellOrder(plan.variants.size(), plan.seeds.size()))
    order.push_back({{"variant", plan.variants[cell.variant].variant.name},
                     {"seed", plan.Seed(cell.variant, cell.seed)}});

  Json json;
  json["schema_version"] = StudyPlan::kSchemaVersion;
  json["varied_keys"] = plan.varied_keys;
  json["baseline"] = plan.baseline;
  json["within"] = plan.within;
  json["aa"] = plan.aa;
  json["seeds"] = plan.seeds;
  json["alpha"] = ToJson(plan.alpha);
  json["margin_nats"] = ToJson(plan.margin_nats);
  json["speed_margin"] = ToJson(plan.speed_margin);
  json["looks"] = plan.looks;
  json["history"] = std::move(history);
  json["data"] = plan.data;
  json["machine"] = ToJson(plan.machine);
  json["variants"] = std::move(variants);
  json["order"] = std::move(order);
  return json;
}

StudyPlan StudyPlanFromJson(const Json& json, std::string_view source) {
  try {
    const int version = json.at("schema_version").get<int>();
    if (version != StudyPlan::kSchemaVersion)
      Fail("it has schema version {}; this normlab reads version {}{}", version, StudyPlan::kSchemaVersion,
           version > StudyPlan::kSchemaVersion ? ": a newer normlab wrote it, which can go on with it" : "");
    StudyPlan plan;
    plan.varied_keys = json.at("varied_keys").get<std::vector<std::string>>();
    plan.seeds = json.at("seeds").get<std::vector<uint64_t>>();
    plan.baseline = json.at("baseline").get<std::string>();
    plan.within = json.value("within", std::vector<std::string>());
    plan.aa = json.value("aa", false);
    plan.alpha = NumberFromJson(json.at("alpha"), "alpha");
    plan.margin_nats = NumberFromJson(json.at("margin_nats"), "margin_nats");
    plan.speed_margin = NumberFromJson(json.at("speed_margin"), "speed_margin");
    plan.looks = json.at("looks").get<int>();
    plan.data = json.at("data");
    plan.machine = MachineFromJson(json.at("machine"));
    if (!(plan.alpha > 0 && plan.alpha < 1)) Fail("alpha is {}", plan.alpha);
    if (!(plan.margin_nats >= 0) || !(plan.speed_margin >= 0)) Fail("a margin is below 0, or no number");
    if (plan.looks < 1) Fail("looks is {}", plan.looks);
    if (!plan.data.is_object()) Fail("data is no object");
    if (std::set(plan.seeds.begin(), plan.seeds.end()).size() != plan.seeds.size())
      Fail("a seed stands twice");
    for (const Json& entry : json.at("variants")) {
      // Not in braces: what throws there makes GCC 12 destroy the members that were left out twice.
      PlannedVariant planned;
      planned.norm_implementation = entry.at("norm_implementation").get<std::string>();
      planned.variant.name = entry.at("name").get<std::string>();
      planned.variant.varied = entry.at("varied");
      planned.variant.parameters = entry.at("parameters").get<int64_t>();
      planned.variant.norm_parameters = entry.at("norm_parameters").get<int64_t>();
      if (const Json own = entry.value("seeds", Json()); !own.is_null())
        planned.seeds = own.get<std::vector<uint64_t>>();
      Apply(planned.variant.config, entry.at("config"), planned.variant.name);
      plan.variants.push_back(std::move(planned));
    }
    for (const Json& entry : json.at("history"))
      plan.history.push_back({.variants = entry.at("variants").get<std::vector<std::string>>(),
                              .seeds = entry.at("seeds").get<std::vector<uint64_t>>(),
                              .started_at = entry.at("started_at").get<std::string>()});
    if (plan.history.empty() || plan.variants.empty() || plan.seeds.empty()) Fail("it holds no study");
    for (const PlannedVariant& planned : plan.variants)
      if (planned.seeds.size() != (plan.aa ? plan.seeds.size() : 0))
        Fail("the variant {} has {} seeds of its own", planned.variant.name, planned.seeds.size());
    RequireGroups(plan);
    return plan;
  } catch (const nlohmann::json::exception& error) {
    Fail("{} is not the record of a study: {}; choose another --out", source, error.what());
  } catch (const Error& error) {
    Fail("{} cannot be used: {}; choose another --out", source, error.what());
  }
}

}  // namespace normlab
