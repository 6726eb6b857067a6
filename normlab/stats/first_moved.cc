#include "normlab/stats/first_moved.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "normlab/base/error.h"
#include "normlab/stats/descriptive.h"
#include "normlab/stats/loss_course.h"

namespace normlab::stats {
namespace {

constexpr size_t kLeastSteps = 10;
constexpr double kLeastRatio = 1.5, kSpreads = 6;
constexpr int64_t kLongestGap = 3;  // steps

}  // namespace

std::vector<Move> MovesBefore(std::span<const SignalsOfStep> steps) {
  std::vector<Move> moves;
  if (steps.empty()) return moves;
  const int64_t last = steps.back().step;
  const size_t signals = steps.back().values.size();
  for (size_t signal = 0; signal < signals; ++signal) {
    std::vector<double> level;
    for (const SignalsOfStep& step : steps) {
      NL_CHECK_EQ(step.values.size(), signals);
      const double value = step.values[signal];
      if (step.step <= last - kMoveSteps && std::isfinite(value)) level.push_back(value);
    }
    if (level.size() < kLeastSteps) continue;
    const double median = Median(level);
    if (!(median > 0)) continue;
    const double moved = std::max(kLeastRatio * median, median + kSpreads * RobustSd(level, median));
    std::optional<Move> move;
    int64_t off_at = last;
    for (size_t i = steps.size(); i-- > 0;) {
      const auto& [step, values] = steps[i];
      const double value = values[signal];
      if (step <= last - kMoveSteps || off_at - step > kLongestGap) break;
      if (value < moved) continue;
      off_at = step;
      move = {.signal = signal,
              .step = step,
              .ratio = std::isfinite(value) ? value / median : std::numeric_limits<double>::max()};
    }
    if (move) moves.push_back(*move);
  }
  std::ranges::stable_sort(moves, [](const Move& a, const Move& b) {
    return std::tuple(a.step, -a.ratio) < std::tuple(b.step, -b.ratio);
  });
  return moves;
}

}  // namespace normlab::stats
