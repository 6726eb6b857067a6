// normlab list: what there is to choose from, and why a fast path is refused.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "normlab/apps/command.h"
#include "normlab/apps/run_options.h"
#include "normlab/base/error.h"
#include "normlab/base/isa.h"
#include "normlab/base/json.h"
#include "normlab/base/nearest.h"
#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/model/parameters.h"
#include "normlab/norms/norm_list.h"
#include "normlab/norms/norm_type.h"
#include "normlab/train/config.h"
#include "normlab/train/machine.h"

namespace normlab::apps {
namespace {

constexpr size_t kColumns = 80;

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab list                  everything\n"
    "  normlab list norms            formulas, sources, and the names for --norms\n"
    "  normlab list implementations  who can compute each norm here, or why not\n"
    "  normlab list keys             what --set and --vary can change\n"
    "  normlab list devices --json   for programs";

std::string Entry(std::string_view name, const std::string& text) {
  std::string head = fmt::format("  {:<20}  ", name);
  return Wrap(text, kColumns, head, std::string(24, ' '));
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// The values of norm_type that mean this norm and run on the device.
std::vector<std::string> NormTypesOf(const NormInfo& info, const Device& device) {
  std::vector<std::string> names = {std::string(info.name)};
  if (info.identity) return names;  // every implementation of the identity is the same
  for (const NormImplementationStatus& status : device.NormImplementations(
           {.kind = info.kind, .eps = info.default_eps}, Presets()[0].config.model.emb_dim))
    if (!status.refusal) names.push_back(Name(NormType{info.kind, status.implementation}));
  return names;
}

// ---- norms

Json NormsJson() {
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = 1});
  Json list = Json::array();
  for (const NormInfo& info : AllNorms::kInfos)
    list.push_back({{"name", info.name},
                    {"formula", info.formula},
                    {"source", info.source},
                    {"has_gain", info.has_gain},
                    {"has_bias", info.has_bias},
                    {"has_alpha", info.has_alpha},
                    {"default_eps", info.uses_eps ? ToJson(info.default_eps) : Json()},
                    {"norm_types", NormTypesOf(info, *device)}});
  return list;
}

std::string NormsText(const Json& list) {
  std::string text;
  for (const Json& norm : list) {
    text += Entry(norm["name"].get<std::string>(), norm["formula"].get<std::string>());
    const std::string source = norm["source"].get<std::string>();
    if (source != "-") text += Entry("", source);
    std::vector<std::string> learned;
    for (const char* parameter : {"gain", "bias", "alpha"})
      if (norm[std::string("has_") + parameter].get<bool>()) learned.push_back(parameter);
    text += Entry("", learned.empty() ? "nothing is learned" : "learned: " + Joined(learned));
    text += Entry("", "norm_type: " + Joined(norm["norm_types"].get<std::vector<std::string>>()));
  }
  return text + Wrap(
                    "Without a prefix a name means the first that runs here (`normlab list "
                    "implementations`). pytorch_layernorm and "
                    "pytorch_rmsnorm are accepted "
                    "and mean fused_layernorm and fused_rmsnorm.",
                    kColumns, "  ", "  ");
}

// ---- implementations

// Widths of the presets, where a refusal may depend on the width.
std::vector<int64_t> Widths() {
  std::set<int64_t> widths;
  for (const Preset& preset : Presets()) widths.insert(preset.config.model.emb_dim);
  return {widths.begin(), widths.end()};
}

Json ImplementationsJson() {
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = 1});
  const auto forced = ForcedCpuNorm();
  Json list = Json::array();
  for (const NormInfo& info : AllNorms::kInfos)
    for (const int64_t width : Widths())
      for (const NormImplementationStatus& status :
           device->NormImplementations({.kind = info.kind, .eps = info.default_eps}, width))
        list.push_back({{"device", device->name()},
                        {"norm", info.name},
                        {"width", width},
                        {"implementation", status.name},
                        {"refusal", status.refusal ? Json(*status.refusal) : Json()},
                        {"forced", forced == status.implementation}});
  return list;
}

// One line an implementation; widths are named only where they differ.
std::string ImplementationsText(const Json& list) {
  std::string text;
  const auto state = [](const Json& entry) {
    return entry["refusal"].is_null() ? std::string("ready")
                                      : "refused: " + entry["refusal"].get<std::string>();
  };
  std::set<std::pair<std::string, std::string>> seen;
  for (const Json& entry : list) {
    const auto norm = entry["norm"].get<std::string>(),
               implementation = entry["implementation"].get<std::string>();
    if (!seen.emplace(norm, implementation).second) continue;
    std::string states;
    bool same = true;
    for (const Json& other : list) {
      if (other["norm"] != norm || other["implementation"] != implementation) continue;
      same = same && other["refusal"] == entry["refusal"];
      states += fmt::format("{}width {}: {}", states.empty() ? "" : "; ", other["width"].get<int64_t>(),
                            state(other));
    }
    text += Entry(norm, fmt::format("{:<12}{}", implementation, same ? state(entry) : states));
  }
  text +=
      Wrap("In the order in which a name without a prefix tries them, on this CPU.", kColumns, "  ", "  ");
  if (const auto forced = ForcedCpuNorm())
    text += Wrap(fmt::format("NORMLAB_FORCE_NORM={} is set: a name without a prefix means {} now.",
                             Name(*forced), Name(*forced)),
                 kColumns, "  ", "  ");
  return text;
}

// ---- presets

Json PresetsJson() {
  Json list = Json::array();
  for (const Preset& preset : Presets()) {
    const ParameterList parameters(preset.config.model, preset.config.init);
    list.push_back({{"name", preset.name},
                    {"description", preset.description},
                    {"parameters", parameters.count()},
                    {"norm_parameters", parameters.norm_count()},
                    {"config", ToJson(preset.config)}});
  }
  return list;
}

std::string PresetsText(const Json& list) {
  std::string text;
  for (const Json& preset : list) {
    const Json& config = preset["config"];
    const auto number = [&](const char* key) { return FormatCount(config[key].get<int64_t>()); };
    text += Entry(preset["name"].get<std::string>(), preset["description"].get<std::string>());
    text += Entry(
        "", fmt::format(
                "{} parameters, {} of them in norms ({}); vocabulary {}, context {}, width {}, {} layers, "
                "{} heads; {} steps of {} sequences ({} at a time), learning rate {:g}",
                FormatCount(preset["parameters"].get<int64_t>()),
                FormatCount(preset["norm_parameters"].get<int64_t>()), config["norm_type"].get<std::string>(),
                number("vocab_size"), number("context_length"), number("emb_dim"), number("n_layers"),
                number("n_heads"), number("steps"), number("batch"), number("micro_batch"),
                config["learning_rate"].get<double>()));
  }
  return text;
}

// ---- devices

Json DevicesJson() {
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = DefaultThreads()});
  Json json = ToJson(DescribeMachine(*device));
  const ThreadLimits limits = ReadThreadLimits();
  json["affinity_cpus"] = limits.affinity;
  json["cgroup_quota_cpus"] = ToJson(limits.cgroup_quota);
  json["supported_isas"] = SupportedIsas();
  const auto memory = MemoryForRuns();
  json["available_bytes"] = memory ? Json(memory->bytes) : Json();
  return Json::array({json});
}

std::string DevicesText(const Json& list) {
  std::string text;
  for (const Json& device : list) {
    text += Entry(device["device"].get<std::string>(), device["cpu"].get<std::string>());
    text += Entry("", fmt::format("instruction set {} in use, of {}", device["isa"].get<std::string>(),
                                  Joined(device["supported_isas"].get<std::vector<std::string>>())));
    const Json& quota = device["cgroup_quota_cpus"];
    text += Entry(
        "",
        fmt::format("{} by default: the affinity allows {}, {}",
                    Counted(device["threads"].get<size_t>(), "thread"), device["affinity_cpus"].get<int>(),
                    quota.is_null() ? "no cgroup sets a quota"
                                    : fmt::format("the cgroup's quota is {:g} CPUs", quota.get<double>())));
    text += Entry("", "threads of " + device["thread_runtime"].get<std::string>());
    if (!device["available_bytes"].is_null())
      text +=
          Entry("", fmt::format("{} of memory available",
                                FormatBytes(static_cast<double>(device["available_bytes"].get<uint64_t>()))));
    text += Entry("", fmt::format("oneDNN {}; {}", device["onednn"].get<std::string>(),
                                  device["build"].get<std::string>()));
  }
  return text + Wrap("NORMLAB_ISA=avx2 normlab ... uses nothing wider than avx2.", kColumns, "  ", "  ");
}

// ---- keys

Json KeysJson() {
  Json list = Json::array();
  for (const KeyDescription& key : KeyDescriptions(Presets()[0].config))
    list.push_back({{"name", key.name},
                    {"description", key.description},
                    {"allowed", key.allowed},
                    {Presets()[0].name, key.value}});
  return list;
}

std::string KeysText(const Json& list) {
  std::string text;
  for (const Json& key : list)
    text += Entry(key["name"].get<std::string>(),
                  fmt::format("{} [{}]; {}", key["description"].get<std::string>(),
                              key["tiny"].get<std::string>(), key["allowed"].get<std::string>()));
  return text + Wrap(
                    "[values of the preset tiny]. Set them with --set KEY=VALUE or in a --config FILE; vary "
                    "them with --vary.",
                    kColumns, "  ", "  ");
}

struct Topic {
  std::string name, title;
  std::function<Json()> json;
  std::function<std::string(const Json&)> text;
};

const std::vector<Topic>& Topics() {
  static const std::vector<Topic> topics = {
      {"norms", "Norms", NormsJson, NormsText},
      {"implementations", "Implementations", ImplementationsJson, ImplementationsText},
      {"presets", "Presets", PresetsJson, PresetsText},
      {"devices", "Devices", DevicesJson, DevicesText},
      {"keys", "Configuration keys", KeysJson, KeysText}};
  return topics;
}

int List(const std::string& wanted, bool as_json) {
  std::vector<std::string> names;
  for (const Topic& topic : Topics()) names.push_back(topic.name);
  Json json = Json::object();
  std::string text;
  for (const Topic& topic : Topics()) {
    if (!wanted.empty() && wanted != topic.name) continue;
    const Json list = topic.json();
    text += fmt::format("{}{}:\n{}", text.empty() ? "" : "\n", topic.title, topic.text(list));
    json[topic.name] = list;
  }
  if (text.empty()) throw UsageError("unknown topic " + UnknownName(wanted, names));
  Print(as_json ? DumpJson(json, 2) + "\n" : text);
  return kExitGood;
}

}  // namespace

Command AddList(CLI::App& program) {
  struct Arguments {
    std::string topic;
    bool json = false;
  };
  CLI::App* parser =
      program.add_subcommand("list", "Show norms, implementations, presets, devices and keys.");
  auto arguments = std::make_shared<Arguments>();
  parser
      ->add_option("topic", arguments->topic,
                   "norms, implementations, presets, devices or keys; all if left out")
      ->type_name("TOPIC");
  parser->add_flag("--json", arguments->json, "one JSON object, for programs");
  parser->footer(kFooter);
  return {parser, [arguments](const Environment&) { return List(arguments->topic, arguments->json); }};
}

}  // namespace normlab::apps
