#pragma once
// What a study found, in sentences: what a reader takes home first. Pure.

#include <string>
#include <vector>

#include "normlab/base/json.h"
#include "normlab/study/comparison.h"

namespace normlab {

// One sentence on the loss, over all variants: verdicts with their direction and size. Of a study with cells
// still to run: that there is no verdict yet.
std::string LossSentence(const StudyResults& results);

// One on speed: of the duel where results.json has one ("duel"), else of whole runs.
std::string SpeedSentence(const StudyResults& results, const Json& duel);

// How the numbers came about, in plain words, a paragraph each: what seeds vary and what they do not, what an
// interval covers, what a margin is.
std::vector<std::string> Method(const StudyResults& results);

// The command that makes the study again in the folder `out`, for a POSIX shell. Empty where its variants are
// no grid of key values that one command can name.
std::string ReproducingCommand(const StudyPlan& plan, const std::string& out);

}  // namespace normlab
