#pragma once
// For tests: the record of a duel whose blocks took made-up times, on the stub machine.

#include <string>
#include <vector>

#include "normlab/study/duel_record.h"
#include "normlab/study/study_duel.h"
#include "normlab/study/testing/fake_study.h"
#include "normlab/study/testing/stub_machine.h"

namespace normlab::test {

// Variants with these names and this time a block; everything else of the machine and the settings as given.
inline DuelRecord FakeDuel(const std::vector<std::string>& names, StubMachine machine,
                           DuelSettings settings = {}) {
  settings.contenders = names.size();
  machine.seconds.resize(names.size(), 0.02);
  DuelRecord record{.started_at = "2030-01-01T00:00:00Z",
                    .machine = {.cpu = "Test CPU", .isa = "avx2", .threads = 2, .cpus = 2, .onednn = "2.6.3"},
                    .settings = settings,
                    .rule = {.alpha = settings.alpha,
                             .variants = std::max(1, static_cast<int>(names.size()) - 1),
                             .looks = 1,
                             .log_ratio = true},
                    .steps_per_block = 2};
  for (const std::string& name : names)
    record.contenders.push_back({.name = name,
                                 .varied = {{"norm_type", name}},
                                 .config = {{"norm_type", name}},
                                 .norm_implementation = "fused",
                                 .tokens_per_step = 4096,
                                 .peak_bytes = size_t{1} << 20,
                                 .baseline = settings.baseline});
  record.result = RunDuel(settings, machine.Callbacks());
  return record;
}

// A whole duel of a study's variants under its rule, as compare would run it.
inline DuelRecord FakeDuelOf(const StudyPlan& plan, const StubMachine& machine) {
  std::vector<std::string> names;
  for (const PlannedVariant& planned : plan.variants) names.push_back(planned.variant.name);
  DuelRecord record = FakeDuel(names, machine, StudyDuelSettings(plan, 1e6));
  record.machine = FakeMachine();
  record.rule = SpeedRule(plan);
  for (size_t v = 0; v < names.size(); ++v) {
    record.contenders[v].config = DuelConfig(plan.variants[v].variant.config);
    record.contenders[v].norm_implementation = plan.variants[v].norm_implementation;
    record.contenders[v].baseline = plan.BaselineOf(v);
  }
  return record;
}

}  // namespace normlab::test
