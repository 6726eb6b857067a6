#pragma once
// Counter-based random numbers: value number i of the stream (seed, name) is a pure function of the three,
// so initial weights do not depend on the order in which tensors are made, and a resumed run draws what an
// uninterrupted one draws. Generator: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as
// 1, 2, 3"), from Random123. Names are hashed with XXH3.

#include <array>
#include <cstdint>
#include <string_view>

namespace normlab {

class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name);

  // Uniform 32-bit integer number `index` of the stream.
  uint32_t Bits(uint64_t index) const;

  // Uniform in [0, 1), 53 bits.
  double Uniform(uint64_t index) const;

  // Standard normal by Box and Muller (1958); the same on every platform with IEEE doubles and this libm.
  double Normal(uint64_t index) const;

  // Uniform integer in [0, bound) without bias (rejection inside the index's own counter space).
  uint64_t Below(uint64_t index, uint64_t bound) const;

 private:
  std::array<uint32_t, 4> Block(uint64_t counter, uint32_t domain) const;

  uint64_t seed_;
  uint32_t name_hash_;
};

}  // namespace normlab
