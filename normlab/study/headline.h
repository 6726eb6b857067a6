#pragma once
// The study in one or two plain sentences, for the top of every report. The first tells what was found
// about the test loss, variant by variant against the baseline; the second, where any time was judged,
// about training time. Says no more than the verdicts do: "undecided" comes with the seeds that would
// decide, an equivalence with its margin, a difference with its interval; runs that diverged, unfinished
// studies and undeclared looks are named.
// Pure. Empty for a study of one variant. No line breaks; names as Printable shows them.

#include <string>

#include "normlab/study/comparison.h"

namespace normlab {

std::string Headline(const StudyResults& results);

// Its two parts, each empty where there is nothing to say: on the loss, with the labels of an interim or
// exploratory study before it, and on time.
std::string LossHeadline(const StudyResults& results);
std::string SpeedHeadline(const StudyResults& results);

}  // namespace normlab
