#include "normlab/study/insides.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/text.h"
#include "normlab/stats/descriptive.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

// Sum and count, step by step.
struct Sums {
  std::map<int64_t, std::pair<double, size_t>> at;
  void Add(int64_t step, double value) {
    auto& [sum, count] = at[step];
    sum += value;
    ++count;
  }
};

// A place and its statistics while seeds are added.
struct PlaceSums {
  std::string name;
  std::map<std::string, Sums, std::less<>> of;
};

PlaceSums& PlaceOf(std::vector<PlaceSums>& places, const std::string& name) {
  for (PlaceSums& place : places)
    if (place.name == name) return place;
  places.push_back({.name = name});
  return places.back();
}

// Every finite number of `values`, objects within it included, by its path. A channel is a place, not a
// number to average.
void AddNumbers(PlaceSums& place, int64_t step, const Json& values, const std::string& prefix = "") {
  for (const auto& [key, value] : values.items()) {
    if (key == "outlier_channel") continue;
    if (value.is_object()) AddNumbers(place, step, value, prefix + key + ".");
    if (value.is_number()) place.of[prefix + key].Add(step, value.get<double>());
  }
}

std::vector<InsidePlace> Means(const std::vector<PlaceSums>& places, const std::vector<int64_t>& steps) {
  std::vector<InsidePlace> means;
  for (const PlaceSums& place : places) {
    InsidePlace& mean = means.emplace_back();
    mean.name = place.name;
    for (const auto& [key, sums] : place.of) {
      InsideSeries& series = mean.series[key];
      for (const int64_t step : steps) {
        const auto found = sums.at.find(step);
        series.push_back(found == sums.at.end() ? std::nullopt
                                                : std::optional(found->second.first /
                                                                static_cast<double>(found->second.second)));
      }
    }
  }
  return means;
}

// Calls line(object) for each line of a file of JSON objects.
void ForEachLine(const fs::path& path, const std::function<void(const Json&)>& line) {
  const std::string text = ReadFile(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    try {
      line(ParseJson(std::string_view(text).substr(begin, end - begin), path.string()));
    } catch (const nlohmann::json::exception& error) {
      Fail("{} cannot be read: {}; delete it to go on without", path.string(), error.what());
    }
    begin = end + 1;
  }
}

void AppendShares(const RunRecord& record, std::vector<double>& shares) {
  if (record.inside.is_null()) return;
  for (const Json& norm : record.inside.value("norms", Json::array()))
    if (const Json share = norm.value("mean_share", Json()); share.is_number())
      shares.push_back(share.get<double>());
}

std::optional<double> MedianOf(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return stats::Median(values);
}

// Three digits of a share, whatever its size: "0.312%"
std::string Percent(double share) { return fmt::format("{:.3g}%", 100 * share); }

// "x2.1", or that it was not finite.
std::string Times(double ratio) { return ratio < 1e6 ? fmt::format("x{:.1f}", ratio) : "beyond all bounds"; }

std::string CentringText(const StudyResults& results, size_t columns) {
  std::string list;
  for (size_t v = 0; v < results.variants.size(); ++v)
    if (const auto share = MedianMeanShare(results.cells, v))
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", Printable(results.variants[v].name),
                          Percent(*share));
  if (list.empty()) return "";
  return Wrap(
      "To centre: at the norms' inputs, the mean of a row holds this share of its mean square at the end of "
      "training (median over sites and seeds): " +
          list + ".",
      columns);
}

std::string SpikesText(const StudyResults& results, size_t columns) {
  std::string text;
  for (size_t v = 0; v < results.variants.size(); ++v) {
    const SpikeSummary summary = SummarizeSpikes(results.cells, v);
    if (summary.spikes == 0) continue;
    std::string line = fmt::format("Loss spikes of {}: {} in {} of {}", Printable(results.variants[v].name),
                                   summary.spikes, summary.runs_with_spikes, Counted(summary.runs, "run"));
    if (summary.median_recovery)
      line += fmt::format(", over after {:g} steps (median)", *summary.median_recovery);
    if (summary.not_recovered > 0) line += fmt::format(", {} not over", summary.not_recovered);
    for (const Cell& cell : results.cells) {
      if (cell.variant != v || !IsFinished(cell.status) || cell.record->spikes.empty()) continue;
      line += fmt::format(". First: seed {}, {}", results.plan.Seed(cell.variant, cell.seed),
                          Describe(cell.record->spikes[0]));
      break;
    }
    text += Wrap(line + ".", columns, "", "  ");
  }
  return text;
}

}  // namespace

std::vector<VariantInsides> ReadInsides(const fs::path& folder, const StudyPlan& plan,
                                        const std::vector<Cell>& cells) {
  std::vector<VariantInsides> all;
  for (size_t v = 0; v < plan.variants.size(); ++v) {
    VariantInsides& insides = all.emplace_back();
    insides.variant = plan.variants[v].variant.name;
    std::vector<PlaceSums> sites, tensors;
    std::map<int64_t, size_t> seeds;
    for (const Cell& cell : cells) {
      if (cell.variant != v || !IsFinished(cell.status)) continue;
      const fs::path path =
          folder / CellFolder(insides.variant, plan.Seed(cell.variant, cell.seed)) / kInsideFile;
      if (KindOf(path) == PathKind::kNothing) continue;
      ForEachLine(path, [&](const Json& line) {
        if (line.value("why", "interval") != "interval") return;  // other seeds have no such step
        const auto step = line.at("step").get<int64_t>();
        ++seeds[step];
        for (const Json& norm : line.at("norms"))
          AddNumbers(PlaceOf(sites, norm.at("site").get<std::string>()), step, norm);
        for (const Json& tensor : line.at("tensors"))
          AddNumbers(PlaceOf(tensors, tensor.at("name").get<std::string>()), step, tensor);
      });
    }
    for (const auto& [step, count] : seeds) {
      insides.steps.push_back(step);
      insides.seeds.push_back(count);
    }
    insides.sites = Means(sites, insides.steps);
    insides.tensors = Means(tensors, insides.steps);
  }
  return all;
}

SpikeSummary SummarizeSpikes(const std::vector<Cell>& cells, size_t variant) {
  SpikeSummary summary;
  std::vector<double> recoveries;
  for (const Cell& cell : cells) {
    if (cell.variant != variant || !IsFinished(cell.status)) continue;
    const std::vector<SpikeRecord>& spikes = cell.record->spikes;
    ++summary.runs;
    summary.runs_with_spikes += !spikes.empty();
    summary.spikes += spikes.size();
    for (const SpikeRecord& spike : spikes) {
      if (spike.loss.recovered_after)
        recoveries.push_back(static_cast<double>(*spike.loss.recovered_after));
      else
        ++summary.not_recovered;
    }
  }
  summary.median_recovery = MedianOf(recoveries);
  return summary;
}

std::optional<double> MedianMeanShare(const std::vector<Cell>& cells, size_t variant) {
  std::vector<double> shares;
  for (const Cell& cell : cells)
    if (cell.variant == variant && IsFinished(cell.status)) AppendShares(*cell.record, shares);
  return MedianOf(shares);
}

std::optional<double> MedianMeanShare(const RunRecord& record) {
  std::vector<double> shares;
  AppendShares(record, shares);
  return MedianOf(shares);
}

std::string Describe(const SpikeRecord& spike) {
  const stats::LossSpike& loss = spike.loss;
  std::string text = fmt::format("step {}: loss {:.4f} to {:.4f}", loss.step, loss.before, loss.peak);
  if (spike.moved.empty()) {
    text += "; nothing moved before";
  } else {
    const MovedSignal& first = spike.moved[0];
    text += fmt::format("; {} of {} moved first, at step {} ({})", first.what, first.name, first.step,
                        Times(first.ratio));
  }
  return text + (loss.recovered_after ? fmt::format("; over after {}", Counted(*loss.recovered_after, "step"))
                                      : "; not over");
}

std::string InsidesText(const StudyResults& results, size_t columns) {
  return CentringText(results, columns) + SpikesText(results, columns);
}

}  // namespace normlab
