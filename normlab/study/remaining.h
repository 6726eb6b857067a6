#pragma once
// How long the rest of a study will take, from what its cells took so far. Pure.

#include <cstddef>
#include <optional>
#include <vector>

namespace normlab {

class RemainingTime {
 public:
  // work[v]: how much a cell of variant v has to do relative to the others, for example steps x tokens x
  // parameters. It is used only until a cell of that variant has run.
  explicit RemainingTime(std::vector<double> work);

  // A cell of `variant` took so long from start to end.
  void Add(size_t variant, double seconds);

  // Predicted seconds of a cell; nothing before anything is known.
  std::optional<double> Cell(size_t variant) const;

  // Seconds until everything is done: the running cell (its own estimate if it has one), then `waiting` cells
  // (variants).
  std::optional<double> Total(size_t running, double elapsed_s, std::optional<double> running_remaining_s,
                              const std::vector<size_t>& waiting) const;

 private:
  std::vector<double> work_, seconds_;
  std::vector<size_t> count_;
};

}  // namespace normlab
