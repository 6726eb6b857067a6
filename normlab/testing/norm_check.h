#pragma once
// Is an answer to a NormProblem right? The oracle (the norm's body in float64 on the reference device) or a
// golden file says what is expected, error_bound.h says how far an fp32 implementation may be from it.
// The checker takes any answer, so that a test can also hand it wrong ones.
//
// The bounds are those of error_bound.h.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "normlab/kernels/reference/reference_device.h"
#include "normlab/testing/device_tensor.h"
#include "normlab/testing/error_bound.h"
#include "normlab/testing/near.h"
#include "normlab/testing/norm_problem.h"

namespace normlab::test {

struct NormExpectation {
  NormAnswer answer, tolerance;
};

// Runs a problem on a device, between guards.
inline NormAnswer RunNorm(Device& device, const NormProblem& p, const NormLayout& layout = {}) {
  using Alias = NormLayout::Alias;
  const auto placement = [&](DType dtype) { return Placement{layout.misalignment, layout.row_gap, dtype}; };
  const auto matrix_in = [&](const Values& v, DType dtype) {
    return v.empty() && p.rows * p.cols > 0
               ? DeviceTensor()
               : DeviceTensor::Input(device, p.rows, p.cols, v, placement(dtype));
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
  const NormStorage& storage = p.storage;
  const DType stream = storage.stream(), x_type = storage.x(residual), y_type = storage.y();
  const int64_t saved_elements = device.NormSavedElements(p.spec, p.rows, p.cols);
  DeviceTensor x = matrix_in(p.x, x_type),
               residual_in = residual ? matrix_in(p.residual, stream) : DeviceTensor();
  DeviceTensor weight = vector_in(p.has_weight(), p.weight), bias = vector_in(p.has_bias(), p.bias);
  DeviceTensor alpha =
      p.has_alpha() ? DeviceTensor::Input(device, 1, 1, p.alpha, {layout.misalignment, 0}) : DeviceTensor();
  DeviceTensor saved = saved_elements > 0 ? DeviceTensor::Output(device, 1, saved_elements) : DeviceTensor();
  DeviceTensor sum_own, y_own;
  // What may alias is of one type.
  const Alias sum_alias = layout.sum == Alias::kX && x_type != stream ? Alias::kNone : layout.sum;
  const Alias y_alias = y_type != stream ? Alias::kNone : layout.y;
  if (residual && sum_alias == Alias::kNone)
    sum_own = DeviceTensor::Output(device, p.rows, p.cols, placement(stream));
  if (y_alias == Alias::kNone) y_own = DeviceTensor::Output(device, p.rows, p.cols, placement(y_type));
  const DeviceTensor& sum = sum_alias == Alias::kX ? x : sum_alias == Alias::kOther ? residual_in : sum_own;
  const DeviceTensor& y = y_alias == Alias::kNone ? y_own : residual ? sum : x;
  device.NormForward({.spec = p.spec,
                      .x = x.view(),
                      .residual = residual_in.view(),
                      .weight = weight.Vector(),
                      .bias = bias.Vector(),
                      .alpha = alpha.Vector(),
                      .sum = residual ? sum.view() : View{},
                      .y = y.view(),
                      .saved = saved.Vector()});
  if (residual) answer.sum = sum.Values();
  answer.y = y.Values();
  for (const DeviceTensor* tensor : {&x, &residual_in, &weight, &bias, &alpha, &saved, &sum_own, &y_own})
    answer.guards_intact &= tensor->GuardsIntact();
  if (&sum != &x && &y != &x) answer.guards_intact &= x.Values() == p.x;
  if (residual && &sum != &residual_in && &y != &residual_in)
    answer.guards_intact &= residual_in.Values() == p.residual;

  // ---- Backward, on a fresh copy of what was normalized.
  DeviceTensor normalized = identity ? DeviceTensor() : matrix_in(p.Normalized(), stream);
  DeviceTensor dy = matrix_in(p.dy, y_type);
  DeviceTensor dx_own, dx_low;
  const bool own = p.accumulate_dx || layout.dx == Alias::kNone || (identity && layout.dx == Alias::kX) ||
                   (layout.dx == Alias::kOther && y_type != stream);
  if (p.accumulate_dx) {
    dx_own = DeviceTensor::Accumulator(device, p.rows, p.cols, p.dx_before, placement(stream));
  } else if (own) {
    dx_own = DeviceTensor::Output(device, p.rows, p.cols, placement(stream));
  }
  if (storage.low_copy) dx_low = DeviceTensor::Output(device, p.rows, p.cols, placement(storage.low));
  const DeviceTensor& dx = own ? dx_own : layout.dx == Alias::kX ? normalized : dy;
  DeviceTensor dweight = vector_out(p.has_weight(), p.dweight_before),
               dbias = vector_out(p.has_bias(), p.dbias_before);
  DeviceTensor dalpha;
  if (p.has_alpha())
    dalpha = p.accumulate_dparams ? DeviceTensor::Accumulator(device, 1, 1, p.dalpha_before, {})
                                  : DeviceTensor::Output(device, 1, 1, {});
  device.NormBackward({.spec = p.spec,
                       .x = normalized.view(),
                       .dy = dy.view(),
                       .weight = weight.Vector(),
                       .alpha = alpha.Vector(),
                       .saved = saved.Vector(),
                       .dx = dx.view(),
                       .dx_low = dx_low.view(),
                       .dweight = dweight.Vector(),
                       .dbias = dbias.Vector(),
                       .dalpha = dalpha.Vector(),
                       .accumulate_dx = p.accumulate_dx,
                       .accumulate_dparams = p.accumulate_dparams});
  answer.dx = dx.Values();
  const Values low = dx_low.Values();
  for (size_t i = 0; i < low.size() && device.compute_dtype() == DType::kF32; ++i)
    answer.low_is_rounded_dx &= ErrorShare(low[i], RoundTo(storage.low, answer.dx[i]), 0) == 0 ||
                                (std::isnan(low[i]) && std::isnan(answer.dx[i]));
  answer.dweight = dweight.Values();
  answer.dbias = dbias.Values();
  answer.dalpha = dalpha.Values();
  for (const DeviceTensor* tensor :
       {&normalized, &dy, &dx_own, &dx_low, &dweight, &dbias, &dalpha, &weight, &alpha, &saved})
    answer.guards_intact &= tensor->GuardsIntact();
  if (&dx != &dy) answer.guards_intact &= dy.Values() == p.dy;
  return answer;
}

// The oracle's answer to a problem and the bounds around it. The oracle normalizes the sum as it is stored.
inline NormExpectation Expect(const NormProblem& p, Centering centering = Centering::kRounded) {
  static const std::unique_ptr<Device> oracle = MakeReferenceDevice();
  NormProblem without_residual = p;
  without_residual.residual.clear();
  if (!p.residual.empty()) without_residual.x = p.Normalized();
  NormExpectation e{.answer = RunNorm(*oracle, without_residual), .tolerance = {}};
  if (!p.residual.empty()) e.answer.sum = p.Normalized();
  e.tolerance = ErrorBounds(p, e.answer, kUnitF32, centering);
  return e;
}

// The worst share of each output, over all answers that were added.
struct NormVerdict {
  Comparison sum{"sum"}, y{"y"}, dx{"dx"}, dweight{"dweight"}, dbias{"dbias"}, dalpha{"dalpha"};
  bool guards_intact = true, low_is_rounded_dx = true;

  void Add(const NormAnswer& got, const NormExpectation& want) {
    const auto add = [](Comparison& c, const Values& g, const Values& w, const Values& t) {
      if (!w.empty() || !g.empty()) c.AddAll(g, w, t);
    };
    add(sum, got.sum, want.answer.sum, want.tolerance.sum);
    add(y, got.y, want.answer.y, want.tolerance.y);
    add(dx, got.dx, want.answer.dx, want.tolerance.dx);
    add(dweight, got.dweight, want.answer.dweight, want.tolerance.dweight);
    add(dbias, got.dbias, want.answer.dbias, want.tolerance.dbias);
    add(dalpha, got.dalpha, want.answer.dalpha, want.tolerance.dalpha);
    guards_intact &= got.guards_intact;
    low_is_rounded_dx &= got.low_is_rounded_dx;
  }
  std::array<const Comparison*, 6> all() const { return {&sum, &y, &dx, &dweight, &dbias, &dalpha}; }

  // The largest error as a share of its tolerance; infinite where something was written outside the outputs.
  double worst() const {
    double largest = 0;
    for (const Comparison* c : all()) largest = std::max(largest, c->worst());
    return guards_intact && low_is_rounded_dx ? largest : std::numeric_limits<double>::infinity();
  }
  std::string ToString() const {
    std::string text = guards_intact ? "" : "memory outside the outputs was written, or an input changed\n";
    if (!low_is_rounded_dx) text += "dx_low is not dx rounded\n";
    for (const Comparison* c : all())
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
