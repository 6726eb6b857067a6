#pragma once
// Which of many signals left its level first before something happened: which tensor's gradient, update or
// activation moved before a loss spike.
//
// A signal is off its level at one of the last 10 steps (the event's own counts) where it is at least 1.5
// times the median of its values before those 10, and above that median by 6 of their robust standard
// deviations; at least 10 such values are needed. A value that is not finite is off. It moved at the first
// step from which on it was off again and again, never for more than 3 steps back at its level, until the
// event: what was over long before is no part of it. Several signals may move with one event, and before it,
// without being its cause.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace normlab::stats {

struct Move {
  size_t signal = 0;
  int64_t step = 0;
  double ratio = 0;  // to the level before, there; the largest number where the value is not finite
  bool operator==(const Move&) const = default;
};

// What each signal was at consecutive steps, the last of which is that of the event. Every step has one value
// for each signal. Returns one move for each signal that moved: the earliest first, and at one step the
// largest first.
struct SignalsOfStep {
  int64_t step = 0;
  std::vector<double> values;
};
inline constexpr int64_t kMoveSteps = 10, kLevelSteps = 50;
std::vector<Move> MovesBefore(std::span<const SignalsOfStep> steps);

}  // namespace normlab::stats
