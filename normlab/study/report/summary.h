#pragma once
// How a study was made, in sentences, and the command that makes it again. Pure.

#include <string>
#include <vector>

#include "normlab/study/comparison.h"

namespace normlab {

// How the numbers came about, in plain words, a paragraph each: what seeds vary and what they do not, what an
// interval covers, what a margin is.
std::vector<std::string> Method(const StudyResults& results);

// The command that makes the study again in the folder `out`, for a POSIX shell. Empty where its variants are
// no grid of key values that one command can name.
std::string ReproducingCommand(const StudyPlan& plan, const std::string& out);

// A word for a POSIX shell: as it is where that is safe, else in quotes.
std::string ShellQuoted(const std::string& text);

}  // namespace normlab
