#include "normlab/base/float16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace normlab {
namespace {

// By the definition: sign, 5 bits of exponent with a bias of 15, 10 bits of fraction.
double Value(uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1, fraction = bits & 0x3ffu;
  const int exponent = (bits >> 10) & 0x1f;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Float16, EveryValueIsWhatTheBitsSayAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const double value = Value(half.bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half.ToFloat())) << bits;
      EXPECT_TRUE(std::isnan(Float16::FromFloat(half.ToFloat()).ToFloat())) << bits;
      continue;
    }
    EXPECT_EQ(half.ToFloat(), value) << bits;
    EXPECT_EQ(Float16::FromFloat(half.ToFloat()).bits, bits);
    EXPECT_EQ(RoundToFloat16(half.ToFloat()), half.ToFloat());
  }
}

// Judged in double: no other half is nearer, and a tie goes to the even one. Beyond the largest finite value
// the next step would be 2^16.
void ExpectNearest(float value) {
  const uint16_t bits = Float16::FromFloat(value).bits;
  EXPECT_EQ(RoundToFloat16(value), Float16{bits}.ToFloat()) << value;
  const auto distance = [&](uint16_t candidate) {
    const double v = Value(candidate);
    return std::fabs((std::isinf(v) ? std::copysign(0x1p16, v) : v) - static_cast<double>(value));
  };
  for (const int step : {-1, 1}) {
    const auto neighbour = static_cast<uint16_t>(bits + step);
    if ((neighbour & 0x8000u) != (bits & 0x8000u) || std::isnan(Value(neighbour))) continue;
    EXPECT_LE(distance(bits), distance(neighbour)) << value;
    EXPECT_TRUE(distance(bits) < distance(neighbour) || (bits & 1) == 0) << value;
  }
}

RC_GTEST_PROP(Float16, RoundsToTheNearestAndTiesToEven, (uint32_t random)) {
  // Exponents of halves, subnormal and just too large ones included, with every fraction.
  const uint32_t exponent = 100 + random % 45;
  const uint32_t bits = (random & 0x807fffffu) | exponent << 23;
  const float value = std::bit_cast<float>(bits);
  if (std::fabs(value) < 0x1p17f) ExpectNearest(value);
  const float tie = std::bit_cast<float>((bits & 0xffffe000u) | 0x1000u);
  if (std::fabs(tie) < 0x1p17f) ExpectNearest(tie);
}

TEST(Float16, OverflowsToInfinityHalfAStepBeyondTheLargest) {
  EXPECT_EQ(Float16::FromFloat(65504).bits, 0x7bff);
  EXPECT_EQ(Float16::FromFloat(65519.99f).bits, 0x7bff);
  EXPECT_EQ(Float16::FromFloat(65520).bits, 0x7c00);
  EXPECT_EQ(Float16::FromFloat(-HUGE_VALF).bits, 0xfc00);
  EXPECT_EQ(Float16::FromFloat(std::numeric_limits<float>::max()).bits, 0x7c00);
}

TEST(Float16, KeepsNaNANaNWhateverItsPayload) {
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const Float16 value = Float16::FromFloat(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(value.ToFloat())) << bits;
    EXPECT_TRUE(std::isnan(RoundToFloat16(std::bit_cast<float>(bits)))) << bits;
    EXPECT_EQ(value.bits & 0x8000u, bits >> 16 & 0x8000u) << bits;
  }
}

}  // namespace
}  // namespace normlab
