#include "normlab/base/random.h"

#include <cmath>
#include <numbers>

#include <Random123/philox.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "normlab/base/error.h"

namespace normlab {
namespace {
// One counter word tells the uses of a stream apart, so that Uniform(0) and Normal(0) are unrelated.
constexpr uint32_t kBits = 0, kUniform = 1, kNormal = 2, kBelow = 3;
}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view name)
    : seed_(seed), name_hash_(static_cast<uint32_t>(XXH3_64bits(name.data(), name.size()))) {}

std::array<uint32_t, 4> RandomStream::Block(uint64_t counter, uint32_t domain) const {
  const r123::Philox4x32::ctr_type in = {
      {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), name_hash_, domain}};
  const r123::Philox4x32::key_type key = {{static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)}};
  const auto out = r123::Philox4x32()(in, key);
  return {out[0], out[1], out[2], out[3]};
}

uint32_t RandomStream::Bits(uint64_t index) const { return Block(index / 4, kBits)[index % 4]; }

double RandomStream::Uniform(uint64_t index) const {
  const auto block = Block(index / 2, kUniform);
  const size_t half = index % 2 * 2;
  const uint64_t bits = (static_cast<uint64_t>(block[half]) << 32 | block[half + 1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

double RandomStream::Normal(uint64_t index) const {
  // One block makes two uniforms in (0, 1], which make two normals.
  const auto block = Block(index / 2, kNormal);
  const double u1 =
      (static_cast<double>(block[0]) * 0x1p-32) + (static_cast<double>(block[1] >> 11) + 1) * 0x1p-53;
  const double u2 = (static_cast<double>(block[2]) * 0x1p-32) + static_cast<double>(block[3] >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(u1));
  const double angle = 2.0 * std::numbers::pi * u2;
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

uint64_t RandomStream::Below(uint64_t index, uint64_t bound) const {
  NL_CHECK(bound > 0);
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  // Each attempt takes its own counter; 2^24 attempts per index is never reached (p < 2^-1 each).
  for (uint64_t attempt = 0;; ++attempt) {
    const auto block = Block(index << 24 | attempt, kBelow);
    const uint64_t bits = static_cast<uint64_t>(block[0]) << 32 | block[1];
    if (bits < limit) return bits % bound;
  }
}

}  // namespace normlab
