// The hand-rolled norms must cost what an eager framework pays: the passes that run are those of the list,
// the list is the one that docs/handrolled.md shows, and each pass moves the matrices that it says.

#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "normlab/base/random.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/cpu/norm_handrolled.h"
#include "normlab/norms/norm_list.h"
#include "normlab/testing/device_tensor.h"

namespace normlab {
namespace {

using cpu::HandrolledPasses;
using cpu::Pass;
using cpu::PassCount;
using cpu::PassWhen;

constexpr int64_t kRows = 5, kCols = 37;

std::vector<double> Random(int64_t count, const char* name) {
  const RandomStream stream(1, name);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = stream.Normal(i);
  return values;
}

struct Counts {
  std::vector<PassCount> forward, backward;
};

// The sets of storage types that the passes tell apart.
struct Types {
  DType stream, y;
  bool dx_low;
};

Counts RunBoth(NormKind kind, bool residual, bool accumulate, const Types& types, NormCast cast,
               unsigned& forward_passes, unsigned& backward_passes) {
  const auto device = MakeCpuDevice({.threads = 2});
  cpu::CpuContext context(2);
  const NormSpec spec{.kind = kind, .implementation = NormImplementation::kHandrolled, .cast = cast};
  const auto input = [&](const char* name, int64_t rows, DType dtype = DType::kF32) {
    return test::DeviceTensor::Input(*device, rows, kCols, Random(rows * kCols, name), {.dtype = dtype});
  };
  const auto x = input("x", kRows, residual ? types.y : types.stream),
             res = input("residual", kRows, types.stream), dy = input("dy", kRows, types.y);
  const auto weight = input("weight", 1), bias = input("bias", 1);
  const auto sum = test::DeviceTensor::Output(*device, kRows, kCols, {.dtype = types.stream}),
             y = test::DeviceTensor::Output(*device, kRows, kCols, {.dtype = types.y}),
             dx_low = test::DeviceTensor::Output(*device, kRows, kCols, {.dtype = DType::kBF16});
  const auto dx = test::DeviceTensor::Accumulator(*device, kRows, kCols, Random(kRows * kCols, "dx"),
                                                  {.dtype = types.stream});
  const auto dweight = test::DeviceTensor::Output(*device, 1, kCols),
             dbias = test::DeviceTensor::Output(*device, 1, kCols);
  const auto saved = test::DeviceTensor::Output(*device, 1, device->NormSavedElements(spec, kRows, kCols));
  const bool has_bias = InfoOf(kind).has_bias;
  Counts counts;
  const NormForwardArgs forward{.spec = spec,
                                .x = x.view(),
                                .residual = residual ? res.view() : View{},
                                .weight = weight.Vector(),
                                .bias = has_bias ? bias.Vector() : View{},
                                .sum = residual ? sum.view() : View{},
                                .y = y.view(),
                                .saved = saved.Vector()};
  const NormBackwardArgs backward{.spec = spec,
                                  .x = residual ? sum.view() : x.view(),
                                  .dy = dy.view(),
                                  .weight = weight.Vector(),
                                  .saved = saved.Vector(),
                                  .dx = dx.view(),
                                  .dx_low = types.dx_low ? dx_low.view() : View{},
                                  .dweight = dweight.Vector(),
                                  .dbias = has_bias ? dbias.Vector() : View{},
                                  .accumulate_dx = accumulate};
  forward_passes = cpu::PassesOf(forward);
  backward_passes = cpu::PassesOf(backward);
  cpu::HandrolledForward(context, forward, &counts.forward);
  cpu::HandrolledBackward(context, backward, &counts.backward);
  return counts;
}

void ExpectTheList(std::span<const Pass> list, const std::vector<PassCount>& ran, unsigned passes) {
  std::vector<Pass> expected;
  for (const Pass& pass : list)
    if ((passes & Bit(pass.when)) != 0) expected.push_back(pass);
  ASSERT_EQ(ran.size(), expected.size());
  for (size_t i = 0; i < ran.size(); ++i) {
    EXPECT_EQ(ran[i].name, expected[i].name);
    EXPECT_EQ(ran[i].elements_read, expected[i].reads * kRows * kCols) << ran[i].name;
    EXPECT_EQ(ran[i].elements_written, expected[i].writes * kRows * kCols) << ran[i].name;
  }
}

TEST(HandrolledPasses, WhatRunsIsTheList) {
  constexpr Types kTypes[] = {{DType::kF32, DType::kF32, false},
                              {DType::kF32, DType::kF32, true},
                              {DType::kBF16, DType::kBF16, false},
                              {DType::kF32, DType::kBF16, true}};
  for (const NormKind kind : {KindOf<LayerNorm>(), KindOf<RmsNorm>()})
    for (const bool residual : {false, true})
      for (const bool accumulate : {false, true})
        for (const Types& types : kTypes)
          for (const NormCast cast : {NormCast::kAfterGain, NormCast::kBeforeGain}) {
            unsigned forward = 0, backward = 0;
            const Counts counts = RunBoth(kind, residual, accumulate, types, cast, forward, backward);
            ExpectTheList(HandrolledPasses(kind, false), counts.forward, forward);
            ExpectTheList(HandrolledPasses(kind, true), counts.backward, backward);
          }
}

// Which conversions run, said once more and by hand.
TEST(HandrolledPasses, SixteenBitRowsAreConvertedByPassesOfTheirOwn) {
  const auto names = [](const std::vector<PassCount>& passes) {
    std::set<std::string> found;
    for (const PassCount& pass : passes)
      if (pass.name.find("fp32") != std::string::npos || pass.name.find("16 bits") != std::string::npos)
        found.insert(std::string(pass.name));
    return found;
  };
  using Names = std::set<std::string>;
  unsigned forward = 0, backward = 0;
  const auto run = [&](bool residual, bool accumulate, Types types, NormCast cast = NormCast::kAfterGain) {
    return RunBoth(KindOf<RmsNorm>(), residual, accumulate, types, cast, forward, backward);
  };
  Counts counts = run(true, true, {DType::kF32, DType::kF32, false}, NormCast::kBeforeGain);
  EXPECT_EQ(names(counts.forward), Names{});
  EXPECT_EQ(names(counts.backward), Names{});
  counts = run(true, true, {DType::kBF16, DType::kBF16, false});
  EXPECT_EQ(names(counts.forward), (Names{"x to fp32", "y to 16 bits"}));
  EXPECT_EQ(names(counts.backward), (Names{"x to fp32", "dy to fp32", "dx to fp32", "dx to 16 bits"}));
  counts = run(true, true, {DType::kF32, DType::kBF16, true}, NormCast::kBeforeGain);
  EXPECT_EQ(names(counts.forward), (Names{"branch to fp32", "norm_x rounded to 16 bits", "y to 16 bits"}));
  EXPECT_EQ(names(counts.backward),
            (Names{"dy to fp32", "norm_x rounded to 16 bits", "dx_low = dx to 16 bits"}));
  counts = run(false, false, {DType::kF32, DType::kBF16, false});
  EXPECT_EQ(names(counts.forward), (Names{"y to 16 bits"}));
  EXPECT_EQ(names(counts.backward), (Names{"dy to fp32"}));
}

TEST(HandrolledPasses, TheDocumentShowsTheList) {
  std::ifstream file(NORMLAB_SOURCE_DIR "/docs/handrolled.md");
  ASSERT_TRUE(file) << "docs/handrolled.md is missing";
  std::stringstream text;
  text << file.rdbuf();
  std::string rest = text.str();
  for (const NormKind kind : {KindOf<LayerNorm>(), KindOf<RmsNorm>()})
    for (const bool backward : {false, true})
      for (const Pass& pass : HandrolledPasses(kind, backward)) {
        // In order, each after the one before.
        const std::string row = fmt::format("| {} | {} | {} |", pass.name, pass.reads, pass.writes);
        const size_t at = rest.find(row);
        ASSERT_NE(at, std::string::npos) << "docs/handrolled.md lacks, or has out of order: " << row;
        rest = rest.substr(at + row.size());
      }
  EXPECT_EQ(rest.find("\n| "), std::string::npos) << "docs/handrolled.md has a pass that does not run";
}

}  // namespace
}  // namespace normlab
