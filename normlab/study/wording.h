#pragma once
// The numbers and words of a study as every text for people shows them: the terminal, Markdown, the page.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/study/comparison.h"

namespace normlab {

// Stands for a number that does not exist.
inline constexpr std::string_view kNothing = "-";
std::string OrNothing(const std::optional<double>& value, auto&& format) {
  return value ? std::string(format(*value)) : std::string(kNothing);
}

std::string FormatSeconds(double value);     // "8.837", "45.30", "1234"
std::string FormatLoss(double value);        // "2.4799", nats
std::string FormatPercent(double fraction);  // "0.75%", "12%", "150%"
std::string FormatMebibytes(double value);   // of bytes: "172.7"
std::string FormatPValue(double value);      // "0.0340", "<.0001"
// "+0.0027"; a difference that four decimals would show as nothing keeps its size: "-6e-08".
std::string FormatLossDifference(double value);
// A ratio as a change: "-2.39%"; from tenfold on as a factor, "x12.5".
std::string FormatChange(double ratio);

// The verdict with its direction: "lower loss", "more time"; with "*" where it is interim.
std::string VerdictWord(const MetricComparison& comparison);

// The level at which the study as a whole may err.
std::string IntervalTitle(const StudyPlan& plan);  // "95% interval"
std::string IntervalName(const StudyPlan& plan);   // "simultaneous 95% interval"

std::string Varied(const StudyPlan& plan);        // the varied keys, or "one variant"
std::string SeedsText(const StudyPlan& plan);     // "1 to 5", "1, 2, 7", or "1 to 5 against 6 to 10"
std::string BaselineText(const StudyPlan& plan);  // "Baseline: a.", or what it is within each group
std::string DataText(const StudyPlan& plan);      // "book.txt, 4,406,227 tokens (bytes)"
std::string StepsText(const StudyPlan& plan);     // "60 steps of 4,096 tokens", of the baseline

std::string ThreadsText(const Machine& machine);  // "2 threads", "1 thread for each of 2 cells at a time"
// How whole runs stood in time, after "whole runs": "followed one another".
std::string HowRunsShared(const StudyResults& results);

// What differs between a variant and the baseline besides the varied keys: nobody should take it for their
// effect. "24 parameters fewer (100, of them 10 in norms)", "norm_eps 1e-06 instead of 1e-05".
std::vector<std::string> AlsoDiffers(const StudyPlan& plan, size_t variant);

}  // namespace normlab
