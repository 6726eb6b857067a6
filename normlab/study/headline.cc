#include "normlab/study/headline.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "normlab/base/text.h"
#include "normlab/stats/explain.h"

namespace normlab {
namespace {

using Group = std::vector<const MetricComparison*>;
using stats::Verdict;

// More than so many variants with one verdict are counted, and only the first of them named. Intervals stand
// with two at the most; a table follows.
constexpr size_t kMostNamed = 4, kNamedOfMany = 3, kMostIntervals = 2;

std::string Number(double value) { return fmt::format("{:.3g}", value); }

// "a", "a and b", "a, b and c"
std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

// What is said of a difference: "0.018 nats", or "12.3%" of time less.
struct Amount {
  double value, low, high;
};
Amount AmountOf(const MetricComparison& comparison) {
  const stats::Comparison& c = comparison.result;
  // Losses: the distance from the baseline. Times: the share that is saved, or spent on top.
  const auto distance = [&](double x) { return comparison.rule.log_ratio ? 100 * (x - 1) : x; };
  const double value = distance(comparison.rule.log_ratio ? *c.ratio : *c.difference);
  const double low = distance(*c.ci_low), high = distance(*c.ci_high);
  if (value < 0) return {-value, -high, -low};
  return {value, low, high};
}

class Sentence {
 public:
  // Of the variants that are compared with one baseline.
  Sentence(const StudyResults& results, Metric metric, size_t baseline)
      : results_(results), time_(metric == Metric::kTime), base_(Printable(results.variants[baseline].name)) {
    for (const MetricComparison& comparison : results.comparisons)
      if (comparison.metric == metric && comparison.baseline == baseline) all_.push_back(&comparison);
  }

  // Empty where nothing was judged.
  std::string ToString() {
    Differences(Verdict::kBetter);
    Equivalent();
    Identical();
    Differences(Verdict::kWorse);
    MoreDiverged();
    Undecided();
    if (!time_) Divergence();
    if (!time_) NoVerdict();
    if (clauses_.empty()) return "";
    std::string text;
    for (const std::string& clause : clauses_) text += (text.empty() ? "" : "; ") + clause;
    return text + Count() + ".";
  }

 private:
  Group With(auto&& wanted) const {
    Group group;
    for (const MetricComparison* comparison : all_)
      if (wanted(*comparison)) group.push_back(comparison);
    return group;
  }
  Group With(Verdict verdict) const {
    return With([&](const MetricComparison& comparison) {
      return comparison.result.verdict == verdict && !comparison.result.worse_by_divergence;
    });
  }

  std::string NameOf(const MetricComparison& comparison) const {
    return Printable(results_.variants[comparison.variant].name);
  }
  std::string Names(const Group& group) const {
    std::vector<std::string> names;
    const size_t shown = group.size() > kMostNamed ? kNamedOfMany : group.size();
    for (size_t i = 0; i < shown; ++i) names.push_back(NameOf(*group[i]));
    if (shown < group.size()) names.push_back(fmt::format("{} others", group.size() - shown));
    return Joined(names);
  }

  std::string_view What() const { return time_ ? "training time" : "test loss"; }
  std::string Unit() const { return time_ ? "%" : " nats"; }
  std::string Level() const { return Number(100 * (1 - results_.plan.alpha)) + "%"; }

  // "0.276 nats (simultaneous 95% interval 0.0993 to 0.452)"; of three "0.1 nats, 0.2 nats and 0.3 nats"; of
  // many "0.1 to 0.3 nats".
  std::string Amounts(const Group& group) const {
    std::vector<std::string> values, intervals;
    double least = AmountOf(*group[0]).value, most = least;
    for (const MetricComparison* comparison : group) {
      const Amount amount = AmountOf(*comparison);
      values.push_back(Number(amount.value) + Unit());
      const std::string percent = time_ ? "%" : "";
      intervals.push_back(
          fmt::format("{}{} to {}{}", Number(amount.low), percent, Number(amount.high), percent));
      least = std::min(least, amount.value);
      most = std::max(most, amount.value);
    }
    if (group.size() > kMostNamed) return Number(least) + " to " + Number(most) + Unit();
    if (group.size() > kMostIntervals) return Joined(values);
    return fmt::format("{} (simultaneous {} interval{} {})", Joined(values), Level(),
                       group.size() == 1 ? "" : "s", Joined(intervals));
  }

  void Differences(Verdict verdict) {
    const Group group = With(verdict);
    if (group.empty()) return;
    const bool many = group.size() > 1;
    const std::string amounts = Amounts(group);
    if (time_) {
      Say("{} {} {} training time than {}, by {}", Names(group), many ? "take" : "takes",
          verdict == Verdict::kBetter ? "less" : "more", base_, amounts);
    } else {
      Say("{} {} a {} test loss than {}, by {}", Names(group), many ? "reach" : "reaches",
          verdict == Verdict::kBetter ? "lower" : "higher", base_, amounts);
    }
  }

  void Equivalent() {
    const Group group = With(Verdict::kEquivalent);
    if (group.empty()) return;
    const double margin = group[0]->rule.margin;
    Say("{} {} the {} of {} within {}", Names(group),
        time_ ? (group.size() > 1 ? "take" : "takes") : (group.size() > 1 ? "reach" : "reaches"), What(),
        base_, Number(time_ ? 100 * margin : margin) + Unit());
  }

  void Identical() {
    const Group group = With(Verdict::kIdentical);
    if (group.empty()) return;
    Say("{} {} exactly the {} of {}, seed by seed", Names(group), group.size() > 1 ? "have" : "has",
        time_ ? "training times" : "test losses", base_);
  }

  void MoreDiverged() {
    if (time_) return;
    for (const MetricComparison* comparison :
         With([](const MetricComparison& c) { return c.result.worse_by_divergence; })) {
      const stats::Comparison& c = comparison->result;
      Say("{} diverges more often than {} ({} of {} runs against {} of {})", NameOf(*comparison), base_,
          c.diverged_variant, c.runs_variant, c.diverged_baseline, c.runs_baseline);
    }
    const Group always = With(Verdict::kDiverged);
    if (always.empty()) return;
    Say("{} diverged in all runs, {} in none", Names(always), base_);
  }

  void Undecided() {
    Group planned;
    for (const MetricComparison* comparison : With(Verdict::kUndecided)) {
      const stats::Comparison& c = comparison->result;
      if (time_) {
        SayPlain("whether the training time of {} differs from that of {} is undecided{}",
                 NameOf(*comparison), base_,
                 c.ci_low ? fmt::format(" (simultaneous {} interval of the ratio {:.4g} to {:.4g})", Level(),
                                        *c.ci_low, *c.ci_high)
                          : ": " + c.reason);
      } else if (!stats::SeedsThatDecide(c, comparison->rule).empty()) {
        planned.push_back(comparison);
      } else {
        SayPlain("whether the test loss of {} differs from that of {} is undecided: {}", NameOf(*comparison),
                 base_, c.reason);
      }
    }
    if (planned.empty()) return;
    // The plan of the one that needs most is enough for all.
    const auto most = [](const MetricComparison* comparison) {
      return comparison->result.seeds_needed_high.value_or(std::numeric_limits<int>::max());
    };
    const MetricComparison& slowest = **std::ranges::max_element(planned, {}, most);
    SayPlain(
        "whether the test loss{} of {} {} from that of {} is undecided ({} would decide in 80% of studies)",
        planned.size() > 1 ? "es" : "", Names(planned), planned.size() > 1 ? "differ" : "differs", base_,
        stats::SeedsThatDecide(slowest.result, slowest.rule));
  }

  // Runs that diverged, where no verdict above speaks of them.
  void Divergence() {
    const auto diverged = [&](std::string_view name, size_t some, size_t all) {
      if (some > 0) Say("{} of {} runs of {} diverged", some, all, name);
    };
    for (const MetricComparison* comparison : all_) {
      const stats::Comparison& c = comparison->result;
      if (c.verdict != Verdict::kDiverged && !c.worse_by_divergence)
        diverged(NameOf(*comparison), c.diverged_variant, c.runs_variant);
    }
    const bool said = std::ranges::any_of(all_, [](auto* c) { return c->result.worse_by_divergence; });
    if (!said) diverged(base_, all_[0]->result.diverged_baseline, all_[0]->result.runs_baseline);
  }

  void NoVerdict() {
    const Group one =
        With([](const MetricComparison& c) { return c.result.verdict == Verdict::kNone && c.result.n == 1; });
    if (!one.empty())
      SayPlain(
          "one seed cannot tell a difference from chance: no verdict on {}; a verdict needs 3 seeds or more",
          one.size() == all_.size() && one.size() > 1 ? "any variant" : Names(one));
    const Group none =
        With([](const MetricComparison& c) { return c.result.verdict == Verdict::kNone && c.result.n == 0; });
    if (!none.empty())
      SayPlain("no seed finished in both {} and {}",
               none.size() == all_.size() && none.size() > 1 ? "a variant" : Names(none), base_);
  }

  // "; paired by seed, n = 5": the pairs behind the verdicts.
  std::string Count() const {
    size_t least = SIZE_MAX, most = 0;
    for (const MetricComparison* comparison : all_) {
      const stats::Comparison& c = comparison->result;
      if (c.verdict == Verdict::kNone || c.verdict == Verdict::kDiverged || c.worse_by_divergence) continue;
      least = std::min(least, c.n);
      most = std::max(most, c.n);
    }
    if (most == 0 || time_) return "";
    return fmt::format("; paired by {}, n = {}", results_.plan.aa ? "position, with different seeds" : "seed",
                       least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most));
  }

  // A clause that begins with a word of ours, which opens a sentence with a capital letter; names are left
  // as they are.
  template <class... Args>
  void SayPlain(fmt::format_string<Args...> format, Args&&... args) {
    std::string clause = fmt::format(format, std::forward<Args>(args)...);
    if (clauses_.empty()) clause[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(clause[0])));
    clauses_.push_back(std::move(clause));
  }
  template <class... Args>
  void Say(fmt::format_string<Args...> format, Args&&... args) {
    clauses_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const StudyResults& results_;
  bool time_;
  std::string base_;
  Group all_;
  std::vector<std::string> clauses_;
};

// The sentences on one metric, one for each baseline.
std::string Sentences(const StudyResults& results, Metric metric) {
  std::vector<size_t> baselines;
  for (const MetricComparison& comparison : results.comparisons)
    if (std::ranges::find(baselines, comparison.baseline) == baselines.end())
      baselines.push_back(comparison.baseline);
  std::string text;
  for (const size_t baseline : baselines) {
    const std::string sentence = Sentence(results, metric, baseline).ToString();
    if (!sentence.empty()) text += (text.empty() ? "" : " ") + sentence;
  }
  return text;
}

std::string ExploratoryLabel(const StudyPlan& plan) {
  if (plan.look() <= plan.looks) return "";
  return fmt::format("Exploratory (look {}, where {} {} declared): ", plan.look(), plan.looks,
                     plan.looks == 1 ? "was" : "were");
}

}  // namespace

std::string LossHeadline(const StudyResults& results) {
  const std::string text = Sentences(results, Metric::kTestLoss);
  if (text.empty()) return "";
  std::string label = ExploratoryLabel(results.plan);
  if (!results.counts.complete())
    label += fmt::format("Interim, {} of {} runs have ended, and not yet the verdict of this study: ",
                         results.counts.done + results.counts.diverged, results.counts.planned);
  return label + text;
}

std::string SpeedHeadline(const StudyResults& results) {
  const std::string text = Sentences(results, Metric::kTime);
  return text.empty() ? "" : ExploratoryLabel(results.plan) + text;
}

std::string Headline(const StudyResults& results) {
  const std::string loss = LossHeadline(results), speed = SpeedHeadline(results);
  return loss + (loss.empty() || speed.empty() ? "" : " ") + speed;
}

}  // namespace normlab
