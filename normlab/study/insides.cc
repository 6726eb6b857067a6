#include "normlab/study/insides.h"

#include <algorithm>

#include "normlab/base/text.h"
#include "normlab/stats/descriptive.h"

namespace normlab {
namespace {

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
    if (cell.variant == variant && cell.status == CellStatus::kDone) AppendShares(*cell.record, shares);
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
