#include "normlab/study/report/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "normlab/base/error.h"
#include "normlab/base/progress.h"
#include "normlab/base/text.h"
#include "normlab/stats/descriptive.h"

namespace normlab {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::vector<size_t> KeptForDrawing(std::span<const double> values, size_t stretches) {
  NL_CHECK(stretches > 0);
  std::vector<size_t> finite;
  for (size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i])) finite.push_back(i);
  if (finite.size() <= 2 * stretches) return finite;

  std::vector<size_t> kept = {finite.front(), finite.back()};
  for (size_t s = 0; s < stretches; ++s) {
    const auto begin = finite.begin() + static_cast<std::ptrdiff_t>(s * finite.size() / stretches);
    const auto end = finite.begin() + static_cast<std::ptrdiff_t>((s + 1) * finite.size() / stretches);
    const auto [least, greatest] =
        std::minmax_element(begin, end, [&](size_t a, size_t b) { return values[a] < values[b]; });
    kept.push_back(*least);
    kept.push_back(*greatest);
  }
  std::ranges::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

std::vector<NotFinite> NotFiniteRanges(const Curve& curve, size_t stretches) {
  NL_CHECK(stretches > 0);
  const size_t apart = std::max<size_t>(1, curve.step.size() / stretches);  // what a drawing can tell apart
  std::vector<NotFinite> ranges;
  size_t last = 0;  // index of the last one that is not finite
  for (size_t i = 0; i < curve.step.size(); ++i) {
    if (std::isfinite(curve.value[i])) continue;
    if (ranges.empty() || i - last > apart)
      ranges.push_back({.from = curve.step[i], .what = std::string(NonFiniteText(curve.value[i]))});
    ranges.back().to = curve.step[i];
    ++ranges.back().count;
    last = i;
  }
  return ranges;
}

std::string NotFiniteText(const Curve& curve) {
  const std::vector<NotFinite> one = NotFiniteRanges(curve, 1);
  if (one.empty()) return "";
  return fmt::format("{} from step {:.0f} ({} of {})", one[0].what, one[0].from,
                     FormatCount(static_cast<int64_t>(one[0].count)), Counted(curve.step.size(), "step"));
}

CurveOverSeeds OverSeeds(std::span<const Curve> runs) {
  CurveOverSeeds over{.n = runs.size()};
  if (runs.empty()) return over;
  std::vector<size_t> at(runs.size(), 0);
  std::vector<double> values(runs.size());
  for (size_t i = 0; i < runs[0].step.size(); ++i) {
    const double step = runs[0].step[i];
    bool everywhere = true, finite = true;
    for (size_t r = 0; r < runs.size(); ++r) {
      const Curve& run = runs[r];
      while (at[r] < run.step.size() && run.step[at[r]] < step) ++at[r];
      everywhere = everywhere && at[r] < run.step.size() && run.step[at[r]] == step;
      if (!everywhere) break;
      values[r] = run.value[at[r]];
      finite = finite && std::isfinite(values[r]);
    }
    if (!everywhere) continue;
    over.step.push_back(step);
    over.mean.push_back(finite ? stats::Mean(values) : kNaN);
    over.sd.push_back(finite && runs.size() > 1 ? stats::SampleSd(values) : kNaN);
    over.least.push_back(finite ? std::ranges::min(values) : kNaN);
    over.greatest.push_back(finite ? std::ranges::max(values) : kNaN);
  }
  return over;
}

Curve Difference(const Curve& variant, const Curve& baseline) {
  Curve difference;
  size_t b = 0;
  for (size_t v = 0; v < variant.step.size(); ++v) {
    while (b < baseline.step.size() && baseline.step[b] < variant.step[v]) ++b;
    if (b == baseline.step.size() || baseline.step[b] != variant.step[v]) continue;
    difference.step.push_back(variant.step[v]);
    difference.value.push_back(variant.value[v] - baseline.value[b]);
  }
  return difference;
}

}  // namespace normlab
