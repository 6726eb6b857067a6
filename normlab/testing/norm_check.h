#pragma once
// Is an answer to a NormProblem right? The oracle (the norm's body in float64 on the reference device) or a
// golden file says what is expected, the formulas below say how far an fp32 implementation may be from it.
// The checker takes any answer, so that a test can also hand it wrong ones.
//
// The bounds. Let u = 2^-24 (half an ulp of 1), k = 4 + sqrt(cols), inv = inv_std or inv_rms of the row,
//   a[c] = (|x[c]| + mean|x|) * inv      the size of what is subtracted and scaled to make xhat[c].
// A sum of n rounded terms is wrong by at most (n - 1) u times the sum of their magnitudes; with 16 or more
// lanes and roundings of both signs, by less than (sqrt(n) + 4) u times it, which is the certain bound up to
// n = 7. The 4 also pays for the few single roundings beside the sum: square root, division, gain, eps in
// fp32.
//   xhat:    k u a                                   (mean and inv: k u each, relative to mean|x| and to 1)
//   forward: u |y| + k u (a |gain| + |bias|)
// Backward, with g = dy gain, m1 = mean(g), m2 = mean(g xhat), dx = inv (g - m1 - xhat m2), first order in
// each factor, plus the one second-order term that matters where |mean| >> spread:
//   g: u |g|      m1: k u mean|g|      m2: k u mean(|g| a)      inv: k u
//   dx: u |dx| + k u inv (|g| + mean|g| + a |m2| + |xhat| mean(|g| a) + k u a mean(|g| a))
//   dweight: u |total| + k u sum_r |dy| a + q u (|before| + sum_r |dy xhat|)
//   dbias:   u |total| + q u (|before| + sum_r |dy|),      q = 4 + sqrt(rows), the sum over rows
// and u |total| more where dx is added to what was there. The identity's bounds are those roundings alone: y
// and a plain dx are exact. `sum` is one fp32 addition: exact to the bit. With an implementation that keeps
// the mean to more than fp32 (Centering::kExact), a is made of deviations |x - mean| instead of |x|: the
// bound no longer grows with the offset of a row.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "normlab/kernels/reference/reference_device.h"
#include "normlab/testing/device_tensor.h"
#include "normlab/testing/near.h"
#include "normlab/testing/norm_problem.h"

namespace normlab::test {

enum class Centering { kRounded, kExact };

struct NormExpectation {
  NormAnswer answer, tolerance;
};

// Runs a problem on a device, between guards.
inline NormAnswer RunNorm(Device& device, const NormProblem& p, const NormLayout& layout = {}) {
  using Alias = NormLayout::Alias;
  const Placement placement{layout.misalignment, layout.row_gap};
  const auto matrix_in = [&](const Values& v) {
    return v.empty() && p.rows * p.cols > 0 ? DeviceTensor()
                                            : DeviceTensor::Input(device, p.rows, p.cols, v, placement);
  };
  const auto vector_in = [&](bool wanted, const Values& v) {
    return wanted ? DeviceTensor::Input(device, 1, p.cols, v, {layout.misalignment, 0}) : DeviceTensor();
  };
  const auto vector_out = [&](bool wanted, const Values& before) {
    if (!wanted) return DeviceTensor();
    const Placement at{layout.misalignment, 0};
    return p.accumulate_dparams ? DeviceTensor::Accumulator(device, 1, p.cols, before, at)
                                : DeviceTensor::Output(device, 1, p.cols, at);
  };
  NormAnswer answer;

  // ---- Forward.
  const bool residual = !p.residual.empty(), identity = InfoOf(p.spec.kind).identity;
  const int64_t saved_elements = device.NormSavedElements(p.spec, p.rows, p.cols);
  DeviceTensor x = matrix_in(p.x), residual_in = residual ? matrix_in(p.residual) : DeviceTensor();
  DeviceTensor weight = vector_in(p.has_weight(), p.weight), bias = vector_in(p.has_bias(), p.bias);
  DeviceTensor saved = saved_elements > 0 ? DeviceTensor::Output(device, 1, saved_elements) : DeviceTensor();
  DeviceTensor sum_own, y_own;
  if (residual && layout.sum == Alias::kNone)
    sum_own = DeviceTensor::Output(device, p.rows, p.cols, placement);
  if (layout.y == Alias::kNone) y_own = DeviceTensor::Output(device, p.rows, p.cols, placement);
  const DeviceTensor& sum = layout.sum == Alias::kX ? x : layout.sum == Alias::kOther ? residual_in : sum_own;
  const DeviceTensor& y = layout.y == Alias::kNone ? y_own : residual ? sum : x;
  device.NormForward({.spec = p.spec,
                      .x = x.view(),
                      .residual = residual_in.view(),
                      .weight = weight.Vector(),
                      .bias = bias.Vector(),
                      .sum = residual ? sum.view() : View{},
                      .y = y.view(),
                      .saved = saved.Vector()});
  if (residual) answer.sum = sum.Values();
  answer.y = y.Values();
  for (const DeviceTensor* tensor : {&x, &residual_in, &weight, &bias, &saved, &sum_own, &y_own})
    answer.guards_intact &= tensor->GuardsIntact();
  if (&sum != &x && &y != &x) answer.guards_intact &= x.Values() == p.x;
  if (residual && &sum != &residual_in && &y != &residual_in)
    answer.guards_intact &= residual_in.Values() == p.residual;

  // ---- Backward, on a fresh copy of what was normalized.
  DeviceTensor normalized = identity ? DeviceTensor() : matrix_in(p.Normalized());
  DeviceTensor dy = matrix_in(p.dy);
  DeviceTensor dx_own;
  const bool own = p.accumulate_dx || layout.dx == Alias::kNone || (identity && layout.dx == Alias::kX);
  if (p.accumulate_dx) {
    dx_own = DeviceTensor::Accumulator(device, p.rows, p.cols, p.dx_before, placement);
  } else if (own) {
    dx_own = DeviceTensor::Output(device, p.rows, p.cols, placement);
  }
  const DeviceTensor& dx = own ? dx_own : layout.dx == Alias::kX ? normalized : dy;
  DeviceTensor dweight = vector_out(p.has_weight(), p.dweight_before),
               dbias = vector_out(p.has_bias(), p.dbias_before);
  device.NormBackward({.spec = p.spec,
                       .x = normalized.view(),
                       .dy = dy.view(),
                       .weight = weight.Vector(),
                       .saved = saved.Vector(),
                       .dx = dx.view(),
                       .dweight = dweight.Vector(),
                       .dbias = dbias.Vector(),
                       .accumulate_dx = p.accumulate_dx,
                       .accumulate_dparams = p.accumulate_dparams});
  answer.dx = dx.Values();
  answer.dweight = dweight.Values();
  answer.dbias = dbias.Values();
  for (const DeviceTensor* tensor : {&normalized, &dy, &dx_own, &dweight, &dbias, &weight, &saved})
    answer.guards_intact &= tensor->GuardsIntact();
  if (&dx != &dy) answer.guards_intact &= dy.Values() == p.dy;
  return answer;
}

// The bounds above for a problem whose right answer is `right`; `unit` is u.
inline NormAnswer NormTolerance(const NormProblem& p, const NormAnswer& right, double unit = kUnitF32,
                                Centering centering = Centering::kRounded) {
  const int64_t rows = p.rows, cols = p.cols;
  const double u = unit, k = 4 + std::sqrt(static_cast<double>(cols)),
               q = 4 + std::sqrt(static_cast<double>(rows));
  const bool identity = InfoOf(p.spec.kind).identity, centred = p.spec.kind == NormKind::kLayerNorm;
  const Values x = p.Normalized();
  NormAnswer t;
  t.sum.assign(right.sum.size(), 0);
  t.y.resize(right.y.size());
  t.dx.resize(right.dx.size());
  Values dweight_terms(right.dweight.size()), dweight_xhat(right.dweight.size()),
      dbias_terms(right.dbias.size());
  Values a(cols), xhat(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const double* const xr = x.data() + r * cols;
    double mean = 0, mean_abs = 0, square = 0, mean_g = 0, m2 = 0, mean_ga = 0;
    for (int64_t c = 0; c < cols; ++c) mean += xr[c] / static_cast<double>(cols);
    if (!centred) mean = 0;
    for (int64_t c = 0; c < cols; ++c) square += (xr[c] - mean) * (xr[c] - mean) / static_cast<double>(cols);
    const double inv = identity ? 0 : 1 / std::sqrt(square + p.spec.eps);
    const double origin = centering == Centering::kExact ? mean : 0;
    for (int64_t c = 0; c < cols; ++c) mean_abs += std::abs(xr[c] - origin) / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const double g = p.dy[r * cols + c] * p.Gain(c);
      xhat[c] = (xr[c] - mean) * inv;
      a[c] = (std::abs(xr[c] - origin) + mean_abs) * inv;
      mean_g += std::abs(g) / static_cast<double>(cols);
      mean_ga += std::abs(g) * a[c] / static_cast<double>(cols);
      m2 += g * xhat[c] / static_cast<double>(cols);
    }
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t i = r * cols + c;
      const double dy = std::abs(p.dy[i]), g = dy * std::abs(p.Gain(c));
      const double bias = p.bias.empty() ? 0 : std::abs(p.bias[c]);
      t.y[i] = identity ? 0 : u * std::abs(right.y[i]) + k * u * (a[c] * std::abs(p.Gain(c)) + bias);
      const double total = p.accumulate_dx ? u * std::abs(right.dx[i]) : 0;
      const double first = g + mean_g + a[c] * std::abs(m2) + std::abs(xhat[c]) * mean_ga;
      const double own_dx = std::abs(right.dx[i] - (p.accumulate_dx ? p.dx_before[i] : 0));
      t.dx[i] = total + (identity ? 0 : u * own_dx + k * u * inv * (first + k * u * a[c] * mean_ga));
      if (!dweight_terms.empty()) dweight_terms[c] += dy * a[c], dweight_xhat[c] += dy * std::abs(xhat[c]);
      if (!dbias_terms.empty()) dbias_terms[c] += dy;
    }
  }
  const auto before = [&](const Values& v, int64_t c) { return p.accumulate_dparams ? std::abs(v[c]) : 0; };
  t.dweight.resize(right.dweight.size());
  t.dbias.resize(right.dbias.size());
  for (int64_t c = 0; c < static_cast<int64_t>(t.dweight.size()); ++c)
    t.dweight[c] = u * std::abs(right.dweight[c]) + k * u * dweight_terms[c] +
                   q * u * (before(p.dweight_before, c) + dweight_xhat[c]);
  for (int64_t c = 0; c < static_cast<int64_t>(t.dbias.size()); ++c)
    t.dbias[c] = u * std::abs(right.dbias[c]) + q * u * (before(p.dbias_before, c) + dbias_terms[c]);
  return t;
}

// The oracle's answer to a problem and the bounds around it. The oracle normalizes the fp32 sum.
inline NormExpectation Expect(const NormProblem& p) {
  static const std::unique_ptr<Device> oracle = MakeReferenceDevice();
  NormProblem without_residual = p;
  without_residual.residual.clear();
  if (!p.residual.empty()) without_residual.x = p.Normalized();
  NormExpectation e{.answer = RunNorm(*oracle, without_residual), .tolerance = {}};
  if (!p.residual.empty()) e.answer.sum = p.Normalized();
  e.tolerance = NormTolerance(p, e.answer);
  return e;
}

// The worst share of each output, over all answers that were added.
struct NormVerdict {
  Comparison sum{"sum"}, y{"y"}, dx{"dx"}, dweight{"dweight"}, dbias{"dbias"};
  bool guards_intact = true;

  void Add(const NormAnswer& got, const NormExpectation& want) {
    const auto add = [](Comparison& c, const Values& g, const Values& w, const Values& t) {
      if (!w.empty() || !g.empty()) c.AddAll(g, w, t);
    };
    add(sum, got.sum, want.answer.sum, want.tolerance.sum);
    add(y, got.y, want.answer.y, want.tolerance.y);
    add(dx, got.dx, want.answer.dx, want.tolerance.dx);
    add(dweight, got.dweight, want.answer.dweight, want.tolerance.dweight);
    add(dbias, got.dbias, want.answer.dbias, want.tolerance.dbias);
    guards_intact &= got.guards_intact;
  }
  // The largest error as a share of its tolerance; infinite where something was written outside the outputs.
  double worst() const {
    const double largest = std::max({sum.worst(), y.worst(), dx.worst(), dweight.worst(), dbias.worst()});
    return guards_intact ? largest : std::numeric_limits<double>::infinity();
  }
  std::string ToString() const {
    std::string text = guards_intact ? "" : "memory outside the outputs was written, or an input changed\n";
    for (const Comparison* c : {&sum, &y, &dx, &dweight, &dbias})
      if (c->count() > 0) text += "  " + c->ToString() + "\n";
    return text;
  }
};

inline NormVerdict CheckNorm(const NormAnswer& got, const NormExpectation& want) {
  NormVerdict verdict;
  verdict.Add(got, want);
  return verdict;
}

}  // namespace normlab::test
