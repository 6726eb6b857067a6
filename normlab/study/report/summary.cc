#include "normlab/study/report/summary.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>

#include "normlab/base/error.h"
#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/study/wording.h"

namespace normlab {
namespace {

// The keys that must be set, the same for all, so that defaults and varied keys give the variants of the
// plan; nothing where no such set exists.
std::optional<Json> SharedKeys(const StudyPlan& plan) {
  Json shared = Json::object();
  const auto missing = [&](const PlannedVariant& planned) {
    TrainConfig made;
    for (const auto& [key, value] : shared.items()) Set(made, key, value);
    for (const auto& [key, value] : planned.variant.varied.items()) Set(made, key, value);
    std::vector<KeyDifference> differences = Differences(ToJson(made), ToJson(planned.variant.config));
    std::erase_if(differences, [](const KeyDifference& difference) { return difference.key == "seed"; });
    return differences;
  };
  try {
    // One at a time: setting batch may settle micro_batch too.
    for (auto left = missing(plan.variants.front()); !left.empty(); left = missing(plan.variants.front())) {
      if (shared.contains(left.front().key)) return std::nullopt;
      shared[left.front().key] = left.front().asked;
    }
    for (const PlannedVariant& planned : plan.variants)
      if (!missing(planned).empty()) return std::nullopt;
  } catch (const Error&) {  // keys that only fit together
    return std::nullopt;
  }
  return shared;
}

std::string ValueText(const Json& value) {
  return value.is_string() ? value.get<std::string>() : DumpJson(value);
}

}  // namespace

std::vector<std::string> Method(const StudyResults& results) {
  const StudyPlan& plan = results.plan;
  const TrainConfig& config = plan.variants[plan.Baseline()].variant.config;
  std::vector<std::string> text;
  text.push_back(fmt::format(
      "{} ({}) were trained from scratch with {} ({}), {} each, on {}. The test loss is the mean "
      "cross-entropy "
      "in nats over up to {} held-out windows at the end of the text ({:g}% of it), which no run trains on.",
      Counted(plan.variants.size(), "variant"), Varied(plan), Counted(plan.seeds.size(), "seed"),
      SeedsText(plan), StepsText(plan), DataText(plan), FormatCount(config.held_out_windows),
      100 * config.held_out_fraction));
  text.push_back(
      std::string(plan.aa
                      ? "This is an A/A study: one variant against itself, with other seeds, pair by pair. A "
                        "seed sets the initial weights and the order of the data. "
                      : "A seed sets the initial weights and the order of the data, and both are the same "
                        "for every variant: a variant is compared with the baseline seed by seed. ") +
      "Seeds do not vary the text, its held-out part, "
      "the "
      "learning rate or the machine, so nothing is claimed beyond those.");
  text.push_back(fmt::format(
      "Differences of losses carry paired t intervals that hold together for all variants and the declared "
      "looks at the data: {:g}% for the study as a whole. \"Lower\" and \"higher\" need an interval without "
      "0. \"Equivalent\" means smaller than a margin that was stated before the first run ({:g} nats; {:g}% "
      "of time), not zero. \"Undecided\" is no evidence of sameness. Runs that diverge are an outcome of "
      "their own and are never averaged.",
      100 * (1 - plan.alpha), plan.margin_nats, 100 * plan.speed_margin));
  text.push_back(
      fmt::format("Looks declared: {}; this is look {}.{} The seeds and margins were written to study.json "
                  "before the first run.",
                  plan.looks, plan.look(),
                  plan.look() > plan.looks ? " It is exploratory: its error rate is not kept." : ""));
  return text;
}

std::string ReproducingCommand(const StudyPlan& plan, const std::string& out) {
  // The grid: every varied key with its values in their order; the first key varies slowest.
  std::vector<VariedKey> keys;
  size_t combinations = 1;
  for (const std::string& key : plan.varied_keys) {
    VariedKey varied{.key = key};
    for (const PlannedVariant& planned : plan.variants) {
      const Json value = planned.variant.varied.value(key, Json());
      if (std::ranges::find(varied.values, value) == varied.values.end()) varied.values.push_back(value);
    }
    combinations *= varied.values.size();
    keys.push_back(std::move(varied));
  }
  if (combinations != (plan.aa ? 1 : plan.variants.size())) return "";

  std::string command = "normlab compare";
  const auto option = [&](const std::string& name, const std::string& value) {
    command += fmt::format(" \\\n  {} {}", name, ShellQuoted(value));
  };
  for (const Json& file : plan.data.value("files", Json::array()))
    option("--data", file.value("path", std::string("?")));
  option("--out", out);
  for (const VariedKey& key : keys) {
    std::string values;
    bool simple = true;
    for (const Json& value : key.values) {
      const std::string text = ValueText(value);
      simple = simple && !text.empty() && text.find_first_of(", []\"") == std::string::npos;
      values += (values.empty() ? "" : ",") + text;
    }
    if (!simple) values = DumpJson(Json(key.values));
    option("--vary", key.key + "=" + values);
  }

  if (plan.aa && plan.look() > 1) return "";  // each side got its seeds in steps
  const std::optional<Json> shared = SharedKeys(plan);
  if (!shared) return "";
  for (const auto& [key, value] : shared->items()) option("--set", key + "=" + DumpJson(value));
  if (plan.aa) {
    command += " \\\n  --aa";
    option("--seeds", fmt::format("{}", plan.seeds.size()));
  } else {
    option("--seed-list", fmt::format("{}", fmt::join(plan.seeds, ",")));
  }
  if (!plan.within.empty()) option("--within", fmt::format("{}", fmt::join(plan.within, ",")));
  option("--baseline", plan.baseline);
  option("--margin", fmt::format("{}", plan.margin_nats));
  option("--speed-margin", fmt::format("{}", 100 * plan.speed_margin));
  option("--looks", fmt::format("{}", plan.looks));
  if (plan.machine.threads > 0) option("--threads", fmt::format("{}", plan.machine.threads));
  return command;
}

std::string ShellQuoted(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=,:+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace normlab
