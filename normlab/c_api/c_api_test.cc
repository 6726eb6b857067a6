// The C functions: what they compute is what the device computes, and what they refuse leaves everything as
// it was.

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/base/random.h"
#include "normlab/base/threads.h"
#include "normlab/c_api/normlab.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/host_view.h"
#include "normlab/norms/norm_list.h"
#include "normlab/norms/norm_type.h"

namespace normlab {
namespace {

using Floats = std::vector<float>;
constexpr float kCanary = -7777.25f;

Floats Random(size_t count, const char* name) {
  const RandomStream stream(5, name);
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.Normal(i));
  return values;
}

// A handle that ends with its scope.
struct Norm {
  explicit Norm(const std::string& name) {
    EXPECT_EQ(normlab_norm_create(name.c_str(), &handle), NORMLAB_OK) << normlab_last_error();
  }
  ~Norm() { normlab_norm_destroy(handle); }
  Norm(const Norm&) = delete;
  Norm& operator=(const Norm&) = delete;

  void Set(const char* option, double value) const {
    ASSERT_EQ(normlab_norm_set(handle, option, value), NORMLAB_OK) << normlab_last_error();
  }
  double Get(const char* option) const {
    double value = std::nan("");
    EXPECT_EQ(normlab_norm_get(handle, option, &value), NORMLAB_OK) << normlab_last_error();
    return value;
  }
  bool Has(const char* fact) const { return Get(fact) == 1; }

  normlab_norm* handle = nullptr;
};

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (size_t i = 0; normlab_norm_name(i) != nullptr; ++i) names.emplace_back(normlab_norm_name(i));
  return names;
}

void ExpectRefused(normlab_status status, const std::string& part) {
  EXPECT_EQ(status, NORMLAB_INVALID_ARGUMENT) << part;
  EXPECT_NE(std::string(normlab_last_error()).find(part), std::string::npos)
      << "\"" << normlab_last_error() << "\" does not say \"" << part << "\"";
}

// One problem in plain arrays, dense, with its answers; `gap` floats stand behind each row, `shift` before
// the first.
struct Problem {
  int64_t rows, cols;
  int64_t gap = 0, shift = 0;
  bool residual = false;
  Floats x, dy, residual_values, weight, bias, alpha = {0.5f};
  Floats sum, y, saved, dx, dweight, dbias, dalpha = {0};

  Problem(int64_t r, int64_t c, int64_t row_gap = 0, int64_t first = 0)
      : rows(r), cols(c), gap(row_gap), shift(first) {
    x = Spread(Random(Count(), "x"));
    dy = Spread(Random(Count(), "dy"));
    residual_values = Spread(Random(Count(), "residual"));
    weight = Random(static_cast<size_t>(cols), "weight");
    bias = Random(static_cast<size_t>(cols), "bias");
    sum = y = dx = Spread(Floats(Count(), kCanary));
    dweight = dbias = Floats(static_cast<size_t>(cols), 0);
  }
  size_t Count() const { return static_cast<size_t>(rows * cols); }
  int64_t Stride() const { return cols + gap; }

  // Dense values at the problem's places, canaries between them.
  Floats Spread(const Floats& dense) const {
    Floats spread(static_cast<size_t>(shift + rows * Stride() + 8), kCanary);
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(dense.begin() + r * cols, cols, spread.begin() + shift + r * Stride());
    return spread;
  }
  Floats Dense(const Floats& spread) const {
    Floats dense(Count());
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(spread.begin() + shift + r * Stride(), cols, dense.begin() + r * cols);
    return dense;
  }
  bool GapsIntact(const Floats& spread) const { return spread == Spread(Dense(spread)); }

  normlab_forward_args Forward(const Norm& norm) {
    int64_t elements = -1;
    EXPECT_EQ(normlab_norm_saved_elements(norm.handle, rows, cols, &elements), NORMLAB_OK);
    saved.assign(static_cast<size_t>(elements), 0);
    normlab_forward_args args{};
    args.struct_size = sizeof(args);
    args.rows = rows, args.cols = cols;
    args.x = x.data() + shift, args.x_stride = Stride();
    if (residual) {
      args.residual = residual_values.data() + shift, args.residual_stride = Stride();
      args.sum = sum.data() + shift, args.sum_stride = Stride();
    }
    if (norm.Has("has_weight")) args.weight = weight.data();
    if (norm.Has("has_bias")) args.bias = bias.data();
    if (norm.Has("has_alpha")) args.alpha = alpha.data();
    args.y = y.data() + shift, args.y_stride = Stride();
    args.saved = saved.data(), args.saved_elements = elements;
    return args;
  }
  normlab_backward_args Backward(const Norm& norm) {
    normlab_backward_args args{};
    args.struct_size = sizeof(args);
    args.rows = rows, args.cols = cols;
    args.x = (residual ? sum : x).data() + shift, args.x_stride = Stride();
    args.dy = dy.data() + shift, args.dy_stride = Stride();
    if (norm.Has("has_weight")) args.weight = weight.data(), args.dweight = dweight.data();
    if (norm.Has("has_bias")) args.dbias = dbias.data();
    if (norm.Has("has_alpha")) args.alpha = alpha.data(), args.dalpha = dalpha.data();
    args.saved = saved.data(), args.saved_elements = static_cast<int64_t>(saved.size());
    args.dx = dx.data() + shift, args.dx_stride = Stride();
    return args;
  }
  void Run(const Norm& norm) {
    const normlab_forward_args forward = Forward(norm);
    ASSERT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK) << normlab_last_error();
    const normlab_backward_args backward = Backward(norm);
    ASSERT_EQ(normlab_norm_backward(norm.handle, &backward), NORMLAB_OK) << normlab_last_error();
  }
  // y, dx, dweight, dbias one after the other, dense.
  Floats Answers() const {
    Floats all = Dense(y);
    for (const Floats& part : {Dense(dx), dweight, dbias, dalpha})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }
};

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CApi, EveryNormGivesTheBitsOfTheDevice) {
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = 2});
  int compared = 0;
  for (const std::string& name : Names()) {
    const NormType type = ParseNormType(name);
    const NormInfo& info = InfoOf(type.kind);
    const Norm norm(name);
    ++compared;
    norm.Set("threads", 2);
    norm.Set("eps", 1e-3);
    norm.Set("weight_offset", 1);
    Problem c(70, 257);  // more than one partial sum, more than one thread
    c.residual = true;
    c.Run(norm);

    Problem want(70, 257);
    NormSpec spec{.kind = type.kind, .implementation = type.implementation, .eps = 1e-3, .weight_offset = 1};
    want.saved.assign(static_cast<size_t>(device->NormSavedElements(spec, 70, 257)), 0);
    const View weight = info.has_gain ? HostVector(want.weight) : View();
    const View sum = HostMatrix(want.sum, 70, 257), saved = HostVector(want.saved);
    device->NormForward({.spec = spec,
                         .x = HostMatrix(want.x, 70, 257),
                         .residual = HostMatrix(want.residual_values, 70, 257),
                         .weight = weight,
                         .bias = info.has_bias ? HostVector(want.bias) : View(),
                         .alpha = info.has_alpha ? HostVector(want.alpha) : View(),
                         .sum = sum,
                         .y = HostMatrix(want.y, 70, 257),
                         .saved = saved});
    device->NormBackward({.spec = spec,
                          .x = sum,
                          .dy = HostMatrix(want.dy, 70, 257),
                          .weight = weight,
                          .alpha = info.has_alpha ? HostVector(want.alpha) : View(),
                          .saved = saved,
                          .dx = HostMatrix(want.dx, 70, 257),
                          .dweight = info.has_gain ? HostVector(want.dweight) : View(),
                          .dbias = info.has_bias ? HostVector(want.dbias) : View(),
                          .dalpha = info.has_alpha ? HostVector(want.dalpha) : View()});
    EXPECT_TRUE(SameBits(c.Answers(), want.Answers())) << name;
    EXPECT_TRUE(SameBits(c.sum, want.sum)) << name;
    EXPECT_TRUE(std::isfinite(c.y[0]) && c.y[0] != kCanary && c.dx[0] != kCanary) << name;
  }
  EXPECT_GE(compared, 9);
}

// N-13, N-15: rows apart, and arrays that start one float after a boundary, give the bits of dense ones; what
// stands between the rows is neither read nor written.
TEST(CApi, StridesAndAlignmentDoNotChangeTheBits) {
  for (const std::string& name : Names()) {
    const Norm norm(name);
    for (const bool residual : {false, true}) {
      Problem dense(9, 769);
      dense.residual = residual;
      dense.Run(norm);
      for (const int64_t gap : {0, 1, 64}) {
        Problem apart(9, 769, gap, 1);
        apart.residual = residual;
        apart.Run(norm);
        EXPECT_TRUE(SameBits(apart.Answers(), dense.Answers())) << name << " gap " << gap;
        EXPECT_TRUE(apart.GapsIntact(apart.y) && apart.GapsIntact(apart.dx) && apart.GapsIntact(apart.sum))
            << name << " gap " << gap;
      }
    }
  }
}

TEST(CApi, StrideZeroStandsForCols) {
  const Norm norm("layernorm");
  Problem problem(3, 10), zero(3, 10);
  problem.Run(norm);
  normlab_forward_args forward = zero.Forward(norm);
  forward.x_stride = forward.y_stride = 0;
  ASSERT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK) << normlab_last_error();
  EXPECT_TRUE(SameBits(zero.y, problem.y));
}

// N-09: in place is exact, a partial overlap is refused and writes nothing.
TEST(CApi, InPlaceIsExactAndAPartialOverlapIsRefused) {
  const Norm norm("rmsnorm");
  norm.Set("eps", 1e-4);
  std::vector<Floats> answers;  // out of place, over x, over dy
  for (const Floats Problem::*place : {&Problem::dx, &Problem::x, &Problem::dy}) {
    Problem problem(1, 4);
    problem.x = problem.dy = problem.Spread({1, 0, 0, 0});
    problem.weight = {1, 1, 1, 1};
    const normlab_forward_args forward = problem.Forward(norm);
    ASSERT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK);
    normlab_backward_args backward = problem.Backward(norm);
    backward.dx = const_cast<float*>((problem.*place).data());
    ASSERT_EQ(normlab_norm_backward(norm.handle, &backward), NORMLAB_OK) << normlab_last_error();
    answers.push_back(problem.Dense(problem.*place));
    EXPECT_TRUE(SameBits(answers.back(), answers.front()));
  }
  // dx = inv_rms (g - xhat mean(g xhat)): two terms of about 1, each with 4 + sqrt(cols) roundings, times
  // about 2.
  EXPECT_NEAR(answers[0][0], 7.9952e-4, 6 * 0x1p-24 * 2 * 2);
  EXPECT_EQ(Floats(answers[0].begin() + 1, answers[0].end()), Floats(3, 0.0f));

  Problem problem(3, 10);
  normlab_forward_args forward = problem.Forward(norm);
  const Floats before = problem.x;
  forward.y = problem.x.data() + 1;
  ExpectRefused(normlab_norm_forward(norm.handle, &forward), "overlap");
  forward = problem.Forward(norm);
  forward.y = problem.x.data();  // the same array, but another stride
  forward.y_stride = 11;
  ExpectRefused(normlab_norm_forward(norm.handle, &forward), "overlap");
  EXPECT_TRUE(SameBits(problem.x, before));
  normlab_backward_args backward = problem.Backward(norm);
  backward.dx = problem.dy.data() + 1;
  ExpectRefused(normlab_norm_backward(norm.handle, &backward), "overlap");
  backward = problem.Backward(norm);
  backward.dx = problem.dy.data();
  backward.accumulate_dx = 1;
  ExpectRefused(normlab_norm_backward(norm.handle, &backward), "overlap");
}

// N-07
TEST(CApi, AnEpsThatIsNegativeOrNotANumberIsRefused) {
  const Norm norm("layernorm");
  EXPECT_EQ(norm.Get("eps"), 1e-5);
  for (const double eps : {-1e-9, -1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e39}) {
    ExpectRefused(normlab_norm_set(norm.handle, "eps", eps), "at least 0");
    EXPECT_EQ(norm.Get("eps"), 1e-5);
  }
  ExpectRefused(normlab_norm_set(norm.handle, "weight_offset", -1e39), "finite as a float");
  norm.Set("eps", 0);
  Problem zero(2, 33);
  zero.x = zero.Spread(Floats(66, 0));
  zero.Run(norm);
  for (int64_t i = 0; i < 66; ++i) {
    EXPECT_EQ(zero.y[i], zero.bias[i % 33]);
    EXPECT_TRUE(std::isfinite(zero.dx[i]));
  }
}

// N-06: x = 0, dy = 1, weight 1, eps 1e-5.
TEST(CApi, RowsOfZerosHaveFiniteGradients) {
  for (const char* name : {"rmsnorm", "layernorm"}) {
    const Norm norm(name);
    Problem problem(3, 64);
    problem.x = problem.Spread(Floats(192, 0));
    problem.dy = problem.Spread(Floats(192, 1));
    problem.weight.assign(64, 1);
    problem.bias.assign(64, 0);
    problem.Run(norm);
    const bool rms = std::string(name) == "rmsnorm";
    for (int64_t i = 0; i < 192; ++i) {
      EXPECT_EQ(problem.y[i], 0);
      if (rms) {  // 1 / sqrt(1e-5); eps, the root and the quotient are each rounded to fp32
        EXPECT_NEAR(problem.dx[i], 316.22776602, 316.3 * 3 * 0x1p-24);
      } else {
        EXPECT_EQ(problem.dx[i], 0);
      }
    }
    EXPECT_EQ(problem.dweight, Floats(64, 0.0f));
    EXPECT_EQ(problem.dbias, Floats(64, rms ? 0.0f : 3.0f));
  }
}

// N-17
TEST(CApi, ZeroRowsAreFineAndZeroColumnsAreRefused) {
  for (const std::string& name : Names()) {
    const Norm norm(name);
    for (const bool accumulate : {false, true}) {
      Problem problem(0, 10);
      problem.dweight.assign(10, 7);
      problem.dbias.assign(10, 7);
      normlab_forward_args forward = problem.Forward(norm);
      forward.x = nullptr, forward.y = nullptr, forward.saved = nullptr;
      EXPECT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK) << name << normlab_last_error();
      normlab_backward_args backward = problem.Backward(norm);
      backward.x = nullptr, backward.dy = nullptr, backward.dx = nullptr, backward.saved = nullptr;
      backward.accumulate_parameters = accumulate;
      EXPECT_EQ(normlab_norm_backward(norm.handle, &backward), NORMLAB_OK) << name << normlab_last_error();
      EXPECT_EQ(problem.dweight, Floats(10, norm.Has("has_weight") && !accumulate ? 0.0f : 7.0f)) << name;
      EXPECT_EQ(problem.dbias, Floats(10, norm.Has("has_bias") && !accumulate ? 0.0f : 7.0f)) << name;
    }
    Problem problem(3, 1);
    normlab_forward_args forward = problem.Forward(norm);
    forward.cols = 0;
    ExpectRefused(normlab_norm_forward(norm.handle, &forward), "cols is 0");
    normlab_backward_args backward = problem.Backward(norm);
    backward.cols = 0;
    ExpectRefused(normlab_norm_backward(norm.handle, &backward), "cols is 0");
    int64_t elements = 0;
    ExpectRefused(normlab_norm_saved_elements(norm.handle, 3, 0, &elements), "cols is 0");
    ExpectRefused(normlab_norm_saved_elements(norm.handle, -1, 3, &elements), "rows is -1");
    ExpectRefused(normlab_norm_saved_elements(norm.handle, int64_t{1} << 40, int64_t{1} << 40, &elements),
                  "memory");
  }
}

// N-18
TEST(CApi, LayerNormOfOneColumnReturnsItsBias) {
  const Norm norm("layernorm");
  Problem problem(6, 1);
  problem.x = problem.Spread(Floats(6, 3.7f));
  problem.dy = problem.Spread(Floats(6, 1));
  problem.weight = {2};
  problem.bias = {0.5};
  problem.Run(norm);
  EXPECT_EQ(problem.Dense(problem.y), Floats(6, 0.5f));
  EXPECT_EQ(problem.Dense(problem.dx), Floats(6, 0.0f));
  EXPECT_EQ(problem.dweight, Floats{0});
  EXPECT_EQ(problem.dbias, Floats{6});
}

TEST(CApi, WhatIsNotWantedMayBeNull) {
  const Norm norm("layernorm");
  Problem whole(5, 40), less(5, 40);
  whole.Run(norm);
  normlab_forward_args forward = less.Forward(norm);
  ASSERT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK);
  normlab_backward_args backward = less.Backward(norm);
  backward.dweight = backward.dbias = nullptr;
  ASSERT_EQ(normlab_norm_backward(norm.handle, &backward), NORMLAB_OK) << normlab_last_error();
  EXPECT_TRUE(SameBits(less.dx, whole.dx));

  Floats saved = less.saved;
  forward.saved = nullptr, forward.saved_elements = 0;
  std::fill(less.y.begin(), less.y.begin() + 200, kCanary);
  ASSERT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK) << normlab_last_error();
  EXPECT_TRUE(SameBits(less.y, whole.y));
  EXPECT_TRUE(SameBits(less.saved, saved));

  Problem ones(5, 40), bare(5, 40);
  ones.weight.assign(40, 1);
  ones.bias.assign(40, 0);
  ones.Run(norm);
  forward = bare.Forward(norm);
  forward.weight = forward.bias = nullptr;
  ASSERT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK) << normlab_last_error();
  EXPECT_EQ(bare.y, ones.y);  // values: 0 times a sign may differ in bits
}

TEST(CApi, AccumulatingAddsToWhatIsThere) {
  for (const std::string& name : Names()) {
    const Norm norm(name);
    Problem once(7, 24), onto(7, 24);
    once.Run(norm);
    onto.dx = onto.Spread(Floats(168, 1));
    onto.dweight.assign(24, 2);
    onto.dbias.assign(24, 3);
    onto.dalpha = {4};
    normlab_forward_args forward = onto.Forward(norm);
    ASSERT_EQ(normlab_norm_forward(norm.handle, &forward), NORMLAB_OK);
    normlab_backward_args backward = onto.Backward(norm);
    backward.accumulate_dx = backward.accumulate_parameters = 1;
    ASSERT_EQ(normlab_norm_backward(norm.handle, &backward), NORMLAB_OK) << normlab_last_error();
    // One rounding of the sum, and one more where the addition is fused with the last product.
    const auto near = [&](float got, float before, float added) {
      EXPECT_NEAR(got, before + added, 2 * 0x1p-24 * (std::abs(before) + 2 * std::abs(added))) << name;
    };
    for (int64_t i = 0; i < 168; ++i) near(onto.dx[i], 1, once.dx[i]);
    for (int64_t c = 0; c < 24; ++c) {
      near(onto.dweight[c], 2, once.dweight[c]);
      near(onto.dbias[c], 3, once.dbias[c]);
    }
    if (norm.Has("has_alpha")) near(onto.dalpha[0], 4, once.dalpha[0]);
  }
}

TEST(CApi, EveryThreadCountGivesTheSameBits) {
  const Norm norm("layernorm");
  EXPECT_EQ(norm.Get("threads"), 1);
  Problem one(300, 200);
  one.Run(norm);
  for (const int threads : {2, 3, 8}) {
    norm.Set("threads", threads);
    EXPECT_EQ(norm.Get("threads"), threads);
    Problem more(300, 200);
    more.Run(norm);
    EXPECT_TRUE(SameBits(more.Answers(), one.Answers())) << threads;
  }
  norm.Set("threads", 0);
  EXPECT_GE(norm.Get("threads"), 1);
  for (const double threads : {-1.0, 1.5, 1e9, std::nan("")})
    ExpectRefused(normlab_norm_set(norm.handle, "threads", threads), "whole number");
}

// P-07: the caller's setting for denormals is not touched.
TEST(CApi, DenormalsOfTheCallerSurviveACall) {
  const Norm norm("rmsnorm");
  Problem problem(64, 512);
  problem.Run(norm);
  volatile float smallest_normal = std::numeric_limits<float>::min();
  EXPECT_GT(smallest_normal / 2, 0.0f);
}

TEST(CApi, WrongArgumentsAreRefusedByName) {
  normlab_norm* made = reinterpret_cast<normlab_norm*>(1);
  ExpectRefused(normlab_norm_create("rmsnrom", &made), "did you mean \"rmsnorm\"");
  EXPECT_EQ(made, nullptr);
  ExpectRefused(normlab_norm_create(nullptr, &made), "name is NULL");
  ExpectRefused(normlab_norm_create("rmsnorm", nullptr), "norm is NULL");
  normlab_norm_destroy(nullptr);

  const Norm norm("rmsnorm");
  ExpectRefused(normlab_norm_set(norm.handle, "epsilon", 1), "unknown option");
  ExpectRefused(normlab_norm_set(norm.handle, "has_bias", 1), "cannot be set");
  ExpectRefused(normlab_norm_set(norm.handle, nullptr, 1), "option is NULL");
  ExpectRefused(normlab_norm_set(nullptr, "eps", 1), "norm is NULL");
  ExpectRefused(normlab_norm_get(norm.handle, "eps", nullptr), "value is NULL");
  ExpectRefused(normlab_norm_forward(norm.handle, nullptr), "args is NULL");

  Problem problem(3, 10);
  const auto refuse_forward = [&](auto&& change, const char* part) {
    normlab_forward_args args = problem.Forward(norm);
    change(args);
    ExpectRefused(normlab_norm_forward(norm.handle, &args), part);
  };
  refuse_forward([](auto& a) { a.rows = -1; }, "rows is -1");
  refuse_forward([](auto& a) { a.x = nullptr; }, "x is NULL; it must hold [3, 10] floats");
  refuse_forward([](auto& a) { a.y_stride = 9; }, "y_stride is 9; it must be at least cols, 10");
  refuse_forward([](auto& a) { a.x_stride = -10; }, "x_stride is -10");
  refuse_forward([](auto& a) { a.x_stride = int64_t{1} << 60, a.rows = 1 << 20; }, "larger than memory");
  refuse_forward([&](auto& a) { a.bias = problem.bias.data(); }, "bias is given but rmsnorm has none");
  refuse_forward([&](auto& a) { a.alpha = problem.alpha.data(); }, "alpha is given but rmsnorm has none");
  refuse_forward([&](auto& a) { a.sum = problem.sum.data(); }, "there is no residual");
  refuse_forward([](auto& a) { a.saved_elements = 2; }, "saved_elements is 2; 3 rows of 10 need 3");
  refuse_forward(
      [](auto& a) { a.x = reinterpret_cast<const float*>(reinterpret_cast<const char*>(a.x) + 1); },
      "not aligned");
  EXPECT_TRUE(SameBits(problem.y, problem.Spread(Floats(30, kCanary))));  // nothing was written

  const auto refuse_backward = [&](auto&& change, const char* part) {
    normlab_backward_args args = problem.Backward(norm);
    change(args);
    ExpectRefused(normlab_norm_backward(norm.handle, &args), part);
  };
  refuse_backward([](auto& a) { a.saved = nullptr; }, "saved is NULL");
  refuse_backward([](auto& a) { a.weight = nullptr; }, "dweight is given but weight is NULL");
  refuse_backward([&](auto& a) { a.dbias = problem.dbias.data(); }, "dbias is given but rmsnorm has none");
  refuse_backward([](auto& a) { a.dx = nullptr; }, "dx is NULL");
  EXPECT_TRUE(SameBits(problem.dx, problem.Spread(Floats(30, kCanary))));
}

// A program compiled against a later header runs as long as it does not use what is new there.
TEST(CApi, TheSizeOfAStructSaysWhatItsCallerKnows) {
  struct Later {
    normlab_forward_args known;
    double unknown;
  };
  const Norm norm("layernorm");
  Problem problem(3, 10), later(3, 10);
  problem.Run(norm);
  Later args{later.Forward(norm), 0};
  args.known.struct_size = sizeof(args);
  ASSERT_EQ(normlab_norm_forward(norm.handle, &args.known), NORMLAB_OK) << normlab_last_error();
  EXPECT_TRUE(SameBits(later.y, problem.y));
  args.unknown = 1;
  ExpectRefused(normlab_norm_forward(norm.handle, &args.known), "does not know");
  for (const size_t size : {size_t{0}, size_t{8}, sizeof(normlab_forward_args) - 8, size_t{1} << 40}) {
    args.known.struct_size = size;
    ExpectRefused(normlab_norm_forward(norm.handle, &args.known), "struct_size is");
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // which needs more address space than any limit leaves
// 2 GiB of statistics where 1 GiB is left: in a process of its own, because the limit stays.
TEST(CApiDeathTest, TooLittleMemoryIsAStatusAndNoCrash) {
  const auto status_of_a_large_call = [] {
    constexpr int64_t kSide = int64_t{1} << 14;
    constexpr size_t kBytes = kSide * kSide * sizeof(float);  // 1 GiB, of which no page is touched
    void* x =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const rlimit limit{2 * kBytes, 2 * kBytes};
    if (x == MAP_FAILED || ::setrlimit(RLIMIT_AS, &limit) != 0) return -1;
    normlab_norm* norm = nullptr;
    normlab_norm_create("handrolled_layernorm", &norm);
    normlab_forward_args args{};
    args.struct_size = sizeof(args);
    args.rows = args.cols = kSide;
    args.x = static_cast<float*>(x), args.y = static_cast<float*>(x);
    return normlab_norm_forward(norm, &args);
  };
  EXPECT_EXIT(std::_Exit(status_of_a_large_call()), ::testing::ExitedWithCode(NORMLAB_OUT_OF_MEMORY), "");
}
#endif

#if !defined(__SANITIZE_ADDRESS__)
// OpenMP ends a process that cannot start the threads it is asked for.
TEST(CApiDeathTest, ThreadsThatTheSystemRefusesAreAStatusAndNoExit) {
  const auto calls_with_room_for_a_few_threads = [] {
    const Norm norm("layernorm");
    Problem problem(300, 200);
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + 6 * ThreadStackBytes();
    const rlimit limit{bytes, bytes};
    if (!file || ::setrlimit(RLIMIT_AS, &limit) != 0) return 10;
    if (normlab_norm_set(norm.handle, "threads", 4096) != NORMLAB_INVALID_ARGUMENT) {
      problem.Run(norm);
      return 11;
    }
    if (std::string(normlab_last_error()).find("ulimit") == std::string::npos) return 12;
    if (norm.Get("threads") != 1) return 13;
    if (normlab_norm_set(norm.handle, "threads", 0) != NORMLAB_OK) return 14;
    problem.Run(norm);
    return ::testing::Test::HasFailure() ? 15 : 42;
  };
  EXPECT_EXIT(std::_Exit(calls_with_room_for_a_few_threads()), ::testing::ExitedWithCode(42), "");
}
#endif

TEST(CApi, EachThreadHasItsOwnLastError) {
  ExpectRefused(normlab_norm_create("here", nullptr), "norm is NULL");
  const std::string here = normlab_last_error();
  std::string there_at_first = "not run", there;
  std::thread([&] {
    there_at_first = normlab_last_error();
    normlab_norm* norm = nullptr;
    normlab_norm_create("there", &norm);
    there = normlab_last_error();
  }).join();
  EXPECT_EQ(there_at_first, "");
  EXPECT_NE(there.find("there"), std::string::npos) << there;
  EXPECT_EQ(normlab_last_error(), here);
}

TEST(CApi, FractionSaysHowMuchOfARowIsMeasured) {
  const Norm norm("partial_rmsnorm");
  EXPECT_EQ(norm.Get("fraction"), 0.0625);
  norm.Set("fraction", 0.5);
  norm.Set("eps", 0);
  Problem problem(1, 4);
  problem.x = problem.Spread({2, -2, 100, -50});
  problem.weight.assign(4, 1);
  problem.Run(norm);
  EXPECT_EQ(problem.Dense(problem.y), (Floats{1, -1, 50, -25}));
  for (const double fraction : {0.0, 1.5, std::nan("")})
    ExpectRefused(normlab_norm_set(norm.handle, "fraction", fraction), "above 0 and at most 1");
}

TEST(CApi, NamesAreThoseOfTheNormsThatRun) {
  const std::vector<std::string> names = Names();
  const std::set<std::string> listed(names.begin(), names.end());
  EXPECT_EQ(listed.size(), names.size());
  for (const char* name : {"layernorm", "fused_rmsnorm", "handrolled_layernorm", "generic_dyt", "no_norm"})
    EXPECT_TRUE(listed.contains(name)) << name;
  for (const std::string& name : KnownNormTypes()) {
    normlab_norm* norm = nullptr;
    const normlab_status status = normlab_norm_create(name.c_str(), &norm);
    if (listed.contains(name)) {
      EXPECT_EQ(status, NORMLAB_OK) << name;
    } else {
      ExpectRefused(status, "cannot run here: there ");  // ... is no fused kernel for it
    }
    normlab_norm_destroy(norm);
  }
  EXPECT_EQ(normlab_norm_name(std::numeric_limits<size_t>::max()), nullptr);
}

}  // namespace
}  // namespace normlab
