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

Counts RunBoth(NormKind kind, bool residual, bool accumulate) {
  const auto device = MakeCpuDevice({.threads = 2});
  cpu::CpuContext context(2);
  const NormSpec spec{.kind = kind, .implementation = NormImplementation::kHandrolled};
  const auto input = [&](const char* name, int64_t rows) {
    return test::DeviceTensor::Input(*device, rows, kCols, Random(rows * kCols, name));
  };
  const auto x = input("x", kRows), res = input("residual", kRows), dy = input("dy", kRows);
  const auto weight = input("weight", 1), bias = input("bias", 1);
  const auto sum = test::DeviceTensor::Output(*device, kRows, kCols),
             y = test::DeviceTensor::Output(*device, kRows, kCols);
  const auto dx = test::DeviceTensor::Accumulator(*device, kRows, kCols, Random(kRows * kCols, "dx"));
  const auto dweight = test::DeviceTensor::Output(*device, 1, kCols),
             dbias = test::DeviceTensor::Output(*device, 1, kCols);
  const auto saved = test::DeviceTensor::Output(*device, 1, device->NormSavedElements(spec, kRows, kCols));
  const bool has_bias = InfoOf(kind).has_bias;
  Counts counts;
  cpu::HandrolledForward(context,
                         {.spec = spec,
                          .x = x.view(),
                          .residual = residual ? res.view() : View{},
                          .weight = weight.Vector(),
                          .bias = has_bias ? bias.Vector() : View{},
                          .sum = residual ? sum.view() : View{},
                          .y = y.view(),
                          .saved = saved.Vector()},
                         &counts.forward);
  cpu::HandrolledBackward(context,
                          {.spec = spec,
                           .x = residual ? sum.view() : x.view(),
                           .dy = dy.view(),
                           .weight = weight.Vector(),
                           .saved = saved.Vector(),
                           .dx = dx.view(),
                           .dweight = dweight.Vector(),
                           .dbias = has_bias ? dbias.Vector() : View{},
                           .accumulate_dx = accumulate},
                          &counts.backward);
  return counts;
}

void ExpectTheList(std::span<const Pass> list, const std::vector<PassCount>& ran, bool residual,
                   bool accumulate) {
  std::vector<Pass> expected;
  for (const Pass& pass : list)
    if (pass.when == PassWhen::kAlways || (pass.when == PassWhen::kWithResidual && residual) ||
        (pass.when == PassWhen::kAccumulating && accumulate))
      expected.push_back(pass);
  ASSERT_EQ(ran.size(), expected.size());
  for (size_t i = 0; i < ran.size(); ++i) {
    EXPECT_EQ(ran[i].name, expected[i].name);
    EXPECT_EQ(ran[i].elements_read, expected[i].reads * kRows * kCols) << ran[i].name;
    EXPECT_EQ(ran[i].elements_written, expected[i].writes * kRows * kCols) << ran[i].name;
  }
}

TEST(HandrolledPasses, WhatRunsIsTheList) {
  for (const NormKind kind : {KindOf<LayerNorm>(), KindOf<RmsNorm>()})
    for (const bool residual : {false, true})
      for (const bool accumulate : {false, true}) {
        const Counts counts = RunBoth(kind, residual, accumulate);
        ExpectTheList(HandrolledPasses(kind, false), counts.forward, residual, accumulate);
        ExpectTheList(HandrolledPasses(kind, true), counts.backward, residual, accumulate);
      }
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
