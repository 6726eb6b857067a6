// Is the judge right? The norms' bodies in float64 (the oracle) against answers made independently
// (tests/golden, tools/make_golden.py) and, for the gradients, against central differences of the forward
// pass.

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "normlab/kernels/reference/reference_device.h"
#include "normlab/testing/central_difference.h"
#include "normlab/testing/golden.h"
#include "normlab/testing/norm_check.h"

namespace normlab::test {
namespace {

class NormOracle : public ::testing::TestWithParam<NormKind> {
 protected:
  const NormInfo& info() const { return InfoOf(GetParam()); }
  std::unique_ptr<Device> device_ = MakeReferenceDevice();
};

INSTANTIATE_TEST_SUITE_P(All, NormOracle, ::testing::ValuesIn(AllKinds()),
                         [](const auto& kind) { return std::string(InfoOf(kind.param).name); });

// N-03, N-04, N-06, N-09, N-18 are among the golden cases. The bound is that of error_bound.h with u = 2^-53;
// reading the golden numbers as doubles rounds them once more.
TEST_P(NormOracle, EqualsTheIndependentGoldenAnswers) {
  NormVerdict verdict;
  for (const GoldenCase& golden : ReadGolden(std::string(info().name))) {
    const NormAnswer got = RunNorm(*device_, golden.problem);
    NormExpectation want{golden.answer,
                         ErrorBounds(golden.problem, golden.answer, kUnitF64, Centering::kExact)};
    if (!info().identity) {
      for (Values NormAnswer::*field :
           {&NormAnswer::y, &NormAnswer::dx, &NormAnswer::dweight, &NormAnswer::dbias, &NormAnswer::dalpha})
        for (size_t i = 0; i < (want.answer.*field).size(); ++i)
          (want.tolerance.*field)[i] += kUnitF64 * std::abs((want.answer.*field)[i]);
    }
    const NormVerdict one = CheckNorm(got, want);
    EXPECT_LE(one.worst(), 1) << Repro(golden.name) << "\n" << one.ToString();
    verdict.Add(got, want);
  }
  for (const Comparison* c : verdict.all())
    if (c->count() > 0) LogWorst(*c, info().identity);
}

// The loss whose gradient Backward returns: sum dy * y.
double Loss(Device& device, const NormProblem& p) {
  const NormAnswer answer = RunNorm(device, p);
  double loss = 0;
  for (size_t i = 0; i < p.dy.size(); ++i) loss += p.dy[i] * answer.y[i];
  return loss;
}

// Steps are 1e-3 of the row's spread (of 1 for parameters): the five-point stencil's truncation is then
// h^4/30 times a fifth derivative of a few hundred, in units of the gradient's own size below 1e-11; the
// rounding of the loss, u k sum|dy| (a |gain| + |bias|), counts 1.5 times, divided by h. Both are in the
// tolerance.
struct Gradient {
  Device& device;
  const NormProblem& problem;
  NormAnswer answer;

  double RoundingOfLoss() const {
    const NormAnswer values = RunNorm(device, problem);
    const NormAnswer rounding = ErrorBounds(problem, values, kUnitF64, Centering::kExact);
    double sum = 0;
    for (size_t i = 0; i < problem.dy.size(); ++i)
      sum +=
          std::abs(problem.dy[i]) * (rounding.y[i] + kUnitF64 * std::abs(values.y[i]) *
                                                         std::sqrt(static_cast<double>(problem.dy.size())));
    return sum;
  }

  // Compares gradient . direction with the derivative along it, for one of the problem's tensors.
  void CheckAlong(Values NormProblem::*tensor, const Values& gradient, const Values& direction, double step,
                  double scale, int64_t index, Comparison& comparison) const {
    const double numeric = CentralDifference(
        [&](double t) {
          NormProblem moved = problem;
          for (size_t i = 0; i < direction.size(); ++i) (moved.*tensor)[i] += t * direction[i];
          return Loss(device, moved);
        },
        step);
    double analytic = 0;
    for (size_t i = 0; i < direction.size(); ++i) analytic += gradient[i] * direction[i];
    comparison.Add(analytic, numeric, 1e-11 * scale + 1.5 * RoundingOfLoss() / step, index);
  }
};

// A scale below which no norm bends: the smallest sqrt(variance + eps) of a row, or root mean square of the
// first columns of one.
double SmallestSpread(const NormProblem& p) {
  double smallest = 1;
  for (int64_t r = 0; r < p.rows; ++r) {
    const double* const x = p.x.data() + r * p.cols;
    const auto square_about = [&](double origin, int64_t count) {
      double square = 0;
      for (int64_t c = 0; c < count; ++c)
        square += (x[c] - origin) * (x[c] - origin) / static_cast<double>(count);
      return square;
    };
    const double mean = std::accumulate(x, x + p.cols, 0.0) / static_cast<double>(p.cols);
    const int64_t first = PartialCols(p.spec.fraction, p.cols);
    smallest = std::min(smallest,
                        std::sqrt(std::min(square_about(mean, p.cols), square_about(0, first)) + p.spec.eps));
  }
  return smallest;
}

// Every element up to 33 columns, one random direction beyond.
TEST_P(NormOracle, BackwardIsTheDerivativeOfForward) {
  Comparison all_dx("dx"), all_dweight("dweight"), all_dbias("dbias"), all_dalpha("dalpha");
  for (const int64_t cols : {1, 2, 3, 8, 17, 33, 128, 1023}) {
    for (const double mean : {0.0, 100.0}) {
      const NormSpec spec{.kind = GetParam(),
                          .weight_offset = cols % 2 == 0 ? 1.0 : 0.0,
                          .fraction = cols == 17 ? 0.3 : 0.0625};
      const int64_t rows = 2;
      const uint64_t seed = Seed() * 100 + static_cast<uint64_t>(cols);
      const NormProblem p = RandomNormProblem(spec, rows, cols, {.mean = mean}, seed);
      const Gradient gradient{*device_, p, RunNorm(*device_, p)};
      Comparison dx("dx"), dweight("dweight"), dbias("dbias"), dalpha("dalpha");
      const auto check = [&](Values NormProblem::*tensor, const Values& analytic, double spread,
                             Comparison& comparison) {
        if (analytic.empty()) return;
        double size = 0;  // of the gradient: the scale of the truncation error
        for (const double g : analytic) size = std::max(size, std::abs(g));
        for (const double dy : p.dy) size = std::max(size, std::abs(dy) / spread);
        Values direction(analytic.size());
        if (cols <= 33) {
          for (size_t i = 0; i < analytic.size(); ++i) {
            direction.assign(analytic.size(), 0);
            direction[i] = 1;
            gradient.CheckAlong(tensor, analytic, direction, 1e-3 * spread, size, static_cast<int64_t>(i),
                                comparison);
          }
        } else {
          const RandomStream stream(seed, "direction");
          for (size_t i = 0; i < direction.size(); ++i) direction[i] = stream.Normal(i);
          const double length = std::sqrt(static_cast<double>(direction.size()));
          gradient.CheckAlong(tensor, analytic, direction, 1e-3 * spread, size * length, -1, comparison);
        }
      };
      const double spread = SmallestSpread(p);
      check(&NormProblem::x, gradient.answer.dx, spread, dx);
      check(&NormProblem::weight, gradient.answer.dweight, 1, dweight);
      check(&NormProblem::bias, gradient.answer.dbias, 1, dbias);
      // alpha x is what bends: a step of alpha moves it by |x|, so steps shrink by the largest |x|.
      double largest_x = 1;
      for (const double x : p.x) largest_x = std::max(largest_x, std::abs(x));
      check(&NormProblem::alpha, gradient.answer.dalpha, 1 / largest_x, dalpha);
      for (const Comparison* c : {&dx, &dweight, &dbias, &dalpha})
        if (c->count() > 0) {
          EXPECT_TRUE(Within(*c, Repro(fmt::format("{} mean {}", ToString(p), mean))));
        }
      all_dx.Add(dx), all_dweight.Add(dweight), all_dbias.Add(dbias), all_dalpha.Add(dalpha);
    }
  }
  for (const Comparison* c : {&all_dx, &all_dweight, &all_dbias, &all_dalpha})
    if (c->count() > 0) LogWorst(*c, info().identity);
}

// N-06: with central differences of step 1e-4, as the rows around zero bend on the scale of sqrt(eps) = 3e-3;
// of less where fewer than 64 columns give the statistic, one of which then counts for more.
TEST_P(NormOracle, ZeroRowsHaveFiniteGradientsThatAgreeWithDifferences) {
  NormProblem p = RandomNormProblem({.kind = GetParam()}, 1, 64, {}, Seed());
  p.x.assign(64, 0);
  const Gradient gradient{*device_, p, RunNorm(*device_, p)};
  const int64_t counted = info().uses_fraction ? PartialCols(p.spec.fraction, 64) : 64;
  const double step = 1e-4 * std::sqrt(static_cast<double>(counted) / 64);
  Comparison dx("dx");
  for (int64_t c = 0; c < 64; ++c) {
    Values direction(64);
    direction[c] = 1;
    // Truncation: h^4/30 times a fifth derivative of about inv^5 <= 2e12 (inv = 316), below 1e-6 in all.
    gradient.CheckAlong(&NormProblem::x, gradient.answer.dx, direction, step, 1e5, c, dx);
  }
  LogWorst(dx, info().identity);
  EXPECT_TRUE(Within(dx, Repro(ToString(p))));
}

TEST_P(NormOracle, ExpectedValuesAreNotMostlyZero) {
  Comparison all("all");
  for (const int64_t cols : {2, 3, 8, 33, 128}) {
    const NormAnswer a = RunNorm(*device_, RandomNormProblem({.kind = GetParam()}, 7, cols, {}, Seed()));
    for (const Values* v : {&a.y, &a.dx, &a.dweight, &a.dbias, &a.dalpha})
      for (size_t i = 0; i < v->size(); ++i) all.Add((*v)[i], (*v)[i], 0, 0);
    EXPECT_EQ(a.dweight.empty(), info().identity || !info().has_gain);
  }
  EXPECT_GE(static_cast<double>(all.nonzero()), 0.7 * static_cast<double>(all.count()));
  EXPECT_GT(all.largest(), 0.1);
}

TEST_P(NormOracle, ResidualIsAddedBeforeTheNorm) {
  NormProblem p = RandomNormProblem({.kind = GetParam()}, 3, 9, {.residual = true}, Seed());
  const NormAnswer with = RunNorm(*device_, p);
  NormProblem summed = p;
  for (size_t i = 0; i < p.x.size(); ++i) summed.x[i] = p.residual[i] + p.x[i];
  summed.residual.clear();
  EXPECT_TRUE(SameBits(with.sum, summed.x, "sum"));
  EXPECT_TRUE(SameBits(with.y, RunNorm(*device_, summed).y, "y"));
}

}  // namespace
}  // namespace normlab::test
