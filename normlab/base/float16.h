#pragma once
// IEEE 754 binary16 ("half", fp16) as a storage type. Conversion rounds to nearest even, keeps NaN a NaN and
// subnormal halves as they are, and gives infinity from 65,520 on.

#include <bit>
#include <cstdint>

namespace normlab {

// `value` rounded to what a Float16 holds, as a float. Without a branch, so that loops of it vectorize.
inline float RoundToFloat16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value), sign = u & 0x80000000u, magnitude = u ^ sign;
  // 10 bits of fraction are kept of a float's 23.
  const uint32_t rounded = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & ~0x1fffu;
  // Below 2^-14 halves lie 2^-24 apart, as floats do from 0.5 on.
  const uint32_t subnormal = std::bit_cast<uint32_t>((std::bit_cast<float>(magnitude) + 0.5f) - 0.5f);
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : rounded;
  const uint32_t ranged = rounded >= 0x47800000u ? 0x7f800000u : finite;  // 65,536 and more
  const uint32_t result = magnitude > 0x7f800000u ? (magnitude | 0x400000u) & ~0x1fffu : ranged;
  return std::bit_cast<float>(result | sign);
}

struct Float16 {
  uint16_t bits;

  static Float16 FromFloat(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(RoundToFloat16(value)), magnitude = u & 0x7fffffffu;
    uint32_t half = (magnitude - 0x38000000u) >> 13;  // the exponent's bias is 15 instead of 127
    if (magnitude >= 0x7f800000u) half = (magnitude >> 13) & 0x7fffu;  // infinity, NaN
    if (magnitude < 0x38800000u)                                       // subnormal: a multiple of 2^-24
      half = static_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p24f);
    return {static_cast<uint16_t>(((u >> 16) & 0x8000u) | half)};
  }
  float ToFloat() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    uint32_t u = (magnitude << 13) + 0x38000000u;
    if (magnitude >= 0x7c00u) u = 0x7f800000u | (magnitude << 13);
    if (magnitude < 0x400u) u = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    return std::bit_cast<float>(u | sign);
  }
};

}  // namespace normlab
