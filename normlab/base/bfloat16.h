#pragma once
// bfloat16 as a storage type: the upper half of a float. Conversion rounds to nearest even and keeps NaN
// a NaN (IEEE 754 rules; Intel's BF16 whitepaper 2018 describes the format).

#include <bit>
#include <cstdint>

namespace normlab {

struct BFloat16 {
  uint16_t bits;

  static BFloat16 FromFloat(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};  // quiet NaN
    return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
  }
  float ToFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

}  // namespace normlab
