#pragma once
// Cells of a comparison, made from plain numbers.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "normlab/stats/comparison.h"

namespace normlab::stats::reference {

using Cells = std::vector<PairedCell>;

inline Cells Pair(std::span<const double> variant, std::span<const double> baseline) {
  Cells cells;
  for (std::size_t i = 0; i < variant.size(); ++i)
    cells.push_back({.variant = variant[i], .baseline = baseline[i]});
  return cells;
}

// Baseline runs near 3, seed by seed; variant = baseline + difference.
inline Cells Shifted(const std::vector<double>& differences) {
  Cells cells;
  for (std::size_t i = 0; i < differences.size(); ++i) {
    const double baseline = 3 + 0.03125 * static_cast<double>(i % 5);
    cells.push_back({.variant = baseline + differences[i], .baseline = baseline});
  }
  return cells;
}

// `count` cells whose variant diverged while the baseline finished.
inline void AddDiverged(Cells& cells, int count) {
  for (int i = 0; i < count; ++i) cells.push_back({.variant = std::nullopt, .baseline = 3.1});
}

}  // namespace normlab::stats::reference
