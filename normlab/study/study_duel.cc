#include "normlab/study/study_duel.h"

#include <algorithm>
#include <cmath>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/progress.h"
#include "normlab/stats/batch_verdict.h"
#include "normlab/study/duel_summary.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

constexpr double kShareOfCells = 0.2;

// True where a longer duel is asked for than the one that is there, which ended early.
bool HadLess(const DuelRecord& duel, const std::optional<double>& asked_s) {
  return asked_s && duel.result.plan.cut && duel.settings.seconds && *asked_s > *duel.settings.seconds;
}

// Times of one may stand for the other. How threads wait is chosen anew at each start, by how busy the
// machine is then, and makes no other machine.
bool SameMachine(const Machine& a, Machine b) {
  b.wait_policy = a.wait_policy;
  return SameSpeed(a, b);
}

}  // namespace

stats::ComparisonRule SpeedRule(const StudyPlan& plan) {
  return {.alpha = plan.alpha,
          .variants = std::max(1, static_cast<int>(plan.comparisons())),
          .looks = plan.looks,
          .look = plan.look(),
          .margin = plan.speed_margin,
          .log_ratio = true};
}

DuelSettings StudyDuelSettings(const StudyPlan& plan, double seconds) {
  DuelSettings settings{.contenders = plan.variants.size(),
                        .baseline = plan.Baseline(),
                        .alpha = plan.alpha / plan.looks,
                        .seconds = seconds};
  if (plan.speed_margin > 0) settings.half_width = std::log1p(plan.speed_margin);
  return settings;
}

double DefaultDuelSeconds(const std::vector<Cell>& cells) {
  double seconds = 0;
  for (const Cell& cell : cells)
    if (IsFinished(cell.status)) seconds += cell.record->time_s / cell.record->machine.jobs;
  return kShareOfCells * seconds;
}

bool Covers(const DuelRecord& duel, const StudyPlan& plan) {
  if (duel.result.stopped || duel.contenders.size() != plan.variants.size()) return false;
  if (duel.contenders[duel.settings.baseline].name != plan.baseline) return false;
  if (duel.rule.margin != plan.speed_margin || duel.rule.alpha != plan.alpha || duel.rule.looks != plan.looks)
    return false;
  for (size_t v = 0; v < plan.variants.size(); ++v) {
    const PlannedVariant& planned = plan.variants[v];
    const std::string& baseline = plan.variants[plan.BaselineOf(v)].variant.name;
    const bool covered = std::ranges::any_of(duel.contenders, [&](const DuelContender& contender) {
      return contender.name == planned.variant.name && duel.contenders[contender.baseline].name == baseline &&
             contender.norm_implementation == planned.norm_implementation &&
             Differences(contender.config, DuelConfig(planned.variant.config)).empty();
    });
    if (!covered) return false;
  }
  return true;
}

std::string WhyDuel(const std::optional<DuelRecord>& duel, const StudyPlan& plan, const Machine& machine,
                    const std::optional<double>& asked_s) {
  if (!duel) return "the study has no duel yet";
  if (!Covers(*duel, plan)) return "the one that is there has other variants, or was cut off";
  if (duel->rule.look != plan.look()) return "the study has been extended since the last one";
  if (!SameMachine(duel->machine, machine))
    return fmt::format("the one that is there ran on {} with {} threads", duel->machine.cpu,
                       duel->machine.threads);
  const bool judged = duel->result.batches >= stats::kFewestJudgedBatches;
  if (!judged && HadLess(*duel, asked_s))
    return fmt::format("the one that is there had {}, too few for a verdict",
                       FormatDuration(*duel->settings.seconds));
  return "";
}

std::optional<std::string> WhyNoLongerDuel(const DuelRecord& duel, const std::optional<double>& asked_s) {
  if (!HadLess(duel, asked_s)) return std::nullopt;
  return fmt::format(
      "the study has its duel, of {}, and the verdicts from it stand: a longer one, after these were seen, "
      "would "
      "be a second chance for them; `normlab duel` runs one that stands for itself",
      FormatDuration(*duel.settings.seconds));
}

std::optional<DuelRecord> ReadDuel(const fs::path& folder) {
  const fs::path path = folder / kDuelFile;
  if (KindOf(path) == PathKind::kNothing) return std::nullopt;
  return DuelRecordFromJson(ParseJson(ReadFile(path), path.string(), JsonComments::kRefuse), path.string());
}

void WriteDuel(const DuelRecord& duel, const fs::path& folder) {
  WriteFileAtomic(folder / kDuelFile, DumpJson(DuelJson(duel), 1) + "\n");
}

}  // namespace normlab
