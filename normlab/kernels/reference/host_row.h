#pragma once
// The plainest Row (see norms/row.h): one row copied into vectors, sums over 16 lanes. With double it is the
// oracle; with float, the tests build broken norms on it.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "normlab/base/view.h"
#include "normlab/kernels/device.h"

namespace normlab::reference {

// Element (i) or (row, column) of a view whose dtype is that of T.
template <class T>
T& At(const View& view, int64_t i) {
  return view.as<T>()[i * view.strides[0]];
}
template <class T>
T& At(const View& view, int64_t row, int64_t column) {
  return view.as<T>()[row * view.strides[0] + column * view.strides[1]];
}
template <class T>
T& At(const View& view, int64_t i, int64_t j, int64_t k) {
  return view.as<T>()[i * view.strides[0] + j * view.strides[1] + k * view.strides[2]];
}
template <class T>
T& At(const View& view, int64_t i, int64_t j, int64_t k, int64_t l) {
  return view.as<T>()[i * view.strides[0] + j * view.strides[1] + k * view.strides[2] + l * view.strides[3]];
}

template <class T>
class HostRow {
 public:
  using Scalar = T;

  explicit HostRow(int64_t cols)
      : x_(cols),
        dy_(cols),
        y_(cols),
        dx_(cols),
        gain_(cols, T{1}),
        bias_(cols),
        dgain_(cols),
        dbias_(cols) {}

  // ---- Filled and read by whoever runs the norm.
  std::vector<T>& x_values() { return x_; }
  std::vector<T>& dy_values() { return dy_; }
  std::vector<T>& gain_values() { return gain_; }
  std::vector<T>& bias_values() { return bias_; }
  const std::vector<T>& y_values() const { return y_; }
  const std::vector<T>& dx_values() const { return dx_; }        // of this row
  const std::vector<T>& dgain_values() const { return dgain_; }  // summed over all rows so far
  const std::vector<T>& dbias_values() const { return dbias_; }
  T dalpha_value() const { return dalpha_; }  // summed over all rows so far
  void set_alpha(T alpha) { alpha_ = alpha; }
  void set_saved(T* saved) { saved_ = saved; }

  // ---- What the body of a norm uses.
  int64_t cols() const { return static_cast<int64_t>(x_.size()); }
  T x(int64_t c) const { return x_[c]; }
  T dy(int64_t c) const { return dy_[c]; }
  T gain(int64_t c) const { return gain_[c]; }
  T bias(int64_t c) const { return bias_[c]; }
  T alpha() const { return alpha_; }
  template <class F>
  T Sum(F&& f) const {
    return SumFirst(cols(), f);
  }
  template <class F>
  T SumFirst(int64_t count, F&& f) const {
    T lane[16] = {};
    for (int64_t c = 0; c < count; ++c) lane[c % 16] += f(c);
    T sum{0};
    for (const T l : lane) sum += l;
    return sum;
  }
  template <class F>
  void ForEach(F&& f) const {
    for (int64_t c = 0; c < cols(); ++c) f(c);
  }
  T Rsqrt(T v) const {
    if (v == T{0}) return T{0};
    return std::isinf(v) ? std::numeric_limits<T>::quiet_NaN() : T{1} / std::sqrt(v);
  }
  T Tanh(T v) const { return std::tanh(v); }
  T Stored(T v) const { return v; }
  void Save(int slot, T v) { saved_[slot] = v; }
  T Saved(int slot) const { return saved_[slot]; }
  void SetY(int64_t c, T v) { y_[c] = v; }
  void SetDx(int64_t c, T v) { dx_[c] = v; }
  void AddDgain(int64_t c, T v) { dgain_[c] += v; }
  void AddDbias(int64_t c, T v) { dbias_[c] += v; }
  void AddDalpha(T v) { dalpha_ += v; }

 private:
  std::vector<T> x_, dy_, y_, dx_, gain_, bias_, dgain_, dbias_;
  T alpha_{0}, dalpha_{0};
  T* saved_ = nullptr;
};

// The effective parameters: weight + weight_offset, or 1; bias, or 0; alpha.
template <class T>
void ReadParameters(const NormSpec& spec, const View& weight, const View& bias, const View& alpha,
                    HostRow<T>& row) {
  if (!alpha.empty()) row.set_alpha(At<T>(alpha, 0));
  for (int64_t c = 0; c < row.cols(); ++c) {
    if (!weight.empty()) row.gain_values()[c] = At<T>(weight, c) + static_cast<T>(spec.weight_offset);
    if (!bias.empty()) row.bias_values()[c] = At<T>(bias, c);
  }
}

// NormForwardArgs with the body of `Norm`, row after row.
template <class Norm, class T>
void RunNormForward(const NormForwardArgs& args) {
  const int64_t rows = args.x.shape[0], cols = args.x.shape[1];
  const NormNumbers<T> numbers = NumbersOf<T>(args.spec, cols);
  HostRow<T> row(cols);
  ReadParameters(args.spec, args.weight, args.bias, args.alpha, row);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      T& x = row.x_values()[c] = At<T>(args.x, r, c);
      if (!args.residual.empty()) x = At<T>(args.residual, r, c) + x;
    }
    if (!args.saved.empty()) row.set_saved(args.saved.as<T>() + r * Norm::kInfo.saved_per_row);
    Norm::Forward(row, numbers);
    for (int64_t c = 0; c < cols; ++c) {
      if (!args.sum.empty()) At<T>(args.sum, r, c) = row.x(c);
      At<T>(args.y, r, c) = row.y_values()[c];
    }
  }
}

// NormBackwardArgs with the body of `Norm`, row after row; the parameter gradients are written at the end.
template <class Norm, class T>
void RunNormBackward(const NormBackwardArgs& args) {
  const int64_t rows = args.dy.shape[0], cols = args.dy.shape[1];
  const NormNumbers<T> numbers = NumbersOf<T>(args.spec, cols);
  HostRow<T> row(cols);
  ReadParameters(args.spec, args.weight, View{}, args.alpha, row);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      if (!args.x.empty()) row.x_values()[c] = At<T>(args.x, r, c);
      row.dy_values()[c] = At<T>(args.dy, r, c);
    }
    if (!args.saved.empty()) row.set_saved(args.saved.as<T>() + r * Norm::kInfo.saved_per_row);
    Norm::Backward(row, numbers);
    for (int64_t c = 0; c < cols; ++c) {
      T& dx = At<T>(args.dx, r, c);
      dx = (args.accumulate_dx ? dx : T{0}) + row.dx_values()[c];
      if (!args.dx_low.empty()) At<T>(args.dx_low, r, c) = dx;  // of the one type that there is here
    }
  }
  const auto write = [&](const View& view, const std::vector<T>& gradient) {
    if (view.empty()) return;
    for (int64_t c = 0; c < cols; ++c) {
      T& value = At<T>(view, c);
      value = (args.accumulate_dparams ? value : T{0}) + gradient[c];
    }
  };
  write(args.dweight, row.dgain_values());
  write(args.dbias, row.dbias_values());
  if (args.dalpha.empty()) return;
  T& dalpha = At<T>(args.dalpha, 0);
  dalpha = (args.accumulate_dparams ? dalpha : T{0}) + row.dalpha_value();
}

}  // namespace normlab::reference
