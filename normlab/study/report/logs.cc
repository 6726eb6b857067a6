#include "normlab/study/report/logs.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/stats/paired_t.h"
#include "normlab/study/report/heat_map.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

// Stretches of a drawn curve; a canvas is about as many pixels wide.
constexpr size_t kRunStretches = 500, kMeanStretches = 300;

std::string ReadIfThere(const fs::path& path) {
  try {
    return KindOf(path) == PathKind::kOther ? ReadFile(path) : "";
  } catch (const Error&) {
    return "";  // gone meanwhile
  }
}

double RoundedForDrawing(double value) { return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr); }

// The kept values of `columns` by step. Where steps between two of them are not finite, a row of nulls stands
// there, so that no line is drawn across.
Json DrawnJson(std::span<const double> step,
               const std::vector<std::pair<const char*, std::span<const double>>>& columns,
               const std::vector<size_t>& kept) {
  const std::span<const double> first = columns[0].second;
  std::vector<size_t> places;  // with a gap's first step between
  for (const size_t i : kept) {
    for (size_t j = places.empty() ? 0 : places.back() + 1; j < i; ++j) {
      if (std::isfinite(first[j])) continue;
      places.push_back(j);
      break;
    }
    places.push_back(i);
  }
  Json json = Json::object();
  json["step"] = Json::array();
  for (const size_t i : places) json["step"].push_back(step[i]);
  for (const auto& [name, values] : columns) {
    Json list = Json::array();
    for (const size_t i : places)
      list.push_back(std::isfinite(values[i]) ? Json(RoundedForDrawing(values[i])) : Json());
    json[name] = std::move(list);
  }
  return json;
}

Json RunJson(const StudyPlan& plan, const Cell& cell, const CellLog& log, const Curve& curve) {
  Json json = DrawnJson(curve.step, {{"value", curve.value}}, KeptForDrawing(curve.value, kRunStretches));
  json["seed"] = plan.Seed(cell.variant, cell.seed);
  json["status"] = Name(cell.status);
  json["steps_logged"] = curve.step.size();
  json["not_finite"] = Json::array();
  for (const NotFinite& range : NotFiniteRanges(curve, kRunStretches))
    json["not_finite"].push_back(
        {{"from", range.from}, {"to", range.to}, {"count", range.count}, {"what", range.what}});
  json["spikes"] = log.spikes;
  return json;
}

Json OverSeedsJson(const CurveOverSeeds& over) {
  std::vector<size_t> kept = KeptForDrawing(over.mean, kMeanStretches);
  for (const std::vector<double>* column : {&over.least, &over.greatest}) {
    const std::vector<size_t> more = KeptForDrawing(*column, kMeanStretches);
    kept.insert(kept.end(), more.begin(), more.end());
  }
  std::ranges::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  Json json = DrawnJson(
      over.step, {{"mean", over.mean}, {"sd", over.sd}, {"least", over.least}, {"greatest", over.greatest}},
      kept);
  json["n"] = over.n;
  json["t"] = over.n > 1 ? Json(stats::StudentCritical(0.025, static_cast<double>(over.n - 1))) : Json();
  return json;
}

struct Quantity {
  const char* name;
  const Curve& (*of)(const StepLog&);
};
constexpr Quantity kQuantities[] = {
    {"loss", [](const StepLog& log) -> const Curve& { return log.loss; }},
    {"grad_norm", [](const StepLog& log) -> const Curve& { return log.gradient_norm; }}};

class Series {
 public:
  Series(const StudyResults& results, const std::vector<CellLog>& logs) : results_(results), logs_(logs) {
    NL_CHECK_EQ(results.cells.size(), logs.size());
  }

  Json Curves(size_t variant, const Quantity& quantity) const {
    Json runs = Json::array();
    for (size_t i = 0; i < logs_.size(); ++i) {
      const Curve& curve = quantity.of(logs_[i].steps);
      if (logs_[i].variant != variant || curve.step.empty()) continue;
      runs.push_back(RunJson(results_.plan, results_.cells[i], logs_[i], curve));
    }
    std::vector<Curve> done;
    for (const auto& [seed, log] : Done(variant)) done.push_back(quantity.of(log->steps));
    return {{"variant", results_.variants[variant].name},
            {"quantity", quantity.name},
            {"mean", OverSeedsJson(OverSeeds(done))},
            {"runs", std::move(runs)}};
  }

  Json Differences(size_t variant, const Quantity& quantity) const {
    const std::map<size_t, const CellLog*> mine = Done(variant),
                                           theirs = Done(results_.plan.BaselineOf(variant));
    std::vector<Curve> pairs;
    for (const auto& [seed, log] : mine)
      if (const auto other = theirs.find(seed); other != theirs.end())
        pairs.push_back(Difference(quantity.of(log->steps), quantity.of(other->second->steps)));
    return {{"variant", results_.variants[variant].name},
            {"quantity", quantity.name},
            {"mean", OverSeedsJson(OverSeeds(pairs))}};
  }

  Json HeatMaps(size_t variant) const {
    for (const CellLog& log : logs_)
      if (log.variant == variant && !log.heat_maps.empty())
        return {{"variant", results_.variants[variant].name},
                {"seed", results_.plan.Seed(log.variant, log.seed)},
                {"maps", log.heat_maps}};
    return {};
  }

  // Seconds a step, mean over the runs that kept a profile.
  Json Profile(size_t variant) const {
    std::vector<std::pair<std::string, double>> sums;
    double step_s = 0;
    size_t n = 0;
    for (const Cell& cell : results_.cells) {
      if (cell.variant != variant || cell.status != CellStatus::kDone || cell.record->profile.empty())
        continue;
      const auto steps = static_cast<double>(cell.record->steps_done);
      step_s += cell.record->time_s / steps;
      ++n;
      for (const OperationTime& time : cell.record->profile) {
        auto place = std::ranges::find(sums, time.name, &std::pair<std::string, double>::first);
        if (place == sums.end()) place = sums.insert(sums.end(), {time.name, 0});
        place->second += time.seconds / steps;
      }
    }
    if (n == 0) return {};
    Json operations = Json::array();
    const auto runs = static_cast<double>(n);
    for (const auto& [name, seconds] : sums)
      operations.push_back({{"operation", name}, {"step_s", RoundedForDrawing(seconds / runs)}});
    return {{"variant", results_.variants[variant].name},
            {"n", n},
            {"step_s", RoundedForDrawing(step_s / runs)},
            {"operations", std::move(operations)}};
  }

 private:
  // Logs of the runs that are done, by seed.
  std::map<size_t, const CellLog*> Done(size_t variant) const {
    std::map<size_t, const CellLog*> done;
    for (size_t i = 0; i < logs_.size(); ++i)
      if (logs_[i].variant == variant && results_.cells[i].status == CellStatus::kDone &&
          !logs_[i].steps.loss.step.empty())
        done[logs_[i].seed] = &logs_[i];
    return done;
  }

  const StudyResults& results_;
  const std::vector<CellLog>& logs_;
};

}  // namespace

StepLog ParseStepLog(std::string_view lines) {
  StepLog log;
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (line.empty()) continue;
    try {
      const Json json = Json::parse(line);
      const double step = NumberFromJson(json.at("step"), "step");
      const double loss = NumberFromJson(json.at("loss"), "loss");
      const std::optional<double> norm = OptionalNumberFromJson(json.value("grad_norm", Json()), "grad_norm");
      log.loss.step.push_back(step);
      log.loss.value.push_back(loss);
      if (!norm) continue;
      log.gradient_norm.step.push_back(step);
      log.gradient_norm.value.push_back(*norm);
    } catch (const std::exception&) {
      ++log.unreadable;
    }
  }
  return log;
}

std::vector<CellLog> ReadLogs(const fs::path& folder, const StudyResults& results) {
  std::vector<CellLog> logs;
  for (const Cell& cell : results.cells) {
    const StudyPlan& plan = results.plan;
    const fs::path run =
        folder / CellFolder(plan.variants[cell.variant].variant.name, plan.Seed(cell.variant, cell.seed));
    CellLog log{.variant = cell.variant,
                .seed = cell.seed,
                .steps = ParseStepLog(ReadIfThere(run / kMetricsFile)),
                .spikes = Json::array(),
                .heat_maps = HeatMapsJson(HeatMaps(ReadIfThere(run / kInsideFile)))};
    const Json record = Json::parse(ReadIfThere(run / kRecordFile), nullptr, /*allow_exceptions=*/false);
    if (record.is_object()) log.spikes = record.value("spikes", Json::array());
    if (!log.spikes.is_array()) log.spikes = Json::array();
    logs.push_back(std::move(log));
  }
  return logs;
}

Json SeriesJson(const StudyResults& results, const std::vector<CellLog>& logs) {
  const Series series(results, logs);
  Json json = {{"curves", Json::array()},
               {"differences", Json::array()},
               {"heat_maps", Json::array()},
               {"profiles", Json::array()}};
  for (size_t v = 0; v < results.variants.size(); ++v) {
    for (const Quantity& quantity : kQuantities) {
      json["curves"].push_back(series.Curves(v, quantity));
      if (v != results.plan.BaselineOf(v)) json["differences"].push_back(series.Differences(v, quantity));
    }
    if (Json maps = series.HeatMaps(v); !maps.is_null()) json["heat_maps"].push_back(std::move(maps));
    if (Json profile = series.Profile(v); !profile.is_null()) json["profiles"].push_back(std::move(profile));
  }
  return json;
}

}  // namespace normlab
