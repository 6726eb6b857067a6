#include "normlab/train/step_bound.h"

#include <gtest/gtest.h>

#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/testing/small_run.h"

namespace normlab {
namespace {

TEST(StepBoundTest, ProductsAndBytesAddUp) {
  const StepBound bound{.products_s = 0.3, .bytes = 4e9, .copy_bytes_per_s = 20e9};
  EXPECT_DOUBLE_EQ(*bound.bytes_s(), 0.2);
  EXPECT_DOUBLE_EQ(*bound.seconds(), 0.5);
  EXPECT_FALSE((StepBound{.products_s = 0.3, .bytes = 4e9}.seconds()));
  EXPECT_FALSE((StepBound{.bytes = 4e9, .copy_bytes_per_s = 20e9}.seconds()));
}

TEST(StepBoundTest, AShareAboveOneSaysNothing) {
  EXPECT_DOUBLE_EQ(*ShareOfStep(0.5, 2), 0.25);
  EXPECT_DOUBLE_EQ(*ShareOfStep(2.0, 2), 1);
  EXPECT_FALSE(ShareOfStep(2.1, 2));
  EXPECT_FALSE(ShareOfStep(std::nullopt, 2));
}

TEST(StepBoundTest, BytesAreThoseOfAdamWAndOfTheActivationsOfEveryPass) {
  const auto device = MakeCpuDevice({.threads = 1});
  const auto bytes = [&](const TrainConfig& config) {
    const Gpt model(*device, config.model, config.init,
                    {.micro_batch = config.MicroBatch(), .window = config.Window()});
    return std::pair{StepBytes(model, config), model.saved_bytes()};
  };
  TrainConfig config = test::SmallConfig();
  config.batch = 4;
  config.micro_batch = 4;
  const auto [whole, saved] = bytes(config);
  const Gpt model(*device, config.model, config.init, {.micro_batch = 4, .window = config.Window()});
  EXPECT_EQ(whole, 30.0 * static_cast<double>(model.parameters().count()) + 2.0 * static_cast<double>(saved));
  config.micro_batch = 1;
  const auto [in_pieces, saved_of_one] = bytes(config);
  EXPECT_LT(saved_of_one, saved);
  EXPECT_NEAR(in_pieces, whole, 0.01 * whole);  // four passes of a quarter, but for padding
}

}  // namespace
}  // namespace normlab
