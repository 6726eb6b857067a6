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

// "a", "a and b", "a, b and c"
std::string List(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

// Variants of which the same can be said, with the size of each difference.
struct Group {
  std::vector<std::string> names, sizes;

  void Add(const std::string& name, const std::string& size) {
    names.push_back(Printable(name));
    sizes.push_back(size);
  }
  bool empty() const { return names.empty(); }
  // The verb that goes with the names: "reaches", "reach".
  std::string Say(const std::string& one, const std::string& many) const {
    return List(names) + " " + (names.size() == 1 ? one : many);
  }
};

class Sentence {
 public:
  void Clause(const std::string& text) { text_ += (text_.empty() ? "" : "; ") + text; }
  std::string Text() const { return text_.empty() ? text_ : text_ + "."; }

 private:
  std::string text_;
};

const char* SeedsWord(size_t n) { return n == 1 ? "seed" : "seeds"; }

// What can be said of one metric, variant by variant.
struct Groups {
  Group better, worse, equivalent, identical, undecided, diverged, none;

  void Add(stats::Verdict verdict, const std::string& name, const std::string& size) {
    switch (verdict) {
      case stats::Verdict::kBetter:
        return better.Add(name, size);
      case stats::Verdict::kWorse:
        return worse.Add(name, size);
      case stats::Verdict::kEquivalent:
        return equivalent.Add(name, size);
      case stats::Verdict::kIdentical:
        return identical.Add(name, size);
      case stats::Verdict::kUndecided:
        return undecided.Add(name, size);
      case stats::Verdict::kDiverged:
        return diverged.Add(name, size);
      case stats::Verdict::kNone:
        return none.Add(name, size);
    }
  }
};

std::string Quoted(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=,:+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

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

std::string LossSentence(const StudyResults& results) {
  const StudyPlan& plan = results.plan;
  const Counts& counts = results.counts;
  if (!counts.complete())
    return fmt::format("No verdict yet: {} of {} runs have ended.", counts.done + counts.diverged,
                       counts.planned);
  Groups groups;
  for (size_t v = 0; v < results.variants.size(); ++v) {
    const MetricComparison* loss = results.Find(v, Metric::kTestLoss);
    if (loss == nullptr) continue;
    const stats::Comparison& c = loss->result;
    if (c.worse_by_divergence)
      groups.diverged.Add(results.variants[v].name,
                          fmt::format("{} of {} runs", c.diverged_variant, c.runs_variant));
    else
      groups.Add(c.verdict, results.variants[v].name,
                 c.difference ? FormatLossDifference(*c.difference) : std::string(kNothing));
  }
  const std::string baseline = Printable(plan.baseline);
  const auto sizes = [](const Group& group) { return fmt::format(" ({} nats)", List(group.sizes)); };
  Sentence sentence;
  if (const Group& g = groups.better; !g.empty())
    sentence.Clause(g.Say("ends", "end") + " with a lower loss than " + baseline + sizes(g));
  if (const Group& g = groups.worse; !g.empty())
    sentence.Clause(g.Say("ends", "end") + " with a higher loss than " + baseline + sizes(g));
  if (const Group& g = groups.diverged; !g.empty()) sentence.Clause(g.Say("diverges", "diverge"));
  if (const Group& g = groups.equivalent; !g.empty())
    sentence.Clause(g.Say("reaches", "reach") +
                    fmt::format(" the loss of {} within {:g} nats, the margin stated beforehand", baseline,
                                plan.margin_nats));
  if (const Group& g = groups.identical; !g.empty())
    sentence.Clause(g.Say("has", "have") + " exactly the loss of " + baseline);
  if (const Group& g = groups.undecided; !g.empty())
    sentence.Clause(fmt::format("{} {} {} between {} and {}", plan.seeds.size(), SeedsWord(plan.seeds.size()),
                                plan.seeds.size() == 1 ? "does not decide" : "do not decide", List(g.names),
                                baseline));
  if (const Group& g = groups.none; !g.empty())
    sentence.Clause(plan.seeds.size() == 1
                        ? "one seed cannot tell a difference from chance"
                        : fmt::format("no seed ended in both {} and {}", List(g.names), baseline));
  return sentence.Text();
}

std::string SpeedSentence(const StudyResults& results, const Json& duel) {
  const StudyPlan& plan = results.plan;
  Groups groups;
  bool of_duel = false;
  if (duel.is_object())
    for (const Json& variant : duel.value("variants", Json::array())) {
      const Json verdict = variant.value("verdict", Json());
      const auto ratio = OptionalNumberFromJson(variant.value("ratio", Json()), "ratio");
      if (!verdict.is_string() || !ratio) continue;  // the baseline
      of_duel = true;
      const auto name = variant.value("name", std::string("?"));
      const auto word = verdict.get<std::string>();
      for (const stats::Verdict one :
           {stats::Verdict::kBetter, stats::Verdict::kWorse, stats::Verdict::kEquivalent,
            stats::Verdict::kIdentical, stats::Verdict::kUndecided})
        if (word == stats::VerdictName(one)) groups.Add(one, name, FormatChange(*ratio));
    }
  if (!of_duel) {
    if (!results.counts.complete()) return "";
    for (size_t v = 0; v < results.variants.size(); ++v)
      if (const MetricComparison* time = results.Find(v, Metric::kTime))
        groups.Add(time->result.verdict, results.variants[v].name,
                   time->result.ratio ? FormatChange(*time->result.ratio) : std::string(kNothing));
  }
  const std::string baseline = Printable(plan.baseline);
  const auto sizes = [](const Group& group) { return fmt::format(" ({})", List(group.sizes)); };
  const std::string what = of_duel ? " time a step than " : " time to train than ";
  Sentence sentence;
  if (const Group& g = groups.better; !g.empty())
    sentence.Clause(g.Say("takes", "take") + " less" + what + baseline + sizes(g));
  if (const Group& g = groups.worse; !g.empty())
    sentence.Clause(g.Say("takes", "take") + " more" + what + baseline + sizes(g));
  for (const Group* g : {&groups.equivalent, &groups.identical})
    if (!g->empty())
      sentence.Clause(g->Say("takes", "take") +
                      fmt::format(" the time of {} within {:g}%", baseline, 100 * plan.speed_margin));
  if (const Group& g = groups.undecided; !g.empty())
    sentence.Clause(fmt::format("undecided on time: {}{}", List(g.names), sizes(g)));
  return sentence.Text();
}

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
      "A seed sets the initial weights and the order of the data, and both are the same for every variant: a "
      "variant is compared with the baseline seed by seed. Seeds do not vary the text, its held-out part, "
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
  if (combinations != plan.variants.size()) return "";

  std::string command = "normlab compare";
  const auto option = [&](const std::string& name, const std::string& value) {
    command += fmt::format(" \\\n  {} {}", name, Quoted(value));
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

  const std::optional<Json> shared = SharedKeys(plan);
  if (!shared) return "";
  for (const auto& [key, value] : shared->items()) option("--set", key + "=" + DumpJson(value));
  std::string seeds;
  for (const uint64_t seed : plan.seeds) seeds += fmt::format("{}{}", seeds.empty() ? "" : ",", seed);
  option("--seed-list", seeds);
  option("--baseline", plan.baseline);
  option("--margin", fmt::format("{}", plan.margin_nats));
  option("--speed-margin", fmt::format("{}", 100 * plan.speed_margin));
  option("--looks", fmt::format("{}", plan.looks));
  if (plan.machine.threads > 0) option("--threads", fmt::format("{}", plan.machine.threads));
  return command;
}

}  // namespace normlab
