#pragma once
// For tests: results of made-up cells in every state.

#include <string>
#include <vector>

#include "normlab/study/testing/fake_study.h"

namespace normlab {

// A study whose variants have these names (up to three), three seeds each. The second variant has a cell that
// diverged and one that failed, unless `all_done`.
inline StudyResults FakeResults(const std::vector<std::string>& names, bool all_done = false) {
  StudyRequest request = FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3});
  request.grid.variants.resize(names.size());
  request.norm_implementations.resize(names.size());
  for (size_t v = 0; v < names.size(); ++v) request.grid.variants[v].name = names[v];
  const StudyPlan plan = MakePlan(request);
  std::vector<Cell> cells;
  for (const GridCell& place : CellOrder(plan.variants.size(), plan.seeds.size())) {
    Cell cell{.variant = place.variant, .seed = place.seed};
    const TrainConfig config = CellConfig(plan.variants[place.variant].variant, plan.seeds[place.seed]);
    const double noise = 0.001 * static_cast<double>((place.variant * 7 + place.seed * 3) % 5);
    if (!all_done && place.variant == 1 && place.seed == 1) {
      TakeRecord(cell, FakeDivergence(config));
    } else if (!all_done && place.variant == 1 && place.seed == 2) {
      cell.status = CellStatus::kFailed;
      cell.reason = "the disk, \"full\",\nis full";
    } else {
      TakeRecord(
          cell, FakeRecord(config, 3.25 + 0.1 * static_cast<double>(place.variant) + noise, 9358.25 + noise));
    }
    cells.push_back(std::move(cell));
  }
  return Evaluate(plan, cells);
}

}  // namespace normlab
