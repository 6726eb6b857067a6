#include "normlab/apps/compare_duel.h"

#include <new>
#include <vector>

#include "normlab/apps/busy.h"
#include "normlab/apps/duel_options.h"
#include "normlab/apps/interrupt.h"
#include "normlab/base/error.h"
#include "normlab/base/text.h"
#include "normlab/study/step_duel.h"

namespace normlab::apps {
namespace {

// Returns nothing where a signal ended it.
std::optional<DuelRecord> RunDuelOf(const Study& study, double seconds, const std::string& why,
                                    const std::shared_ptr<const TokenSource>& tokens, int threads,
                                    const std::optional<AvailableMemory>& available,
                                    const Environment& environment) {
  const StudyPlan& plan = study.plan();
  std::vector<Variant> variants;
  for (const PlannedVariant& planned : plan.variants) variants.push_back(planned.variant);
  StepDuel duel(std::move(variants), tokens, threads);
  const size_t bytes = duel.RequireMemory(available);
  environment.progress.write(
      Wrap(fmt::format("steps of {} in turns, for about {}, in about {}: {}",
                       Counted(plan.variants.size(), "variant"), FormatDuration(seconds),
                       FormatBytes(static_cast<double>(bytes)), why),
           80, "duel      ", "          "));

  const auto busy_cpus = BusyCpus();  // cells may have taken hours since the program asked
  if (const auto note = BusyNote(busy_cpus)) PrintNote(*note);
  const InterruptGuard interrupt;
  Progress progress(environment.progress);
  const std::string started_at = UtcNow();
  DuelRecord record = duel.Run(StudyDuelSettings(plan, seconds), [&](const DuelProgress& now) {
    progress.Update("duel, " + ProgressLine(now));
    return !*interrupt.stop();
  });
  if (record.result.stopped) return std::nullopt;
  record.started_at = started_at;
  record.data = plan.data;
  record.busy_cpus = busy_cpus;
  record.rule = SpeedRule(plan);
  for (size_t v = 0; v < plan.variants.size(); ++v) record.contenders[v].baseline = plan.BaselineOf(v);
  return record;
}

}  // namespace

std::optional<double> DuelSeconds(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  if (*text == "0") return 0;
  try {
    return PositiveNumber("--duel", *text);
  } catch (const UsageError&) {
    throw UsageError(
        fmt::format("--duel {} is not allowed; --duel takes seconds, or 0 for no duel", Printable(*text)));
  }
}

bool RunStudyDuel(Study& study, const std::optional<double>& asked_s,
                  const std::shared_ptr<const TokenSource>& tokens, int threads,
                  const std::optional<AvailableMemory>& available, const Environment& environment) {
  if (asked_s == 0.0) return true;
  Machine machine = study.machine();  // one variant at a time has all threads
  machine.threads = threads, machine.jobs = 1;
  const std::string why = WhyDuel(study.duel(), study.plan(), machine, asked_s);
  if (why.empty()) {
    if (const auto note = WhyNoLongerDuel(*study.duel(), asked_s)) PrintNote(*note);
    return true;
  }
  if (!study.duel_problem().empty()) PrintNote(study.duel_problem());
  try {
    const double seconds = asked_s.value_or(DefaultDuelSeconds(study.cells()));
    auto record = RunDuelOf(study, seconds, why, tokens, threads, available, environment);
    if (!record) return false;
    record->machine = machine;
    study.TakeDuel(std::move(*record));
  } catch (const Error& error) {
    PrintNote(fmt::format("no speed duel: {}", error.what()));
    return true;
  } catch (const std::bad_alloc&) {
    PrintNote("no speed duel: not enough memory for all variants side by side");
    return true;
  }
  study.WriteResults();
  return true;
}

}  // namespace normlab::apps
