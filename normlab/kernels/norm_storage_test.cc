// What norms promise of 16-bit rows beside accuracy, which norm_conformance_test.cc holds them to: which sets
// of types are taken, equal bits, NaN, the cases that other libraries have got wrong.

#include <cmath>

#include <gtest/gtest.h>

#include "normlab/norms/norm_list.h"
#include "normlab/testing/norm_check.h"
#include "normlab/testing/norm_implementations.h"

namespace normlab::test {
namespace {

using Alias = NormLayout::Alias;

class NormStorageTest : public ::testing::TestWithParam<NormKind> {
 protected:
  const NormInfo& info() const { return InfoOf(GetParam()); }
  NormSpec spec() const { return {.kind = GetParam()}; }
  NormProblem Problem(int64_t rows, int64_t cols, const NormStorage& storage,
                      NormChoices choices = {}) const {
    return RandomNormProblem(spec(), rows, cols, choices, Seed(), storage);
  }
  // Every set of storage types on every implementation.
  void ForEachCase(int64_t cols,
                   const std::function<void(const NormSpec&, const NormStorage&, const std::string&)>& f,
                   bool every_isa = true) {
    ForEachImplementation(
        *device_, spec(), cols,
        [&](const NormSpec& s, const std::string& name) {
          for (const NormStorage& storage : LowStorages()) f(s, storage, name + " in " + storage.name);
        },
        every_isa);
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
    EXPECT_TRUE(a.low_is_rounded_dx && b.low_is_rounded_dx) << context;
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice({.threads = 2});
};

INSTANTIATE_TEST_SUITE_P(All, NormStorageTest, ::testing::ValuesIn(AllKinds()),
                         [](const auto& kind) { return std::string(InfoOf(kind.param).name); });

// N-22
TEST_P(NormStorageTest, EveryThreadCountGivesTheSameBits) {
  std::vector<std::unique_ptr<Device>> devices;
  for (const int threads : {1, 2, 3, 8}) devices.push_back(MakeCpuDevice({.threads = threads}));
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{7, 4096}, {257, 129}})
    ForEachCase(
        cols,
        [&](const NormSpec& s, const NormStorage& storage, const std::string& name) {
          const NormProblem problem =
              As(Problem(rows, cols, storage, {.mean = 1, .residual = true, .accumulate_dx = true}), s);
          const NormAnswer first = RunNorm(*devices[0], problem);
          for (const auto& device : devices)
            ExpectSameBits(RunNorm(*device, problem), first, fmt::format("{} {}", name, device->threads()));
        },
        /*every_isa=*/false);
}

// N-22: a row's result does not depend on the rows beside it.
TEST_P(NormStorageTest, ARowAloneEqualsTheRowInABatch) {
  const int64_t rows = 5, cols = 129;
  ForEachCase(cols, [&](const NormSpec& s, const NormStorage& storage, const std::string& name) {
    const NormProblem batch = As(Problem(rows, cols, storage, {.mean = 1}), s);
    const NormAnswer together = RunNorm(*device_, batch);
    for (const int64_t r : {int64_t{0}, rows - 1}) {
      const auto cut = [&](const Values& v) {
        return Values(v.begin() + r * cols, v.begin() + (r + 1) * cols);
      };
      NormProblem alone = batch;
      alone.rows = 1;
      alone.x = cut(batch.x), alone.dy = cut(batch.dy), alone.dx_before = cut(batch.dx_before);
      const NormAnswer answer = RunNorm(*device_, alone);
      EXPECT_TRUE(SameBits(answer.y, cut(together.y), "y")) << name << " row " << r;
      EXPECT_TRUE(SameBits(answer.dx, cut(together.dx), "dx")) << name << " row " << r;
    }
  });
}

// N-09, N-13, N-15
TEST_P(NormStorageTest, PlaceInMemoryDoesNotChangeTheBits) {
  std::vector<NormLayout> layouts = {{.misalignment = 1}, {.misalignment = 3, .row_gap = 5}};
  for (const Alias y : {Alias::kNone, Alias::kX})
    for (const Alias sum : {Alias::kNone, Alias::kX, Alias::kOther})
      for (const Alias dx : {Alias::kNone, Alias::kX, Alias::kOther})
        layouts.push_back({.y = y, .sum = sum, .dx = dx});
  for (const bool residual : {false, true})
    for (const int64_t cols : {1, 33, 769})
      ForEachCase(cols, [&](const NormSpec& s, const NormStorage& storage, const std::string& name) {
        const NormProblem problem = As(Problem(5, cols, storage, {.mean = 1, .residual = residual}), s);
        const NormAnswer plain = RunNorm(*device_, problem);
        for (const NormLayout& layout : layouts) {
          if (residual && layout.y == Alias::kX && !info().identity) continue;  // refused
          ExpectSameBits(RunNorm(*device_, problem, layout), plain, name + " " + ToString(layout));
        }
      });
}

// What is normalized is the sum as it is stored, also where nobody wants it.
TEST_P(NormStorageTest, AnUnwantedSumChangesNoBit) {
  const int64_t rows = 3, cols = 77;
  ForEachCase(cols, [&](const NormSpec& s, const NormStorage& storage, const std::string& name) {
    const NormProblem problem = As(Problem(rows, cols, storage, {.mean = 1, .residual = true}), s);
    const auto input = [&](const Values& values, DType dtype) {
      return DeviceTensor::Input(*device_, rows, cols, values, {.dtype = dtype});
    };
    const auto x = input(problem.x, storage.y()), residual = input(problem.residual, storage.stream());
    const auto y = DeviceTensor::Output(*device_, rows, cols, {.dtype = storage.y()});
    const auto vector = [&](const Values& v) {
      return v.empty() ? DeviceTensor() : DeviceTensor::Input(*device_, 1, static_cast<int64_t>(v.size()), v);
    };
    const auto weight = vector(problem.weight), bias = vector(problem.bias), alpha = vector(problem.alpha);
    const int64_t saved_elements = device_->NormSavedElements(s, rows, cols);
    const auto saved =
        saved_elements > 0 ? DeviceTensor::Output(*device_, 1, saved_elements) : DeviceTensor();
    device_->NormForward({.spec = s,
                          .x = x.view(),
                          .residual = residual.view(),
                          .weight = weight.Vector(),
                          .bias = bias.Vector(),
                          .alpha = alpha.Vector(),
                          .y = y.view(),
                          .saved = saved.Vector()});
    EXPECT_TRUE(SameBits(y.Values(), RunNorm(*device_, problem).y, "y")) << name;
    EXPECT_TRUE(y.GuardsIntact()) << name;
  });
}

// N-25
TEST_P(NormStorageTest, NaNStaysInItsRow) {
  const int64_t rows = 5, cols = 37;
  ForEachCase(cols, [&](const NormSpec& s, const NormStorage& storage, const std::string& name) {
    const NormProblem clean = As(Problem(rows, cols, storage, {.mean = 1}), s);
    const NormAnswer before = RunNorm(*device_, clean);
    for (const int64_t column : {int64_t{0}, cols - 1}) {
      NormProblem spoiled = clean;
      spoiled.x[2 * cols + column] = kNaN;
      const NormAnswer after = RunNorm(*device_, spoiled);
      EXPECT_TRUE(std::isnan(after.y[2 * cols + column])) << name;
      for (int64_t i = 0; i < rows * cols; ++i) {
        if (i / cols == 2) continue;
        ASSERT_EQ(after.y[i], before.y[i]) << name;
        ASSERT_EQ(after.dx[i], before.dx[i]) << name;
      }
    }
  });
}

// N-07, N-30: eps 0 gives exact zeros for a row without spread, in 16 bits too.
TEST_P(NormStorageTest, EpsZeroGivesTheBiasForARowOfZeros) {
  NormSpec no_eps = spec();
  no_eps.eps = 0;
  ForEachImplementation(*device_, no_eps, 33, [&](const NormSpec& s, const std::string& name) {
    for (const NormStorage& storage : LowStorages()) {
      NormProblem problem = As(Problem(2, 33, storage), s);
      std::fill(problem.x.begin(), problem.x.begin() + 33, 0.0);
      const NormAnswer answer = RunNorm(*device_, problem);
      for (size_t c = 0; c < 33; ++c) {
        ASSERT_EQ(answer.y[c], problem.bias.empty() ? 0 : RoundTo(storage.y(), problem.bias[c])) << name;
        ASSERT_TRUE(std::isfinite(answer.dx[c])) << name;
      }
    }
  });
}

// N-17
TEST_P(NormStorageTest, ZeroRowsAreFine) {
  ForEachCase(
      10,
      [&](const NormSpec& s, const NormStorage& storage, const std::string& name) {
        const NormAnswer answer = RunNorm(*device_, As(Problem(0, 10, storage), s));
        EXPECT_TRUE(SameBits(answer.dweight, Values(info().has_gain ? 10 : 0, 0.0), "dweight")) << name;
      },
      /*every_isa=*/false);
}

class NormStorageCases : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = MakeCpuDevice({.threads = 1});
  static NormProblem As(NormProblem problem, const NormSpec& named) {
    problem.spec = named;
    return problem;
  }
  static const NormStorage& Uniform(DType dtype) { return LowStorages()[dtype == DType::kBF16 ? 0 : 1]; }
};

// N-01: squares that no half holds. N-28: a width that no half holds either.
TEST_F(NormStorageCases, ConstantRowsOfHalvesGiveOnes) {
  for (const auto& [cols, value] :
       {std::pair<int64_t, double>{8, 300}, {1024, 300}, {4096, 300}, {8192, 300}, {70000, 2}}) {
    NormProblem p = RandomNormProblem({.kind = KindOf<RmsNorm>()}, 1, cols, {}, Seed(), Uniform(DType::kF16));
    p.x.assign(p.x.size(), value);
    p.weight.assign(p.weight.size(), 1);
    ForEachImplementation(*device_, p.spec, cols, [&](const NormSpec& s, const std::string& name) {
      for (const double y : RunNorm(*device_, As(p, s)).y) ASSERT_EQ(y, 1) << name << " width " << cols;
    });
  }
}

// The distance between bf16 numbers of this size.
double UlpOf(double value) { return std::ldexp(1.0, std::ilogb(value) - 7); }

// N-28: bf16 of width 257 within one unit in the last place of the right value.
TEST_F(NormStorageCases, Bf16OfWidth257IsWithinOneUnit) {
  for (const NormKind kind : {KindOf<LayerNorm>(), KindOf<RmsNorm>()}) {
    const NormProblem p = RandomNormProblem({.kind = kind}, 9, 257, {}, Seed(), Uniform(DType::kBF16));
    const NormAnswer right = Expect(p).answer;
    ForEachImplementation(*device_, p.spec, 257, [&](const NormSpec& s, const std::string& name) {
      const NormAnswer answer = RunNorm(*device_, As(p, s));
      for (size_t i = 0; i < answer.y.size(); ++i)
        ASSERT_LE(std::abs(answer.y[i] - right.y[i]), UlpOf(right.y[i])) << name << " element " << i;
    });
  }
}

// N-30: statistics are fp32, so every output is within half a unit and a little of the right one, and two
// implementations differ by one unit at the most.
TEST_F(NormStorageCases, StatisticsOfBf16RowsAreFp32) {
  for (const double eps : {0.0, 1e-5}) {
    const NormSpec spec{.kind = KindOf<LayerNorm>(), .eps = eps};
    const NormProblem p = RandomNormProblem(spec, 2, 12, {}, Seed(), Uniform(DType::kBF16));
    const NormAnswer right = Expect(p).answer;
    ForEachImplementation(*device_, spec, 12, [&](const NormSpec& s, const std::string& name) {
      const NormAnswer answer = RunNorm(*device_, As(p, s));
      for (size_t i = 0; i < answer.y.size(); ++i)
        ASSERT_LE(std::abs(answer.y[i] - right.y[i]), 0.5 * UlpOf(right.y[i]) + 1e-5)
            << name << " eps " << eps;
    });
  }
}

// N-08: the default eps does not depend on the storage type. At a deviation of 0.058 the eps of bf16's own
// precision, 0.0078, would halve the result.
TEST_F(NormStorageCases, TheDefaultEpsIsThatOfFp32) {
  EXPECT_EQ(NormSpec{}.eps, 1e-5);
  NormProblem p = RandomNormProblem({.kind = KindOf<RmsNorm>()}, 64, 32, {.spread = 0.058}, Seed(),
                                    Uniform(DType::kBF16));
  p.weight.assign(p.weight.size(), 1);
  ForEachImplementation(*device_, p.spec, 32, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer answer = RunNorm(*device_, As(p, s));
    for (int64_t r = 0; r < p.rows; ++r) {
      double x = 0, y = 0;
      for (int64_t c = 0; c < 32; ++c) {
        x += p.x[r * 32 + c] * p.x[r * 32 + c] / 32;
        y += answer.y[r * 32 + c] * answer.y[r * 32 + c] / 32;
      }
      ASSERT_NEAR(std::sqrt(y), std::sqrt(x / (x + 1e-5)), 0x1p-9) << name << " row " << r;
    }
  });
}

// N-18 in bf16.
TEST_F(NormStorageCases, WidthOneLayerNormReturnsItsBiasExactly) {
  NormProblem p = RandomNormProblem({.kind = KindOf<LayerNorm>()}, 6, 1, {}, Seed(), Uniform(DType::kBF16));
  p.x.assign(6, RoundTo(DType::kBF16, 3.7));
  p.weight = {2}, p.bias = {0.5};
  p.dy.assign(6, 1);
  ForEachImplementation(*device_, p.spec, 1, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer answer = RunNorm(*device_, As(p, s));
    EXPECT_EQ(answer.y, Values(6, 0.5)) << name;
    EXPECT_EQ(answer.dx, Values(6, 0.0)) << name;
    EXPECT_EQ(answer.dweight, Values(1, 0.0)) << name;
    EXPECT_EQ(answer.dbias, Values(1, 6.0)) << name;
  });
}

// A wide row whose terms are nearly equal keeps its digits: added to one growing fp32 sum they would all be
// rounded the same way, which has cost 2.4e-5.
TEST_F(NormStorageCases, TheSumOverAWideRowKeepsItsDigits) {
  const int64_t cols = 131072;
  const NormProblem p =
      RandomNormProblem({.kind = KindOf<RmsNorm>()}, 1, cols, {.mean = 1000.1, .spread = 0.01}, Seed());
  const NormAnswer right = Expect(p).answer;
  ForEachImplementation(*device_, p.spec, cols, [&](const NormSpec& s, const std::string& name) {
    const NormAnswer answer = RunNorm(*device_, As(p, s));
    double worst = 0;
    for (size_t i = 0; i < answer.y.size(); ++i)
      worst = std::max(worst, std::abs(answer.y[i] / right.y[i] - 1));
    std::printf("[  worst   ] %s: relative error %.2g\n", name.c_str(), worst);
    EXPECT_LE(worst, 32 * kUnitF32) << name;
  });
}

}  // namespace
}  // namespace normlab::test
