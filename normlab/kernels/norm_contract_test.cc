// What norm implementations promise beside accuracy: which one runs, equal bits, what may alias, what is
// refused, and what a NaN, an empty batch or an eps of zero does.

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "normlab/norms/norm_list.h"
#include "normlab/testing/norm_check.h"
#include "normlab/testing/norm_implementations.h"

namespace normlab::test {
namespace {

using Alias = NormLayout::Alias;

class NormContract : public ::testing::TestWithParam<NormKind> {
 protected:
  const NormInfo& info() const { return InfoOf(GetParam()); }
  NormSpec spec() const { return {.kind = GetParam()}; }

  NormProblem Problem(int64_t rows, int64_t cols, NormChoices choices = {}) const {
    return RandomNormProblem(spec(), rows, cols, choices, Seed());
  }
  static NormProblem As(NormProblem problem, const NormSpec& named) {
    problem.spec = named;
    return problem;
  }
  static void ExpectSameBits(const NormAnswer& a, const NormAnswer& b, const std::string& context) {
    EXPECT_TRUE(SameBits(a.sum, b.sum, "sum")) << context;
    EXPECT_TRUE(SameBits(a.y, b.y, "y")) << context;
    EXPECT_TRUE(SameBits(a.dx, b.dx, "dx")) << context;
    EXPECT_TRUE(SameBits(a.dweight, b.dweight, "dweight")) << context;
    EXPECT_TRUE(SameBits(a.dbias, b.dbias, "dbias")) << context;
    EXPECT_TRUE(SameBits(a.dalpha, b.dalpha, "dalpha")) << context;
    EXPECT_TRUE(a.guards_intact && b.guards_intact) << context;
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice({.threads = 2});
  std::unique_ptr<Device> oracle_ = MakeReferenceDevice();
};

INSTANTIATE_TEST_SUITE_P(All, NormContract, ::testing::ValuesIn(AllKinds()),
                         [](const auto& kind) { return std::string(InfoOf(kind.param).name); });

// ---- Which one runs.

TEST_P(NormContract, NamedImplementationIsTheOneThatRuns) {
  std::set<std::string> bits;
  int named = 0;
  ForEachImplementation(
      *device_, spec(), 768,
      [&](const NormSpec& s, const std::string& name) {
        EXPECT_EQ(device_->ResolveNorm(s, 768), s.implementation) << name;
        const NormAnswer answer = RunNorm(*device_, As(Problem(257, 768, {.mean = 3}), s));
        std::string text;
        for (const double y : answer.y) text += fmt::format("{:a} ", y);
        bits.insert(text);
        ++named;
      },
      /*every_isa=*/false);
  EXPECT_GE(named, 1);
  // Different code rounds differently: as many answers as implementations, unless nothing is rounded. Of
  // re-centring little is: the mean, whose sum the generic and the widest fused path take in one order.
  if (GetParam() == KindOf<Recenter>()) return;
  EXPECT_EQ(bits.size(), info().identity ? 1u : static_cast<size_t>(named));
}

TEST_P(NormContract, ForcedImplementationReplacesFastestOnly) {
  const NormProblem problem = Problem(64, 768, {.mean = 3});
  for (const NormImplementation forced : ImplementationsFor(*device_, spec(), 768)) {
    ::setenv("NORMLAB_FORCE_NORM", std::string(Name(forced)).c_str(), 1);
    const std::unique_ptr<Device> device = MakeCpuDevice({.threads = 1});
    EXPECT_EQ(device->ResolveNorm(spec(), 768), forced);
    const NormAnswer by_force = RunNorm(*device, problem);
    for (const NormImplementation other : ImplementationsFor(*device_, spec(), 768)) {
      NormSpec named = spec();
      named.implementation = other;
      EXPECT_EQ(device->ResolveNorm(named, 768), other);
    }
    ::unsetenv("NORMLAB_FORCE_NORM");
    NormSpec named = spec();
    named.implementation = forced;
    ExpectSameBits(by_force, RunNorm(*device_, As(problem, named)), std::string(Name(forced)));
  }
}

TEST_P(NormContract, UnknownForcedImplementationIsRefusedByName) {
  ::setenv("NORMLAB_FORCE_NORM", "fusde", 1);
  try {
    (void)MakeCpuDevice({.threads = 1})->ResolveNorm(spec(), 8);
    ADD_FAILURE() << "NORMLAB_FORCE_NORM=fusde was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("fusde"), std::string::npos) << error.what();
  }
  ::unsetenv("NORMLAB_FORCE_NORM");
}

TEST_P(NormContract, AnImplementationThatIsNotThereIsRefusedWithAReason) {
  NormSpec library = spec();
  library.implementation = NormImplementation::kLibrary;
  for (const NormImplementationStatus& status : device_->NormImplementations(spec(), 768))
    if (status.implementation == NormImplementation::kLibrary && !status.refusal) return;
  EXPECT_THROW((void)device_->ResolveNorm(library, 768), Error);
}

// ---- Equal bits.

// N-22: threads, repeats.
TEST_P(NormContract, EveryThreadCountGivesTheSameBits) {
  std::vector<std::unique_ptr<Device>> devices;
  for (const int threads : {1, 2, 3, 5, 8}) devices.push_back(MakeCpuDevice({.threads = threads}));
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 131072}, {7, 4096}, {257, 33}, {257, 768}, {2000, 128}}) {
    const NormProblem problem =
        Problem(rows, cols, {.mean = 3, .residual = true, .accumulate_dx = true, .accumulate_dparams = true});
    ForEachImplementation(
        *device_, spec(), cols,
        [&](const NormSpec& s, const std::string& name) {
          const NormAnswer first = RunNorm(*devices[0], As(problem, s));
          for (const auto& device : devices)
            ExpectSameBits(RunNorm(*device, As(problem, s)), first,
                           fmt::format("{}, {} threads, {}x{}", name, device->threads(), rows, cols));
        },
        /*every_isa=*/cols != 131072);
  }
}

// N-22: a row's result does not depend on the rows beside it.
TEST_P(NormContract, ARowAloneEqualsTheRowInABatch) {
  for (const int64_t cols : {3, 33, 128, 769}) {
    for (const int64_t rows : {7, 64, 257}) {
      const NormProblem batch = Problem(rows, cols, {.mean = 3});
      ForEachImplementation(*device_, spec(), cols, [&](const NormSpec& s, const std::string& name) {
        const NormAnswer together = RunNorm(*device_, As(batch, s));
        for (const int64_t r : {int64_t{0}, int64_t{3}, rows - 1}) {
          NormProblem alone = As(batch, s);
          const auto cut = [&](const Values& v) {
            return Values(v.begin() + r * cols, v.begin() + (r + 1) * cols);
          };
          alone.rows = 1;
          alone.x = cut(batch.x), alone.dy = cut(batch.dy), alone.dx_before = cut(batch.dx_before);
          const NormAnswer answer = RunNorm(*device_, alone);
          EXPECT_TRUE(SameBits(answer.y, cut(together.y), "y"))
              << name << " row " << r << " of " << rows << "x" << cols;
          EXPECT_TRUE(SameBits(answer.dx, cut(together.dx), "dx"))
              << name << " row " << r << " of " << rows << "x" << cols;
        }
      });
    }
  }
}

// N-09, N-13, N-15: in place, unaligned and strided calls give the bits of the plain call.
TEST_P(NormContract, PlaceInMemoryDoesNotChangeTheBits) {
  std::vector<NormLayout> layouts;
  for (const Alias y : {Alias::kNone, Alias::kX})
    for (const Alias sum : {Alias::kNone, Alias::kX, Alias::kOther})
      for (const Alias dx : {Alias::kNone, Alias::kX, Alias::kOther})
        layouts.push_back({.y = y, .sum = sum, .dx = dx});
  for (const int64_t misalignment : {1, 3}) layouts.push_back({.misalignment = misalignment});
  for (const int64_t gap : {1, 5, 64})
    layouts.push_back({.misalignment = 1, .row_gap = gap, .dx = Alias::kOther});
  for (const bool residual : {false, true}) {
    for (const int64_t cols : {1, 4, 33, 769}) {
      const NormProblem problem = Problem(9, cols, {.mean = 3, .residual = residual});
      ForEachImplementation(*device_, spec(), cols, [&](const NormSpec& s, const std::string& name) {
        const NormAnswer plain = RunNorm(*device_, As(problem, s));
        for (const NormLayout& layout : layouts) {
          if (residual && layout.y == Alias::kX && !info().identity) continue;  // refused, see below
          ExpectSameBits(RunNorm(*device_, As(problem, s), layout), plain, name + " " + ToString(layout));
        }
      });
    }
  }
}

// N-13 with its own numbers: 64 rows of 769, one element off, a hundred times.
TEST_P(NormContract, RowsOfOddWidthOneElementOffRepeatTheirBits) {
  const NormProblem problem = Problem(64, 769, {.mean = 3});
  ForEachImplementation(
      *device_, spec(), 769,
      [&](const NormSpec& s, const std::string& name) {
        const NormAnswer aligned = RunNorm(*device_, As(problem, s));
        for (int repeat = 0; repeat < 100; ++repeat) {
          const NormAnswer answer = RunNorm(*device_, As(problem, s), {.misalignment = 1});
          ASSERT_TRUE(answer.guards_intact) << name << " repeat " << repeat;
          ExpectSameBits(answer, aligned, fmt::format("{} repeat {}", name, repeat));
        }
      },
      /*every_isa=*/false);
}

// ---- Special values and sizes.

// Element by element: not a number exactly where the oracle has none.
void ExpectNaNsOf(const Values& got, const Values& want, const std::string& context) {
  ASSERT_EQ(got.size(), want.size()) << context;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << context << " element " << i << " is " << got[i];
}

// N-25: a row with a NaN or an infinity does not touch the others; it is not a number where the mathematics
// says so, and the parameter gradients show it.
TEST_P(NormContract, NaNAndInfinityStayInTheirRow) {
  const int64_t rows = 8, cols = 37;
  const auto clean = Problem(rows, cols, {.mean = 1});
  ForEachImplementation(*device_, spec(), cols, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer before = RunNorm(*device_, As(clean, s));
    for (const int64_t column : {int64_t{0}, int64_t{20}, cols - 1}) {
      NormProblem spoiled = As(clean, s);
      spoiled.x[3 * cols + column] = kNaN;
      spoiled.x[5 * cols + column] = std::numeric_limits<double>::infinity();
      const NormAnswer after = RunNorm(*device_, spoiled);
      for (int64_t i = 0; i < rows * cols; ++i) {
        const int64_t row = i / cols;
        if (row != 3 && row != 5) {
          ASSERT_EQ(after.y[i], before.y[i]) << name << " row " << row;
          ASSERT_EQ(after.dx[i], before.dx[i]) << name << " row " << row;
        }
      }
      const NormAnswer right = RunNorm(*oracle_, spoiled);
      const std::string context = fmt::format("{}, column {}", name, column);
      const auto row_of = [&](const Values& values, int64_t r) {
        return Values(values.begin() + r * cols, values.begin() + (r + 1) * cols);
      };
      ExpectNaNsOf(row_of(after.y, 3), row_of(right.y, 3), context + " y");
      ExpectNaNsOf(row_of(after.dx, 3), row_of(right.dx, 3), context + " dx");
      EXPECT_TRUE(std::isnan(after.y[3 * cols + column])) << context;
      // inf / inf has no value; the identity passes infinity on; a tanh ends at 1.
      const size_t infinity = static_cast<size_t>(5 * cols + column);
      EXPECT_EQ(std::isnan(after.y[infinity]), std::isnan(right.y[infinity])) << context;
      if (std::isfinite(right.y[infinity])) {
        EXPECT_NEAR(after.y[infinity], right.y[infinity], 1e-5) << context;
      }
      ExpectNaNsOf(after.dweight, right.dweight, context + " dweight");
      ExpectNaNsOf(after.dalpha, right.dalpha, context + " dalpha");
      ExpectSameBits({.dbias = after.dbias}, {.dbias = before.dbias}, name);  // the sum of dy, which is clean
    }
  });
}

TEST_P(NormContract, NaNInTheGradientStaysInItsRowAndReachesTheParameters) {
  const int64_t rows = 8, cols = 37, column = 20;
  NormProblem spoiled = Problem(rows, cols);
  spoiled.dy[3 * cols + column] = kNaN;
  ForEachImplementation(*device_, spec(), cols, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer answer = RunNorm(*device_, As(spoiled, s));
    const NormAnswer right = RunNorm(*oracle_, spoiled);
    ExpectNaNsOf(answer.dx, right.dx, name);
    ExpectNaNsOf(answer.dalpha, right.dalpha, name);
    EXPECT_TRUE(std::isnan(answer.dx[3 * cols + column])) << name;
    for (const Values* gradient : {&answer.dweight, &answer.dbias})
      for (size_t c = 0; c < gradient->size(); ++c)
        ASSERT_EQ(std::isnan((*gradient)[c]), c == static_cast<size_t>(column)) << name << " column " << c;
  });
}

// N-17: zero rows are fine: parameter gradients become 0, or stay where they accumulate.
TEST_P(NormContract, ZeroRowsGiveZeroGradientsOrLeaveThem) {
  for (const bool accumulate : {false, true}) {
    NormProblem problem = Problem(0, 10, {.accumulate_dparams = accumulate});
    problem.dweight_before.assign(problem.dweight_before.size(), 7);
    problem.dbias_before.assign(problem.dbias_before.size(), 7);
    problem.dalpha_before.assign(problem.dalpha_before.size(), 7);
    ForEachImplementation(*device_, spec(), 10, [&](const NormSpec& s, const std::string& name) {
      const NormAnswer answer = RunNorm(*device_, As(problem, s));
      EXPECT_TRUE(answer.guards_intact) << name;
      EXPECT_TRUE(
          SameBits(answer.dweight, Values(info().has_gain ? 10 : 0, accumulate ? 7.0 : 0.0), "dweight"))
          << name;
      EXPECT_TRUE(SameBits(answer.dalpha, Values(info().has_alpha, accumulate ? 7.0 : 0.0), "dalpha"))
          << name;
      EXPECT_TRUE(SameBits(answer.dbias, Values(info().has_bias ? 10 : 0, accumulate ? 7.0 : 0.0), "dbias"))
          << name;
    });
  }
}

// N-06, N-18: exact zeros where the mathematics says so.
TEST_P(NormContract, ZeroRowsOfInputGiveExactZeros) {
  NormProblem problem = Problem(5, 64);
  problem.x.assign(problem.x.size(), 0);
  problem.bias.assign(problem.bias.size(), 0);
  ForEachImplementation(*device_, spec(), 64, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer answer = RunNorm(*device_, As(problem, s));
    EXPECT_EQ(answer.y, Values(5 * 64, 0.0)) << name;
    EXPECT_EQ(answer.dweight, Values(info().has_gain ? 64 : 0, 0.0)) << name;
    for (const double dx : answer.dx) ASSERT_TRUE(std::isfinite(dx)) << name;
  });
}

TEST_P(NormContract, WidthOneLayerNormReturnsItsBiasExactly) {
  if (GetParam() != KindOf<LayerNorm>()) return;
  NormProblem problem = Problem(6, 1);
  problem.x.assign(6, RoundToF32(3.7));
  problem.weight = {2};
  problem.bias = {0.5};
  problem.dy.assign(6, 1);
  ForEachImplementation(*device_, spec(), 1, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer answer = RunNorm(*device_, As(problem, s));
    EXPECT_EQ(answer.y, Values(6, 0.5)) << name;
    EXPECT_EQ(answer.dx, Values(6, 0.0)) << name;
    EXPECT_EQ(answer.dweight, Values(1, 0.0)) << name;
    EXPECT_EQ(answer.dbias, Values(1, 6.0)) << name;
  });
}

// N-01: squares that fp32 holds are no problem: every value of a constant row is 1 but for eps. N-28: nor is
// a width that no 16-bit number holds.
TEST_P(NormContract, ConstantRowsOfRmsNormGiveOnes) {
  if (GetParam() != KindOf<RmsNorm>()) return;
  for (const int64_t cols : {8, 257, 1024, 4096, 8192, 70000}) {
    NormProblem problem = Problem(1, cols);
    const double value = cols == 70000 ? 2 : 300, want = value / std::sqrt(value * value + problem.spec.eps);
    problem.x.assign(problem.x.size(), value);
    problem.weight.assign(problem.weight.size(), 1);
    ForEachImplementation(*device_, spec(), cols, [&](const NormSpec& s, const std::string& name) {
      for (const double y : RunNorm(*device_, As(problem, s)).y)
        ASSERT_NEAR(y, want, 2 * kUnitF32) << name << " width " << cols;
    });
  }
}

// N-07: eps 0 is exact where the row has a size; where it has none, the normalized row is 0.
TEST_P(NormContract, EpsZeroIsExactAndGivesZeroForARowWithoutSize) {
  NormProblem problem = Problem(3, 33);
  problem.spec.eps = 0;
  std::fill(problem.x.begin() + 33, problem.x.begin() + 66, 0.0);
  const NormExpectation want = Expect(problem);
  ForEachImplementation(*device_, problem.spec, 33, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer answer = RunNorm(*device_, As(problem, s));
    Comparison y("y");
    for (size_t i = 0; i < answer.y.size(); ++i) {
      if (i / 33 != 1) {
        y.Add(answer.y[i], want.answer.y[i], want.tolerance.y[i], static_cast<int64_t>(i));
      } else {
        ASSERT_EQ(answer.y[i], problem.bias.empty() ? 0 : problem.bias[i % 33]) << name;
        ASSERT_TRUE(std::isfinite(answer.dx[i])) << name;
      }
    }
    EXPECT_TRUE(Within(y, Repro(name)));
  });
}

// N-07: a row whose squares are below the range of fp32 has no size that fp32 can tell: with eps 0 it is
// normalized to 0, forward and backward, as a row of zeros is.
TEST_P(NormContract, EpsZeroGivesZeroForARowWhoseSquaresUnderflow) {
  if (!info().uses_eps) return;
  for (const double size : {1e-30, 1e-37}) {
    NormProblem problem = Problem(1, 33);
    problem.spec.eps = 0;
    for (size_t c = 0; c < 33; ++c) problem.x[c] = RoundToF32(c % 2 == 0 ? size : -size);
    problem.bias.assign(problem.bias.size(), 0);
    ForEachImplementation(*device_, problem.spec, 33, [&](const NormSpec& s, const std::string& name) {
      const NormAnswer answer = RunNorm(*device_, As(problem, s));
      for (const Values* values : {&answer.y, &answer.dx, &answer.dweight})
        for (const double value : *values) ASSERT_EQ(value, 0) << name << " size " << size;
    });
  }
}

}  // namespace
}  // namespace normlab::test
