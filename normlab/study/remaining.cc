#include "normlab/study/remaining.h"

#include <algorithm>

namespace normlab {

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

std::optional<double> RemainingTime::Total(size_t running, double elapsed_s,
                                           std::optional<double> running_remaining_s,
                                           const std::vector<size_t>& waiting) const {
  std::optional<double> rest = running_remaining_s;
  if (!rest) {
    const std::optional<double> whole = Cell(running);
    if (!whole) return std::nullopt;
    rest = std::max(0.0, *whole - elapsed_s);
  }
  // The running cell, seen to its end, stands for cells of which nothing is known.
  RemainingTime known = *this;
  if (!Cell(running)) known.Add(running, elapsed_s + *rest);
  double total = *rest;
  for (const size_t variant : waiting) total += *known.Cell(variant);
  return total;
}

}  // namespace normlab
