// What an entry in norm_list.h is enough for, beside the tests of norms that are built into this program too:
// the name is known, the model takes the norm and trains its parameters.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/norms/norm_list.h"
#include "normlab/testing/tiny_gpt.h"

namespace normlab {
namespace {

TEST(ToyNorm_root_rmsnorm, IsKnownByItsName) {
  EXPECT_EQ(ParseNormType("root_rmsnorm").kind, KindOf<RootRmsNorm>());
  const std::vector<std::string> known = KnownNormTypes();
  EXPECT_NE(std::find(known.begin(), known.end(), "root_rmsnorm"), known.end());
}

TEST(ToyNorm_root_rmsnorm, TrainsInAModel) {
  const auto device = MakeCpuDevice({.threads = 2});
  test::TinyGpt gpt(*device, test::TinyConfig("root_rmsnorm", "pre"));
  EXPECT_TRUE(std::isfinite(gpt.LossAndGradients()));
  for (const double gradient : gpt.Values(gpt.model.Gradient("trf_blocks.0.norm1.scale")))
    EXPECT_TRUE(std::isfinite(gradient) && gradient != 0);
}

}  // namespace
}  // namespace normlab
