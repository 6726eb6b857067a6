// Normalizes the rows of a program's own arrays with RMSNorm, forward and backward, and checks the answers.
#include <cmath>
#include <cstdio>
#include <vector>

#include <normlab/base/version.h>
#include <normlab/kernels/cpu/cpu_device.h>
#include <normlab/kernels/host_view.h>
#include <normlab/norms/norm_type.h>

using namespace normlab;  // NOLINT(google-build-using-namespace): a program, not a library

int main() {
  const int64_t rows = 2, cols = 4;
  const std::vector<float> x = {3, 0, 0, 0, 1, -1, 1, -1};
  const std::vector<float> dy = {1, 1, 1, 1, 1, 0, 0, 2};
  const std::vector<float> weight = {1, 2, 3, 4};
  std::vector<float> y(x.size()), dx(x.size()), dweight(weight.size());

  const auto device = MakeCpuDevice({.threads = 2});
  const NormType norm = ParseNormType("rmsnorm");
  const NormSpec spec{.kind = norm.kind, .implementation = norm.implementation};
  std::vector<float> saved(static_cast<size_t>(device->NormSavedElements(spec, rows, cols)));

  device->NormForward({.spec = spec,
                       .x = HostMatrix(x, rows, cols),
                       .weight = HostVector(weight),
                       .y = HostMatrix(y, rows, cols),
                       .saved = HostVector(saved)});
  device->NormBackward({.spec = spec,
                        .x = HostMatrix(x, rows, cols),
                        .dy = HostMatrix(dy, rows, cols),
                        .weight = HostVector(weight),
                        .saved = HostVector(saved),
                        .dx = HostMatrix(dx, rows, cols),
                        .dweight = HostVector(dweight)});

  // The formulas of normlab/norms/rmsnorm.h, in float64.
  bool right = true;
  const auto check = [&](float got, double want) { right = right && std::abs(got - want) <= 2e-6; };
  std::vector<double> sums(weight.size());
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0, products = 0;
    for (int64_t c = r * cols; c < (r + 1) * cols; ++c) squares += x[c] * x[c];
    const double inv_rms = 1 / std::sqrt(squares / cols + spec.eps);
    for (int64_t c = 0; c < cols; ++c) products += dy[r * cols + c] * weight[c] * x[r * cols + c] * inv_rms;
    for (int64_t c = 0; c < cols; ++c) {
      const double xhat = x[r * cols + c] * inv_rms, g = dy[r * cols + c] * weight[c];
      check(y[r * cols + c], weight[c] * xhat);
      check(dx[r * cols + c], inv_rms * (g - xhat * products / cols));
      sums[c] += dy[r * cols + c] * xhat;
    }
  }
  for (int64_t c = 0; c < cols; ++c) check(dweight[c], sums[c]);
  std::printf("normlab %s: y[0] = %g, dx[1] = %g: %s\n", NORMLAB_VERSION, y[0], dx[1],
              right ? "right" : "WRONG");
  return right ? 0 : 1;
}
