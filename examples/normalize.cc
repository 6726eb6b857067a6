// Normalizes the rows of a program's own arrays with RMSNorm, forward and backward, and checks the answers.
#include <cmath>
#include <cstdio>
#include <vector>

#include <normlab/base/version.h>
#include <normlab/kernels/cpu/cpu_device.h>
#include <normlab/kernels/host_view.h>

using namespace normlab;  // NOLINT(google-build-using-namespace): a program, not a library

int main() {
  const int64_t rows = 2, cols = 4;
  const std::vector<float> x = {3, 0, 0, 0, 1, -1, 1, -1};
  const std::vector<float> dy = {1, 1, 1, 1, 1, 0, 0, 0};
  const std::vector<float> weight = {1, 2, 3, 4};
  std::vector<float> y(x.size()), dx(x.size()), dweight(weight.size());

  const auto device = MakeCpuDevice({.threads = 2});
  const NormType norm = ParseNormType("rmsnorm");
  const NormSpec spec{.kind = norm.kind, .implementation = norm.implementation, .eps = 0};
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

  // Row 0 has the root mean square 3/2, row 1 has 1.
  const std::vector<float> want_y = {2, 0, 0, 0, 1, -2, 3, -4};
  const std::vector<float> want_dx = {0, 4.0f / 3, 2, 8.0f / 3, 0.75f, 0.25f, -0.25f, 0.25f};
  const std::vector<float> want_dweight = {3, 0, 0, 0};
  const auto near = [](const std::vector<float>& got, const std::vector<float>& want) {
    for (size_t i = 0; i < want.size(); ++i)
      if (!(std::abs(got[i] - want[i]) <= 1e-6f)) return false;
    return got.size() == want.size();
  };
  const bool right = near(y, want_y) && near(dx, want_dx) && near(dweight, want_dweight);
  std::printf("normlab %s: y[0] = %g, dx[1] = %g: %s\n", NORMLAB_VERSION, y[0], dx[1],
              right ? "right" : "WRONG");
  return right ? 0 : 1;
}
