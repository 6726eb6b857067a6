#include "normlab/study/remaining.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "normlab/base/error.h"

namespace normlab {

double EvaluationSteps(const Json& data, const TrainConfig& config) {
  return data.value("held_out_windows", 0.0) / 3 / static_cast<double>(config.batch);
}

double SecondsOf(const RunRecord& record, const TrainConfig& config) {
  return record.time_s * (1 + EvaluationSteps(record.data, config) / static_cast<double>(config.steps));
}

std::vector<double> WorkOfVariants(const StudyPlan& plan) {
  std::vector<double> work;
  for (const auto& [variant, implementation, seeds] : plan.variants)
    work.push_back(static_cast<double>(variant.config.steps) *
                   static_cast<double>(variant.config.TokensPerStep()) *
                   static_cast<double>(variant.parameters));
  return work;
}

RemainingTime::RemainingTime(std::vector<double> work)
    : work_(std::move(work)), seconds_(work_.size()), count_(work_.size()) {}

void RemainingTime::Add(size_t variant, double seconds) {
  seconds_[variant] += seconds;
  ++count_[variant];
}

std::optional<double> RemainingTime::Cell(size_t variant) const {
  if (count_[variant] > 0) return seconds_[variant] / static_cast<double>(count_[variant]);
  double seconds = 0, work = 0;
  for (size_t v = 0; v < work_.size(); ++v) {
    seconds += seconds_[v];
    work += work_[v] * static_cast<double>(count_[v]);
  }
  if (!(work > 0)) return std::nullopt;
  return seconds / work * work_[variant];
}

std::optional<double> RemainingTime::Total(const std::vector<RunningCell>& running,
                                           const std::vector<size_t>& waiting, size_t jobs) const {
  NL_CHECK(jobs >= 1 && running.size() <= jobs);
  // A running cell, seen to its end, stands for cells of whose variant nothing is known.
  RemainingTime known = *this;
  for (const RunningCell& cell : running)
    if (cell.remaining_s && count_[cell.variant] == 0)
      known.Add(cell.variant, cell.elapsed_s + *cell.remaining_s);

  std::priority_queue<double, std::vector<double>, std::greater<>>
      free_at;  // seconds from now, of each place
  double end = 0;
  const auto ends_at = [&](double time) {
    free_at.push(time);
    end = std::max(end, time);
  };
  for (const RunningCell& cell : running) {
    const std::optional<double> whole = known.Cell(cell.variant);
    if (!cell.remaining_s && !whole) return std::nullopt;
    ends_at(cell.remaining_s ? *cell.remaining_s : std::max(0.0, *whole - cell.elapsed_s));
  }
  while (free_at.size() < jobs) free_at.push(0);
  for (const size_t variant : waiting) {
    const std::optional<double> seconds = known.Cell(variant);
    if (!seconds) return std::nullopt;
    const double start = free_at.top();
    free_at.pop();
    ends_at(start + *seconds);
  }
  return end;
}

}  // namespace normlab
