#pragma once
// How wrong may an fp32 run of a norm's body be? The body itself says: it is run once more on numbers that
// carry a bound of their error (running error analysis: Higham 2002, Accuracy and Stability of Numerical
// Algorithms, section 3.3), so every norm, also one that this project does not know yet, brings its tolerance
// with it.
//
//   u           half an ulp of 1 in the arithmetic that is judged: 2^-24 for fp32
//   a op b      the rounding u |result|, plus what the operands' errors do to the result
//   sum of n    (4 + sqrt(n)) u times the sum of the magnitudes, plus the terms' own errors. With 16 lanes
//   and
//               roundings of both signs a sum is wrong by less than (sqrt(n) + 4) u times the magnitudes,
//               which is the certain bound up to n = 7; the 4 also pays for a few single roundings beside it.
//   parameters' gradients, summed over rows: the same with the number of rows
//   a result that is stored in 16 bits: one rounding to these on top, half an ulp of it
//
// An implementation may round other intermediate values than the body does. Its freedom is modelled at the
// input: with Centering::kRounded every x[c] may be off by (4 + sqrt(cols)) u mean|x| of its row, which is
// what holding the mean in fp32 costs. The generic path runs the body as it stands and is judged without
// (Centering::kExact).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "normlab/norms/norm_list.h"
#include "normlab/norms/norm_spec.h"
#include "normlab/testing/norm_problem.h"

namespace normlab::test {

enum class Centering { kRounded, kExact };

// A value and how far from it a computed one may be.
struct Bounded {
  double value = 0, error = 0;

  // u of the arithmetic that is judged; set by ErrorBounds for the time of its work.
  static inline thread_local double unit = 0x1p-24;

  Bounded() = default;
  explicit Bounded(double v) : value(v) {}
  explicit Bounded(int64_t v) : value(static_cast<double>(v)) {}  // a width: exact
  Bounded(double v, double e) : value(v), error(e) {}
  static Bounded Rounded(double v, double e) { return {v, e + unit * std::abs(v)}; }

  friend Bounded operator+(const Bounded& a, const Bounded& b) {
    return Rounded(a.value + b.value, a.error + b.error);
  }
  friend Bounded operator-(const Bounded& a, const Bounded& b) {
    return Rounded(a.value - b.value, a.error + b.error);
  }
  friend Bounded operator-(const Bounded& a) { return {-a.value, a.error}; }
  friend Bounded operator*(const Bounded& a, const Bounded& b) {
    return Rounded(a.value * b.value,
                   std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error);
  }
  friend Bounded operator/(const Bounded& a, const Bounded& b) {
    const double q = a.value / b.value;
    return Rounded(q, (a.error + std::abs(q) * b.error) / std::abs(b.value));
  }
};

// One row of a problem as norms/row.h asks for it, forward or backward.
class BoundedRow {
 public:
  using Scalar = Bounded;

  BoundedRow(const NormProblem& p, const Values& normalized, int64_t row, Centering centering)
      : p_(p), x_(normalized.data() + row * p.cols), dy_(p.dy.data() + row * p.cols) {
    double mean = 0;
    for (int64_t c = 0; c < p.cols; ++c) mean += std::abs(x_[c]) / static_cast<double>(p.cols);
    if (centering == Centering::kRounded && !InfoOf(p.spec.kind).identity)
      x_error_ = SumFactor(p.cols) * Bounded::unit * mean;
    y.resize(static_cast<size_t>(p.cols));
    dx = dgain = dbias = y;
  }

  static double SumFactor(int64_t n) { return 4 + std::sqrt(static_cast<double>(n)); }

  std::vector<Bounded> y, dx, dgain, dbias;  // the contributions of this row
  Bounded dalpha;

  int64_t cols() const { return p_.cols; }
  Bounded x(int64_t c) const { return {x_[c], x_error_}; }
  Bounded dy(int64_t c) const { return Bounded(dy_[c]); }
  Bounded gain(int64_t c) const {
    if (p_.weight.empty()) return Bounded(1.0);
    return p_.spec.weight_offset == 0 ? Bounded(p_.weight[c])
                                      : Bounded(p_.weight[c]) + Bounded(p_.spec.weight_offset);
  }
  Bounded bias(int64_t c) const { return Bounded(p_.bias.empty() ? 0.0 : p_.bias[c]); }
  Bounded alpha() const { return Bounded(p_.alpha.empty() ? 0.0 : p_.alpha[0]); }

  template <class F>
  Bounded Sum(F&& f) const {
    return SumFirst(p_.cols, f);
  }
  template <class F>
  Bounded SumFirst(int64_t count, F&& f) const {
    double sum = 0, error = 0, magnitudes = 0;
    for (int64_t c = 0; c < count; ++c) {
      const Bounded term = f(c);
      sum += term.value, error += term.error, magnitudes += std::abs(term.value);
    }
    return {sum, error + SumFactor(count) * Bounded::unit * magnitudes};
  }
  template <class F>
  void ForEach(F&& f) const {
    for (int64_t c = 0; c < p_.cols; ++c) f(c);
  }

  // The error of v is small against v, or else of its size at most: to second order.
  Bounded Rsqrt(const Bounded& v) const {
    if (v.value == 0) return Bounded(0.0);
    const double root = 1 / std::sqrt(v.value), relative = v.error / v.value;
    return {root, root * (0.5 * relative + 0.375 * relative * relative + 3 * Bounded::unit)};
  }
  // A tanh within 4 units in the last place.
  Bounded Tanh(const Bounded& v) const {
    const double t = std::tanh(v.value), slope = 1 - t * t;
    return {t, slope * v.error + slope * v.error * v.error + 4 * Bounded::unit * std::abs(t)};
  }
  // One rounding to y's type.
  Bounded Stored(const Bounded& v) const {
    const DType dtype = p_.storage.y();
    if (dtype == DType::kF32) return v;
    return {v.value, v.error + UnitOf(dtype) * (std::abs(v.value) + v.error) + SmallestErrorOf(dtype)};
  }

  void Save(int slot, const Bounded& v) {
    saved_.resize(std::max(saved_.size(), static_cast<size_t>(slot) + 1));
    saved_[static_cast<size_t>(slot)] = v;
  }
  Bounded Saved(int slot) const { return saved_[static_cast<size_t>(slot)]; }
  void SetY(int64_t c, const Bounded& v) { y[c] = v; }
  void SetDx(int64_t c, const Bounded& v) { dx[c] = v; }
  void AddDgain(int64_t c, const Bounded& v) { dgain[c] = v; }
  void AddDbias(int64_t c, const Bounded& v) { dbias[c] = v; }
  void AddDalpha(const Bounded& v) { dalpha = v; }

 private:
  const NormProblem& p_;
  const double *x_, *dy_;
  double x_error_ = 0;
  std::vector<Bounded> saved_;
};

// What may separate an fp32 answer to a problem (`unit` = 2^-24) from the right one. `right` gives the shapes
// and the totals that the last additions round. An identity's y and plain dx are exact, and so is `sum`, one
// addition.
inline NormAnswer ErrorBounds(const NormProblem& p, const NormAnswer& right, double unit,
                              Centering centering) {
  const double before_unit = Bounded::unit;
  Bounded::unit = unit;
  const Values normalized = p.Normalized();
  NormAnswer t;
  t.sum.assign(right.sum.size(), 0);
  t.y.resize(right.y.size());
  t.dx.resize(right.dx.size());

  struct OverRows {
    double error = 0, magnitude = 0;
    void Add(const Bounded& v) { error += v.error, magnitude += std::abs(v.value); }
  };
  std::vector<OverRows> dgain(static_cast<size_t>(p.cols)), dbias(static_cast<size_t>(p.cols)), dalpha(1);
  NormNumbers<Bounded> numbers{.eps = Bounded::Rounded(p.spec.eps, 0),
                               .partial_cols = PartialCols(p.spec.fraction, p.cols),
                               .cast_before_gain = p.spec.cast == NormCast::kBeforeGain};
  // A result of 16 bits is rounded to them once, from what fp32 gives.
  const auto rounding = [](DType dtype, double right_value, double error) {
    if (dtype == DType::kF32) return 0.0;
    return UnitOf(dtype) * (std::abs(right_value) + error) + SmallestErrorOf(dtype);
  };
  for (int64_t r = 0; r < p.rows; ++r) {
    BoundedRow row(p, normalized, r, centering);
    AllNorms::Visit(p.spec.kind, [&](auto norm) {
      decltype(norm)::Forward(row, numbers);
      decltype(norm)::Backward(row, numbers);
    });
    for (int64_t c = 0; c < p.cols; ++c) {
      const int64_t i = r * p.cols + c;
      t.y[i] = row.y[c].error;
      t.y[i] += rounding(p.storage.y(), right.y[i], t.y[i]);
      t.dx[i] = row.dx[c].error + (p.accumulate_dx ? unit * std::abs(right.dx[i]) : 0);
      t.dx[i] += rounding(p.storage.stream(), right.dx[i], t.dx[i]);
      dgain[c].Add(row.dgain[c]);
      dbias[c].Add(row.dbias[c]);
    }
    dalpha[0].Add(row.dalpha);
  }
  const double over_rows = BoundedRow::SumFactor(p.rows) * unit;
  const auto finish = [&](Values& to, const Values& totals, const Values& before,
                          const std::vector<OverRows>& sums) {
    to.resize(totals.size());
    for (size_t c = 0; c < to.size(); ++c)
      to[c] = unit * std::abs(totals[c]) + sums[c].error +
              over_rows * (sums[c].magnitude + (p.accumulate_dparams ? std::abs(before[c]) : 0));
  };
  finish(t.dweight, right.dweight, p.dweight_before, dgain);
  finish(t.dbias, right.dbias, p.dbias_before, dbias);
  finish(t.dalpha, right.dalpha, p.dalpha_before, dalpha);
  Bounded::unit = before_unit;
  return t;
}

}  // namespace normlab::test
