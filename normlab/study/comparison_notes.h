#pragma once
// What is worth knowing of a comparison besides its verdict, in plain English: the interval that carries the
// sampling of the held-out text, and the seeds whose difference is far out. Pure. Empty where there is
// nothing to say; otherwise sentences, each after a space.

#include <string>

#include "normlab/study/comparison.h"

namespace normlab {

std::string ComparisonNotes(const MetricComparison& comparison, const StudyPlan& plan);

}  // namespace normlab
