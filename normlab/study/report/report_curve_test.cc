#include "normlab/study/report/curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace normlab {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// steps 1 to n; value(step)
Curve MakeCurve(size_t n, auto&& value) {
  Curve curve;
  for (size_t step = 1; step <= n; ++step) {
    curve.step.push_back(static_cast<double>(step));
    curve.value.push_back(value(step));
  }
  return curve;
}

TEST(CurveTest, ASpikeAmongHundredThousandStepsStays) {
  const Curve curve = MakeCurve(100000, [](size_t step) {
    if (step == 54321) return 9.5;
    if (step > 90000) return 0.0;
    return 3 + 0.01 * std::sin(static_cast<double>(step));
  });
  const std::vector<size_t> kept = KeptForDrawing(curve.value, 500);
  EXPECT_LE(kept.size(), 1002u);
  EXPECT_TRUE(std::ranges::is_sorted(kept));
  EXPECT_EQ(kept.front(), 0u);
  EXPECT_EQ(kept.back(), 99999u);
  EXPECT_TRUE(std::ranges::binary_search(kept, 54320u));
  // The tail of zeros is drawn to its end, from where it begins.
  EXPECT_EQ(curve.value[kept.back()], 0);
  const auto zeros = std::ranges::count_if(kept, [&](size_t i) { return curve.value[i] == 0; });
  EXPECT_GE(zeros, 2);
}

TEST(CurveTest, EveryStretchKeepsItsExtent) {
  const Curve curve = MakeCurve(1000, [](size_t step) { return std::sin(static_cast<double>(step * step)); });
  const std::vector<size_t> kept = KeptForDrawing(curve.value, 10);
  for (size_t s = 0; s < 10; ++s) {
    const auto stretch = std::span(curve.value).subspan(s * 100, 100);
    double least = kInf, greatest = -kInf;
    for (const size_t i : kept) {
      if (i / 100 != s) continue;
      least = std::min(least, curve.value[i]);
      greatest = std::max(greatest, curve.value[i]);
    }
    EXPECT_EQ(least, std::ranges::min(stretch));
    EXPECT_EQ(greatest, std::ranges::max(stretch));
  }
}

TEST(CurveTest, ShortCurvesStayWhole) {
  const Curve curve = MakeCurve(20, [](size_t step) { return static_cast<double>(step); });
  EXPECT_EQ(KeptForDrawing(curve.value, 10).size(), 20u);
  EXPECT_TRUE(KeptForDrawing({}, 10).empty());
}

TEST(CurveTest, NaNAtEveryStepNotDivisibleByFiveIsTold) {
  const Curve curve = MakeCurve(100, [](size_t step) { return step % 5 == 0 ? 2.0 : std::nan(""); });
  EXPECT_EQ(NotFiniteText(curve), "nan from step 1 (80 of 100 steps)");
  const std::vector<NotFinite> ranges = NotFiniteRanges(curve, 500);
  ASSERT_EQ(ranges.size(), 20u);
  EXPECT_EQ(ranges[0], (NotFinite{.from = 1, .to = 4, .count = 4, .what = "nan"}));
  EXPECT_EQ(ranges[19], (NotFinite{.from = 96, .to = 99, .count = 4, .what = "nan"}));
  EXPECT_EQ(KeptForDrawing(curve.value, 500).size(), 20u);
}

TEST(CurveTest, ACurveThatEndsInInfinityIsTold) {
  const Curve curve = MakeCurve(50, [](size_t step) { return step < 49 ? 1.0 : step == 49 ? kInf : NAN; });
  EXPECT_EQ(NotFiniteText(curve), "inf from step 49 (2 of 50 steps)");
  EXPECT_EQ(NotFiniteText(MakeCurve(5, [](size_t) { return 1.0; })), "");
}

TEST(CurveTest, RangesThatADrawingCannotTellApartAreOne) {
  const Curve curve = MakeCurve(100000, [](size_t step) { return step % 5 == 0 ? 2.0 : std::nan(""); });
  const std::vector<NotFinite> ranges = NotFiniteRanges(curve, 500);
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].count, 80000u);
}

TEST(CurveTest, OverSeedsHasMeanSdAndRangeAndAveragesNothingAway) {
  const std::vector<Curve> runs = {{{1, 2, 3}, {1, 2, 3}}, {{1, 2, 3}, {3, NAN, 5}}, {{1, 2, 3}, {5, 2, 7}}};
  const CurveOverSeeds over = OverSeeds(runs);
  EXPECT_EQ(over.n, 3u);
  EXPECT_EQ(over.step, (std::vector<double>{1, 2, 3}));
  EXPECT_DOUBLE_EQ(over.mean[0], 3);
  EXPECT_DOUBLE_EQ(over.sd[0], 2);
  EXPECT_EQ(over.least[0], 1);
  EXPECT_EQ(over.greatest[0], 5);
  EXPECT_TRUE(std::isnan(over.mean[1]));
  EXPECT_TRUE(std::isnan(over.greatest[1]));
  EXPECT_DOUBLE_EQ(over.mean[2], 5);
}

TEST(CurveTest, StepsThatARunLacksAreLeftOut) {
  const std::vector<Curve> runs = {{{1, 2, 3}, {1, 2, 3}}, {{2, 3, 4}, {4, 5, 6}}};
  const CurveOverSeeds over = OverSeeds(runs);
  EXPECT_EQ(over.step, (std::vector<double>{2, 3}));
  EXPECT_EQ(over.mean, (std::vector<double>{3, 4}));
  EXPECT_TRUE(std::isnan(OverSeeds(std::span(runs).first(1)).sd[0]));
}

TEST(CurveTest, DifferencesArePairedByStep) {
  const Curve difference = Difference({{1, 2, 4}, {5, 6, 7}}, {{2, 3, 4}, {1, 1, 3}});
  EXPECT_EQ(difference.step, (std::vector<double>{2, 4}));
  EXPECT_EQ(difference.value, (std::vector<double>{5, 4}));
}

}  // namespace
}  // namespace normlab
