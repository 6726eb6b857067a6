// Products of the CPU device against the reference, in the three roles that a linear layer has, with every
// epilogue, accumulated or not, at sizes that take each path: one block, many blocks, cut columns, threads of
// the library.
//
// Bounds: a product of K terms has an error of (4 + sqrt K) u sum|a b|; bias and accumulation add one
// rounding each. GELU and its derivative are evaluated from z with the errors derived at GeluError and
// GeluSlopeError. Products of bf16 numbers are exact in fp32, and their sums are fp32's; each result that is
// stored as bf16 is rounded once more, and so is what an epilogue makes of it.

#include <cmath>

#include "normlab/testing/cpu_against_reference.h"

namespace normlab::test {
namespace {

using Epilogue = MatMulArgs::Epilogue;
constexpr double kU = kUnitF32;
constexpr double kUnitBf16 = 0x1p-8;

// gelu(z) = z s, s = 1 / (1 + e^-t), t = 2 sqrt(2/pi) (z + 0.044715 z^3). t has 4 roundings; the exponential
// is good to 2e-7 = 3.4 u; so s has a relative error of (1 - s) (4 u |t| + 4 u) + 2 u, the product one u
// more. Where results are stored as bf16 the exponential is good to 6e-5, and the reciprocal to 4 u.
struct Gelu {
  double t, s, slope, exponential, reciprocal;
  explicit Gelu(double z, bool coarse = false)
      : exponential(coarse ? 6e-5 : 4 * kU), reciprocal(coarse ? 4 * kU : 2 * kU) {
    const double root = 2 * std::sqrt(2 / M_PI);
    t = root * (z + 0.044715 * z * z * z);
    s = 1 / (1 + std::exp(-t));
    slope = root * (1 + 3 * 0.044715 * z * z);
  }
  double GateError() const { return s * ((1 - s) * (4 * kU * std::abs(t) + exponential) + reciprocal); }
  double Derivative(double z) const { return s + z * s * (1 - s) * slope; }
};
double GeluError(double z, bool coarse) {
  const Gelu g(z, coarse);
  return std::abs(z) * (g.GateError() + kU * g.s);
}
// gelu' = s + z s (1 - s) slope: 1 - s has an absolute error of u + that of s; four products and one sum
// round once each.
double GeluSlopeError(double z, bool coarse) {
  const Gelu g(z, coarse);
  const double curve = std::abs(z) * g.s * (1 - g.s) * g.slope;
  return g.GateError() + std::abs(z) * g.slope * (g.GateError() * std::abs(1 - 2 * g.s) + g.s * kU) +
         5 * kU * curve + kU;
}

// c = op(a) op(b) with a stored [m, k] or, transposed, [k, m].
struct Product {
  int64_t m, k, n;
  bool transpose_a, transpose_b;
  Epilogue epilogue = Epilogue::kNone;
  bool accumulate = false;
  bool bias = false;
  int64_t column_gap = 0;  // c is the first n columns of a wider matrix
  DType operands = DType::kF32, result = DType::kF32;

  std::string Text() const {
    return fmt::format("{} {}x{}x{} {} a{} b{} epilogue {} accumulate {} gap {}", Name(operands), m, k, n,
                       Name(result), transpose_a ? "T" : "", transpose_b ? "T" : "",
                       static_cast<int>(epilogue), accumulate, column_gap);
  }
};

class CpuMatMul : public CpuAgainstReference {
 protected:
  void CheckProduct(const Product& p) {
    const auto [m, k, n] = std::array{p.m, p.k, p.n};
    const auto as = [](DType type, Values values) {
      return type == DType::kBF16 ? RoundedToBf16(std::move(values)) : values;
    };
    const Values a = as(p.operands, RandomValues({m, k}, "a")), b = as(p.operands, RandomValues({k, n}, "b")),
                 bias = RandomValues({n}, "bias");
    const Values before = as(p.result, RandomValues({m, n}, "c")),
                 z_in = as(p.result, RandomValues({m, n}, "z", 0, 2));
    const auto run = [&](Device& device) {
      const DType operand = device.StorageType(p.operands), result = device.StorageType(p.result);
      const Tensor ta =
          p.transpose_a ? Tensor(device, {k, m}, a, operand) : Tensor(device, {m, k}, a, operand);
      const Tensor tb =
          p.transpose_b ? Tensor(device, {n, k}, b, operand) : Tensor(device, {k, n}, b, operand);
      const Tensor tbias(device, {n}, bias), tz(device, {m, n}, z_in, result);
      Tensor wide(device, {m, n + p.column_gap}, result), gelu(device, {m, n}, result);
      const View c = wide.view().Columns(0, n);
      if (p.accumulate) device.Upload(before, c);
      device.MatMul({.a = p.transpose_a ? ta.view().Transposed() : ta.view(),
                     .b = p.transpose_b ? tb.view().Transposed() : tb.view(),
                     .epilogue = p.epilogue,
                     .bias = p.bias ? tbias.view() : View{},
                     .z = p.epilogue == Epilogue::kGeluBackward ? tz.view() : View{},
                     .c = c,
                     .gelu = p.epilogue == Epilogue::kBiasGelu ? gelu.view() : View{},
                     .accumulate = p.accumulate});
      std::vector<Values> out = {wide.Read(c)};
      for (const double outside : wide.Read(wide.view().Columns(n, n + p.column_gap)))
        EXPECT_TRUE(std::isnan(outside));
      if (p.epilogue == Epilogue::kBiasGelu) out.push_back(gelu.Read());
      return out;
    };
    const double stored = p.result == DType::kBF16 ? kUnitBf16 : 0;
    const auto tolerances = [&](const std::vector<Values>& want) {
      Values c(m * n), gelu(m * n);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (int64_t l = 0; l < k; ++l) {
            const double term =
                (p.transpose_a ? a[l * m + i] : a[i * k + l]) * (p.transpose_b ? b[j * k + l] : b[l * n + j]);
            sum += term, magnitude += std::abs(term);
          }
          const int64_t at = i * n + j;
          const double product_error = SumBound(k) * (magnitude + (p.accumulate ? std::abs(before[at]) : 0));
          double& error = c[at] = product_error + (kU + stored) * std::abs(want[0][at]);
          if (p.epilogue == Epilogue::kGeluBackward)
            error = (product_error + stored * std::abs(sum)) * std::abs(Gelu(z_in[at]).Derivative(z_in[at])) +
                    std::abs(sum) * GeluSlopeError(z_in[at], stored > 0) +
                    (2 * kU + stored) * std::abs(want[0][at]);
          // A number beside a power of two may be rounded to its other side.
          error *= 1 + stored;
          if (p.epilogue == Epilogue::kBiasGelu) {
            const double z = want[0][at];
            gelu[at] = std::abs(Gelu(z).Derivative(z)) * error + error * error + GeluError(z, stored > 0) +
                       stored * std::abs(want[1][at]);
            gelu[at] *= 1 + stored;
          }
        }
      std::vector<Expected> expected = {{"c", c}};
      if (p.epilogue == Epilogue::kBiasGelu) expected.push_back({"gelu", gelu});
      return expected;
    };
    // oneDNN's instruction set is fixed at its first product; only the epilogues follow the limit.
    Check(run, tolerances, p.Text(), p.epilogue != Epilogue::kNone);
  }

  // The same product of bf16 operands, with either type of result.
  void CheckBf16Product(Product p) {
    p.operands = DType::kBF16;
    for (const DType result : {DType::kBF16, DType::kF32}) {
      p.result = result;
      CheckProduct(p);
    }
  }
};

TEST_F(CpuMatMul, ForwardProductsTimesTransposedWeights) {
  for (const int64_t rows : {1, 2, 33, 257})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {32, 96}, {129, 17}})
      for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu})
        CheckProduct({rows, in, out, false, true, epilogue, false, epilogue != Epilogue::kNone});
}

TEST_F(CpuMatMul, DataGradientsTimesWeights) {
  for (const int64_t rows : {1, 2, 33, 257})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1, 1}, {7, 3}, {96, 32}, {17, 129}}) {
      CheckProduct({rows, in, out, false, false});
      CheckProduct({rows, in, out, false, false, Epilogue::kNone, true});
      CheckProduct({rows, in, out, false, false, Epilogue::kGeluBackward});
    }
}

TEST_F(CpuMatMul, WeightGradientsOfTransposedRows) {
  for (const int64_t rows : {1, 2, 33, 257})
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{1, 1}, {7, 3}, {96, 32}, {17, 129}})
      for (const bool accumulate : {false, true})
        CheckProduct({out, rows, in, true, false, Epilogue::kNone, accumulate});
}

TEST_F(CpuMatMul, GeluWithoutABias) { CheckProduct({33, 8, 40, false, true, Epilogue::kBiasGelu}); }

TEST_F(CpuMatMul, ColumnsOfAWiderMatrixAreTheOnlyOnesWritten) {
  for (const Epilogue epilogue :
       {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward})
    CheckProduct({33, 16, 24, false, true, epilogue, false, epilogue == Epilogue::kBias, 48});
}

// Each cut of the work: rows in blocks of 128 and of 256, columns cut for the head, weight gradients whole.
TEST_F(CpuMatMul, LargeProductsOnEveryPath) {
  CheckProduct({500, 40, 33, false, true});
  CheckProduct({600, 40, 33, false, true});
  CheckProduct({600, 40, 72, false, true, Epilogue::kBias, false, true});
  CheckProduct({40, 24, 8200, false, true});
  CheckProduct({300, 24, 8200, false, true});
  CheckProduct({40, 8200, 24, false, false});
  CheckProduct({200, 300, 96, true, false, Epilogue::kNone, true});
  CheckProduct({1024, 70, 520, true, false});
  CheckProduct({1024, 70, 520, true, false, Epilogue::kNone, true});
  CheckProduct({257, 600, 2048, true, false});
}

TEST_F(CpuMatMul, Bf16OperandsInEveryRole) {
  for (const int64_t rows : {1, 2, 33, 257})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {32, 96}, {129, 17}}) {
      for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu})
        CheckBf16Product({rows, in, out, false, true, epilogue, false, epilogue != Epilogue::kNone});
      for (const bool accumulate : {false, true}) {
        CheckBf16Product({rows, out, in, false, false, Epilogue::kNone, accumulate});
        CheckBf16Product({out, rows, in, true, false, Epilogue::kNone, accumulate});
      }
      CheckBf16Product({rows, out, in, false, false, Epilogue::kGeluBackward});
    }
  CheckBf16Product({33, 8, 40, false, true, Epilogue::kBiasGelu});
  for (const Epilogue epilogue :
       {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward})
    CheckBf16Product({33, 16, 24, false, true, epilogue, false, epilogue == Epilogue::kBias, 48});
}

TEST_F(CpuMatMul, LargeBf16ProductsOnEveryPath) {
  CheckBf16Product({500, 40, 33, false, true});
  CheckBf16Product({600, 40, 72, false, true, Epilogue::kBias, false, true});
  CheckBf16Product({40, 24, 8200, false, true});
  CheckBf16Product({520, 8, 8200, false, true});
  CheckBf16Product({40, 8200, 24, false, false});
  CheckBf16Product({200, 300, 96, true, false, Epilogue::kNone, true});
  CheckBf16Product({1024, 70, 520, true, false});
  CheckBf16Product({257, 100, 2048, true, false});
  CheckBf16Product({8200, 9, 24, true, false, Epilogue::kNone, true});
}

TEST_F(CpuMatMul, BiasGradientSumsRows) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {2, 33}, {257, 17}, {1000, 257}})
    for (const auto& [accumulate, type] :
         {std::pair{false, DType::kF32}, {true, DType::kF32}, {false, DType::kBF16}, {true, DType::kBF16}}) {
      Values dy = RandomValues({rows, cols}, "dy");
      if (type == DType::kBF16) dy = RoundedToBf16(std::move(dy));
      const Values before = RandomValues({cols}, "dbias");
      Check(
          [&, accumulate = accumulate, type = type](Device& device) {
            const Tensor wide(device, {rows, cols}, dy, device.StorageType(type));
            const Tensor dbias = accumulate ? Tensor(device, {cols}, before) : Tensor(device, {cols});
            device.BiasGradient(wide.view(), dbias.view(), accumulate);
            return std::vector<Values>{dbias.Read()};
          },
          [&, accumulate = accumulate](const std::vector<Values>& want) {
            Values tolerance(cols);
            for (int64_t c = 0; c < cols; ++c) {
              double magnitude = accumulate ? std::abs(before[c]) : 0;
              for (int64_t r = 0; r < rows; ++r) magnitude += std::abs(dy[r * cols + c]);
              tolerance[c] = SumBound(rows) * magnitude + kU * std::abs(want[0][c]);
            }
            return std::vector<Expected>{{"dbias", tolerance}};
          },
          fmt::format("{} {}x{} accumulate {}", Name(type), rows, cols, accumulate));
    }
}

// Far from 0 GELU is the identity or 0, and its derivative 1 or 0, however far.
TEST_F(CpuMatMul, GeluFarFromZero) {
  const Values z = {40, 1e5, 1e15, 1e30, -40, -1e5, -1e15, -1e30, kNaN};
  const int64_t n = static_cast<int64_t>(z.size());
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const std::string& isa : SupportedIsas()) {
      const IsaScope scope(isa);
      Device& device = *devices_[0];
      const Tensor one(device, {1, 1}, Values{1}, type), b(device, {1, n}, z, type);
      const Tensor c(device, {1, n}, type), gelu(device, {1, n}, type);
      device.MatMul({.a = one.view(),
                     .b = b.view(),
                     .epilogue = Epilogue::kBiasGelu,
                     .c = c.view(),
                     .gelu = gelu.view()});
      const Values ones(z.size(), 1);
      const Tensor b_one(device, {1, n}, ones, type), slope(device, {1, n}, type);
      device.MatMul({.a = one.view(),
                     .b = b_one.view(),
                     .epilogue = Epilogue::kGeluBackward,
                     .z = b.view(),
                     .c = slope.view()});
      const Values stored = b.Read(), result = gelu.Read(), derivative = slope.Read();
      for (size_t i = 0; i < z.size(); ++i) {
        const std::string where = fmt::format("{} of {} on {}", Name(type), z[i], isa);
        if (std::isnan(z[i])) {
          EXPECT_TRUE(std::isnan(result[i]) && std::isnan(derivative[i])) << where;
          continue;
        }
        EXPECT_NEAR(result[i], z[i] > 0 ? stored[i] : 0, 1e-30) << where;
        EXPECT_NEAR(derivative[i], z[i] > 0 ? 1 : 0, 1e-30) << where;
      }
    }
}

// T-11: a NaN is neither lost nor spread.
TEST_F(CpuMatMul, NaNStaysInItsRow) {
  const int64_t m = 40, k = 16, n = 24;
  Values a = RandomValues({m, k}, "a");
  a[7 * k + 3] = kNaN;
  for (const Epilogue epilogue : {Epilogue::kBias, Epilogue::kBiasGelu}) {
    Device& device = *devices_[1];
    const Tensor ta(device, {m, k}, a), b(device, {n, k}, RandomValues({n, k}, "b")),
        bias(device, {n}, RandomValues({n}, "bias"));
    const Tensor c(device, {m, n}), gelu(device, {m, n});
    device.MatMul({.a = ta.view(),
                   .b = b.view().Transposed(),
                   .epilogue = epilogue,
                   .bias = bias.view(),
                   .z = {},
                   .c = c.view(),
                   .gelu = epilogue == Epilogue::kBiasGelu ? gelu.view() : View{}});
    const Values out = epilogue == Epilogue::kBiasGelu ? gelu.Read() : c.Read();
    for (int64_t i = 0; i < m * n; ++i)
      ASSERT_EQ(std::isnan(out[i]), i / n == 7) << "row " << i / n << " column " << i % n;
  }
}

}  // namespace
}  // namespace normlab::test
