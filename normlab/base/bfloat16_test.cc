#include "normlab/base/bfloat16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace normlab {
namespace {

TEST(BFloat16, EveryValueComesBackFromFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<uint16_t>(bits)};
    if (std::isnan(value.ToFloat()))
      EXPECT_TRUE(std::isnan(BFloat16::FromFloat(value.ToFloat()).ToFloat())) << bits;
    else
      EXPECT_EQ(BFloat16::FromFloat(value.ToFloat()).bits, bits);
  }
}

// Judged in double: no other bfloat16 is nearer, and a tie goes to the even one.
void ExpectNearest(float value) {
  const uint16_t bits = BFloat16::FromFloat(value).bits;
  const auto distance = [&](uint16_t candidate) {
    // Beyond the largest finite value the next step would be 2^128.
    const float f = BFloat16{candidate}.ToFloat();
    const double d = std::isinf(f) ? std::copysign(0x1p128, static_cast<double>(f)) : static_cast<double>(f);
    return std::fabs(d - static_cast<double>(value));
  };
  for (const int step : {-1, 1}) {
    const auto neighbour = static_cast<uint16_t>(bits + step);
    if ((neighbour & 0x8000u) != (bits & 0x8000u) || std::isnan(BFloat16{neighbour}.ToFloat())) continue;
    EXPECT_LE(distance(bits), distance(neighbour)) << value;
    EXPECT_TRUE(distance(bits) < distance(neighbour) || (bits & 1) == 0) << value;
  }
}

RC_GTEST_PROP(BFloat16, RoundsToTheNearestAndTiesToEven, (uint32_t bits)) {
  const float value = std::bit_cast<float>(bits);
  if (std::isfinite(value)) ExpectNearest(value);
  const float tie = std::bit_cast<float>((bits & 0xffff0000u) | 0x8000u);
  if (std::isfinite(tie)) ExpectNearest(tie);
}

TEST(BFloat16, TiesGoToEven) {
  EXPECT_EQ(BFloat16::FromFloat(1.0f + 0x1p-8f).bits, 0x3f80);  // between 1 and 1 + 2^-7
  EXPECT_EQ(BFloat16::FromFloat(1.0f + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_EQ(BFloat16::FromFloat(1.0f + 0x1p-8f + 0x1p-23f).bits, 0x3f81);  // a little more than half
}

TEST(BFloat16, KeepsInfinityAndOverflowsToIt) {
  EXPECT_EQ(BFloat16::FromFloat(HUGE_VALF).bits, 0x7f80);
  EXPECT_EQ(BFloat16::FromFloat(-HUGE_VALF).bits, 0xff80);
  EXPECT_EQ(BFloat16::FromFloat(std::numeric_limits<float>::max()).bits, 0x7f80);
}

TEST(BFloat16, KeepsNaNANaNWhateverItsPayload) {
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u, 0x7f80ffffu}) {
    const BFloat16 value = BFloat16::FromFloat(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(value.ToFloat())) << bits;
    EXPECT_EQ(value.bits & 0x8000u, bits >> 16 & 0x8000u) << bits;
  }
}

}  // namespace
}  // namespace normlab
