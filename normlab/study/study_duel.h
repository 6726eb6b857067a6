#pragma once
// The duel of a study: DIR/duel.json, whether it is of the study as it stands, and whether one is to run.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "normlab/study/duel_record.h"
#include "normlab/study/folder.h"
#include "normlab/study/plan.h"

namespace normlab {

inline constexpr const char* kDuelFile = "duel.json";

// The rule of a study's verdicts on time. Each look at the study has a duel of its own, so alpha is shared
// over looks as it is for losses.
stats::ComparisonRule SpeedRule(const StudyPlan& plan);

// What a study's duel is run with: as precise as the margin, so that "equivalent" can be reached.
DuelSettings StudyDuelSettings(const StudyPlan& plan, double seconds);

// A fifth of what the finished cells took to train.
double DefaultDuelSeconds(const std::vector<Cell>& cells);

// Whether the record is a whole duel of the plan's variants against its baseline, under its rule.
bool Covers(const DuelRecord& duel, const StudyPlan& plan);

// Why a duel is to run, for the user; empty where the one that is there stands. `asked_s`: the seconds that
// the user names; more of them than a duel had are a reason where it gave no verdict.
std::string WhyDuel(const std::optional<DuelRecord>& duel, const StudyPlan& plan, const Machine& machine,
                    const std::optional<double>& asked_s);

// Where the duel stands though more time is asked for: why, for the user. A duel that was seen may not decide
// whether there is another.
std::optional<std::string> WhyNoLongerDuel(const DuelRecord& duel, const std::optional<double>& asked_s);

// Nothing where there is none. Throws Error where it cannot be read.
std::optional<DuelRecord> ReadDuel(const std::filesystem::path& folder);
void WriteDuel(const DuelRecord& duel, const std::filesystem::path& folder);

}  // namespace normlab
