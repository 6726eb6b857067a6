#pragma once
// A duel (duel.h) whose blocks are whole training steps: forward, backward, clipping, AdamW. Each variant
// trains on a device of its own, so that its memory is counted and placed apart; all are in memory at one
// time. Every batch makes all models anew, in the duel's order, and takes one step that is not timed, in
// which scratch memory grows and pages are touched. Steps that are too short for the clock come several in a
// block. Changes nothing outside: no run, no file.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "normlab/base/available_memory.h"
#include "normlab/data/tokens.h"
#include "normlab/study/duel_record.h"
#include "normlab/study/grid.h"
#include "normlab/train/step_bound.h"

namespace normlab {

class StepDuel {
 public:
  // A variant without a name gets that of its norm. The tokens must suit every variant.
  StepDuel(std::vector<Variant> variants, std::shared_ptr<const TokenSource> tokens, int threads);
  ~StepDuel();
  StepDuel(const StepDuel&) = delete;
  StepDuel& operator=(const StepDuel&) = delete;

  const std::vector<Variant>& variants() const { return variants_; }

  // What the arenas of all take together. Throws Error where they do not fit side by side.
  size_t RequireMemory(const std::optional<AvailableMemory>& available) const;

  // The record but for its machine, data, time and rule. settings.contenders is set here. Throws Error where
  // a variant diverges: times of such steps say nothing.
  DuelRecord Run(DuelSettings settings, const std::function<bool(const DuelProgress&)>& keep_going);

  // The bound of each variant's step, after Run; with_products: times the matrix products alone, once for
  // variants that share them.
  std::vector<StepBound> Bounds(double copy_bytes_per_s, bool with_products);

 private:
  struct Contender;

  void RunBlock(size_t variant, int64_t steps) const;
  void FixSteps();

  std::vector<Variant> variants_;
  std::shared_ptr<const TokenSource> tokens_;
  int threads_;
  std::vector<Contender> contenders_;
  int64_t steps_per_block_ = 1;
};

}  // namespace normlab
