#include "normlab/kernels/cpu/random_fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "normlab/base/bfloat16.h"
#include "normlab/base/random.h"
#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_rows.h"

namespace normlab {
namespace {

constexpr int64_t kTable = 65536;

// Truncated, for numbers between 2^-14 and 65504 alone, which normal ones are here.
uint16_t HalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 31, exponent = (bits >> 23) & 0xff, mantissa = bits & 0x7fffff;
  return static_cast<uint16_t>(sign << 15 | (exponent - 127 + 15) << 10 | mantissa >> 13);
}

struct Table {
  std::vector<float> f32;
  std::vector<uint16_t> bf16, f16;

  Table() : f32(kTable), bf16(kTable), f16(kTable) {
    const RandomStream random(1, "random fill");
    for (size_t i = 0; i < f32.size(); ++i) {
      const float normal = static_cast<float>(random.Normal(i));
      f32[i] = std::copysign(std::max(std::fabs(normal), 0x1p-14f), normal);
      const BFloat16 rounded = BFloat16::FromFloat(f32[i]);
      std::memcpy(&bf16[i], &rounded, sizeof(uint16_t));
      f16[i] = HalfBits(f32[i]);
    }
  }

  const char* Of(DType dtype) const {
    switch (dtype) {
      case DType::kF32:
        return reinterpret_cast<const char*>(f32.data());
      case DType::kBF16:
        return reinterpret_cast<const char*>(bf16.data());
      case DType::kF16:
        return reinterpret_cast<const char*>(f16.data());
      default:
        Fail("FillNormal: {} is no type of activations; f32, bf16 and f16 are", Name(dtype));
    }
  }
};

}  // namespace

void FillNormal(int threads, uint64_t seed, const View& to) {
  static const Table table;
  NL_CHECK(to.IsDense());
  const char* from = table.Of(to.dtype);
  const int64_t size = static_cast<int64_t>(SizeOf(to.dtype));
  const int64_t rows = to.rank == 2 ? to.rows() : 1, cols = rows == 0 ? 0 : to.elements() / rows;
  const int64_t chunks = cpu::RowChunks(threads, rows, cols);
  const int64_t start = static_cast<int64_t>(RandomStream(seed, "start").Below(0, kTable));
  ParallelFor(threads, chunks, [&](int64_t chunk, int) {
    int64_t at = cpu::ChunkBegin(rows, chunks, chunk) * cols;
    const int64_t end = cpu::ChunkBegin(rows, chunks, chunk + 1) * cols;
    while (at < end) {
      const int64_t place = (start + at) % kTable, count = std::min(end - at, kTable - place);
      std::memcpy(static_cast<char*>(to.data) + at * size, from + place * size,
                  static_cast<size_t>(count * size));
      at += count;
    }
  });
}

}  // namespace normlab
