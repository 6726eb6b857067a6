#include "normlab/apps/bench_norm_report.h"
#include "normlab/base/text.h"

#include <algorithm>
#include <map>
#include <regex>
#include <utility>

#include <fmt/format.h>

#include "normlab/norms/norm_list.h"
#include "normlab/study/text_table.h"

namespace normlab::apps {
namespace {

constexpr size_t kColumns = 80;

std::string Microseconds(double seconds) {
  const double us = 1e6 * seconds;
  return us < 10 ? fmt::format("{:.3f}", us) : us < 1000 ? fmt::format("{:.1f}", us) : Rounded(us);
}

std::string Group(const NormCase& c) {
  return fmt::format("{} {} {}, {}", InfoOf(c.norm.kind).name, Name(c.op), Name(c.types),
                     c.cold ? "cold" : "warm");
}

// A share of the stream's speed; beside memcpy the inverse reads better.
std::string Share(double share, bool decode) {
  if (!decode) return fmt::format("{:.2f}", share);
  return 1 / share < 9.95 ? fmt::format("{:.1f}", 1 / share) : fmt::format("{:.0f}", 1 / share);
}

std::string Interval(const NormContender& contender, bool decode) {
  if (!contender.share_low) return "-";
  const std::string low = Share(*contender.share_low, decode), high = Share(*contender.share_high, decode);
  return decode ? fmt::format("[{},{}]", high, low) : fmt::format("[{},{}]", low, high);
}

std::string GroupText(const std::string& title, const std::vector<const NormCaseResult*>& results) {
  TextTable table({{""}, {"us"}, {"GB/s"}, {"share"}, {"95%"}, {"call us"}, {"limited by", true}});
  size_t rows = 0;
  for (const NormCaseResult* result : results) {
    const NormCase& c = result->norm_case;
    for (const NormContender& contender : result->contenders) {
      if (contender.times.blocks == 0) continue;
      const bool yardstick = !contender.implementation;
      const std::string share = !contender.share ? "-"
                                : c.decode()     ? Share(*contender.share, true) + "x"
                                                 : Share(*contender.share, false);
      table.AddRow({fmt::format("{} {}", Name(c.shape), contender.name),
                    Microseconds(contender.times.median_s), fmt::format("{:.1f}", contender.gb_per_s),
                    yardstick ? "" : share, yardstick ? "" : Interval(contender, c.decode()),
                    yardstick ? "" : fmt::format("{:.2f}", 1e6 * contender.call_s), contender.limit});
      ++rows;
    }
  }
  return rows == 0 ? "" : title + "\n" + table.Render(kColumns) + "\n";
}

// Each reason once, with the implementations and row types that it holds for. Shapes are cut out of it: they
// differ from case to case, and what is refused are types or widths.
std::string RefusalsText(const std::vector<NormCaseResult>& results) {
  struct Refused {
    std::string reason;
    std::vector<std::string> who, types;
    size_t count = 0;
  };
  std::vector<Refused> all;
  const auto add = [](std::vector<std::string>& list, const std::string& text) {
    if (std::ranges::find(list, text) == list.end()) list.push_back(text);
  };
  const auto join = [](const std::vector<std::string>& list) {
    std::string text;
    for (const std::string& item : list) text += (text.empty() ? "" : ", ") + item;
    return text;
  };
  static const std::regex shape(R"( \[[0-9, ]*\])");
  for (const NormCaseResult& result : results)
    for (const NormContender& contender : result.contenders) {
      if (!contender.refusal) continue;
      const std::string reason = std::regex_replace(*contender.refusal, shape, "");
      auto found = std::ranges::find(all, reason, &Refused::reason);
      if (found == all.end()) found = all.insert(all.end(), {.reason = reason});
      add(found->who, fmt::format("{}_{}", contender.name, InfoOf(result.norm_case.norm.kind).name));
      add(found->types, std::string(Name(result.norm_case.types)));
      ++found->count;
    }
  std::string text;
  for (const Refused& refused : all)
    text += Wrap(fmt::format("refused ({}; {}): {}: {}", join(refused.types), Counted(refused.count, "time"),
                             join(refused.who), Printable(refused.reason)),
                 kColumns, "", "  ");
  return text;
}

}  // namespace

std::string NormBenchText(const std::vector<NormCaseResult>& results) {
  std::string text;
  std::vector<std::string> titles;
  std::map<std::string, std::vector<const NormCaseResult*>> groups;
  for (const NormCaseResult& result : results) {
    const std::string title = Group(result.norm_case);
    if (groups[title].empty()) titles.push_back(title);
    groups[title].push_back(&result);
  }
  for (const std::string& title : titles) text += GroupText(title, groups[title]);
  return text + RefusalsText(results);
}

namespace {

// The speeds of one implementation over the widths of a sweep.
struct SweepLine {
  const NormCase* first = nullptr;
  std::string name;
  std::vector<int64_t> widths;
  std::vector<double> gb_per_s;
};

std::vector<SweepLine> SweepLines(const std::vector<NormCaseResult>& results) {
  std::vector<SweepLine> lines;
  for (const NormCaseResult& result : results) {
    const NormCase& c = result.norm_case;
    for (const NormContender& contender : result.contenders) {
      if (contender.refusal || contender.times.blocks == 0) continue;
      auto line = std::ranges::find_if(lines, [&](const SweepLine& other) {
        return other.name == contender.name && Group(*other.first) == Group(c);
      });
      if (line == lines.end()) line = lines.insert(lines.end(), {.first = &c, .name = contender.name});
      line->widths.push_back(c.shape.cols);
      line->gb_per_s.push_back(contender.gb_per_s);
    }
  }
  return lines;
}

}  // namespace

std::string SweepText(const std::vector<NormCaseResult>& results) {
  TextTable table({{"GB/s by width"}, {"width"}, {"GB/s"}, {"", true}});
  size_t cliffs = 0;
  for (const SweepLine& line : SweepLines(results)) {
    const std::vector<size_t> found = Cliffs(line.gb_per_s);
    cliffs += found.size();
    for (size_t i = 0; i < line.widths.size(); ++i)
      table.AddRow({fmt::format("{}, {}", Group(*line.first), line.name), fmt::format("{}", line.widths[i]),
                    fmt::format("{:.1f}", line.gb_per_s[i]),
                    std::ranges::find(found, i) == found.end() ? "" : "CLIFF: below 60% of a neighbour"});
  }
  return table.Render(kColumns) +
         (cliffs == 0 ? "No width is below 60% of the speed of its neighbours.\n"
                      : fmt::format("{}: below 60% of a neighbour's speed.\n", Counted(cliffs, "cliff")));
}

Json CaseJson(const NormCaseResult& result) {
  const NormCase& c = result.norm_case;
  Json contenders = Json::array();
  for (const NormContender& contender : result.contenders) {
    const bool measured = contender.times.blocks > 0;
    const auto number = [&](double value) { return measured ? ToJson(value) : Json(); };
    contenders.push_back(
        {{"name", contender.name},
         {"implementation", contender.implementation ? Json(Name(*contender.implementation)) : Json()},
         {"refusal", contender.refusal ? Json(*contender.refusal) : Json()},
         {"blocks", contender.times.blocks},
         {"interrupted_blocks", contender.times.interrupted},
         {"time_s",
          {{"median", number(contender.times.median_s)},
           {"first_quartile", number(contender.times.first_quartile_s)},
           {"third_quartile", number(contender.times.third_quartile_s)},
           {"least", number(contender.times.least_s)}}},
         {"gb_per_s", number(contender.gb_per_s)},
         {"share", ToJson(contender.share)},
         {"share_low", ToJson(contender.share_low)},
         {"share_high", ToJson(contender.share_high)},
         {"copy_share", ToJson(contender.copy_share)},
         {"call_s", contender.implementation ? number(contender.call_s) : Json()},
         {"limited_by", contender.limit.empty() ? Json() : Json(contender.limit)}});
  }
  return {{"norm", InfoOf(c.norm.kind).name},
          {"dtype", Name(c.types)},
          {"rows", c.shape.rows},
          {"cols", c.shape.cols},
          {"op", Name(c.op)},
          {"cache", c.cold ? "cold" : "warm"},
          {"bytes", result.bytes},
          {"sets", result.sets},
          {"set_bytes", result.set_bytes},
          {"fits_last_level_cache", result.in_cache},
          {"calls_per_block", result.calls_per_block},
          {"batches", result.duel.batches},
          {"rounds_per_batch", result.duel.plan.rounds_per_batch},
          {"cut", result.duel.plan.cut},
          {"yardstick", result.contenders.empty() ? Json() : Json(result.contenders[0].name)},
          {"contenders", contenders}};
}

Json SweepJson(const std::vector<NormCaseResult>& results) {
  Json lines = Json::array();
  for (const SweepLine& line : SweepLines(results)) {
    Json cliffs = Json::array();
    for (const size_t i : Cliffs(line.gb_per_s)) cliffs.push_back(line.widths[i]);
    lines.push_back({{"norm", InfoOf(line.first->norm.kind).name},
                     {"dtype", Name(line.first->types)},
                     {"op", Name(line.first->op)},
                     {"cache", line.first->cold ? "cold" : "warm"},
                     {"name", line.name},
                     {"widths", line.widths},
                     {"gb_per_s", line.gb_per_s},
                     {"cliffs", cliffs}});
  }
  return lines;
}

}  // namespace normlab::apps
