#include "normlab/kernels/cpu/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "normlab/base/isa.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/cpu/random_fill.h"

namespace normlab {
namespace {

// Bit patterns as 32-bit numbers: a 16-bit element is the upper half.
struct Matrix {
  DType dtype;
  std::vector<char> bytes;
  View view;

  Matrix(DType type, int64_t rows, int64_t cols, uint64_t seed)
      : dtype(type), bytes(static_cast<size_t>(rows * cols) * SizeOf(type) + 64) {
    view = View::Dense(bytes.data(), type, {rows, cols});
    FillNormal(1, seed, view);
    std::fill(bytes.end() - 64, bytes.end(), char{77});
  }
  uint32_t At(int64_t i) const {
    uint32_t wide = 0;
    uint16_t narrow = 0;
    if (SizeOf(dtype) == 4) return std::memcpy(&wide, bytes.data() + 4 * i, 4), wide;
    return std::memcpy(&narrow, bytes.data() + 2 * i, 2), uint32_t{narrow} << 16;
  }
  uint32_t Kept(uint32_t value) const { return SizeOf(dtype) == 4 ? value : value & 0xffff0000u; }
  bool EndIsUntouched() const {
    return std::all_of(bytes.end() - 64, bytes.end(), [](char c) { return c == 77; });
  }
};

void ExpectStream(StreamMix mix, DType a_type, DType b_type, DType c_type, DType d_type, int64_t rows,
                  int64_t cols, int threads) {
  SCOPED_TRACE(testing::Message() << Name(mix) << " " << Name(a_type) << Name(b_type) << Name(c_type)
                                  << Name(d_type) << " " << rows << "x" << cols);
  const Matrix a(a_type, rows, cols, 1), b(b_type, rows, cols, 2), c_before(c_type, rows, cols, 3);
  Matrix c(c_type, rows, cols, 3), d(d_type, rows, cols, 4);
  StreamArgs args{.mix = mix, .a = a.view, .c = c.view};
  if (mix != StreamMix::kCopy) args.b = b.view;
  if (mix == StreamMix::kTwoToTwo) args.d = d.view;
  RunStream(threads, args);
  for (int64_t i = 0; i < rows * cols; ++i) {
    uint32_t expected = a.At(i);
    if (mix != StreamMix::kCopy) expected = std::max(expected, b.At(i));
    if (mix == StreamMix::kTwoIntoOneInPlace) expected = std::max(expected, c_before.At(i));
    ASSERT_EQ(c.At(i), c.Kept(expected)) << i;
    if (mix == StreamMix::kTwoToTwo) {
      ASSERT_EQ(d.At(i), d.Kept(expected)) << i;
    }
  }
  EXPECT_TRUE(c.EndIsUntouched() && d.EndIsUntouched());
}

TEST(StreamTest, EveryElementIsReadAndWrittenOnEveryInstructionSet) {
  for (const std::string& isa : SupportedIsas()) {
    SCOPED_TRACE(isa);
    LimitIsa(isa);
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {3, 37}, {7, 64}, {130, 257}})
      for (const StreamMix mix :
           {StreamMix::kCopy, StreamMix::kTwoToOne, StreamMix::kTwoToTwo, StreamMix::kTwoIntoOneInPlace}) {
        for (const DType t : {DType::kF32, DType::kBF16}) ExpectStream(mix, t, t, t, t, rows, cols, 2);
        ExpectStream(mix, DType::kF32, DType::kBF16, DType::kF32, DType::kBF16, rows, cols, 2);
        ExpectStream(mix, DType::kF32, DType::kBF16, DType::kBF16, DType::kF32, rows, cols, 1);
      }
  }
  LimitIsa("");
}

TEST(StreamTest, BytesAreThoseReadAndWritten) {
  const Matrix x(DType::kF32, 10, 100, 1), y(DType::kBF16, 10, 100, 2);
  EXPECT_EQ(StreamBytes({.mix = StreamMix::kCopy, .a = x.view, .c = y.view}), 6000u);
  EXPECT_EQ(StreamBytes({.mix = StreamMix::kTwoToOne, .a = x.view, .b = y.view, .c = x.view}), 10000u);
  EXPECT_EQ(StreamBytes({.mix = StreamMix::kTwoToTwo, .a = x.view, .b = x.view, .c = x.view, .d = y.view}),
            14000u);
  EXPECT_EQ(StreamBytes({.mix = StreamMix::kTwoIntoOneInPlace, .a = x.view, .b = y.view, .c = x.view}),
            14000u);
}

TEST(StreamTest, ColdMemoryIsAGibibyteAndTwiceTheLastCache) {
  EXPECT_GE(ColdBytes(), size_t{1} << 30);
  if (LastLevelCacheBytes()) {
    EXPECT_GE(ColdBytes(), 2 * *LastLevelCacheBytes());
  }
}

TEST(StreamTest, TheCopySpeedIsMeasuredOverTheMemoryAskedFor) {
  const CopySpeed speed = MeasureCopySpeed(2, size_t{4} << 20);
  EXPECT_EQ(speed.bytes, size_t{4} << 20);
  EXPECT_GT(speed.bytes_per_s, 1e6);
  EXPECT_TRUE(std::isfinite(speed.bytes_per_s));
}

TEST(StreamTest, RefusesShapesThatDiffer) {
  const Matrix x(DType::kF32, 10, 100, 1), y(DType::kF32, 10, 50, 2);
  EXPECT_THROW(RunStream(1, {.mix = StreamMix::kCopy, .a = x.view, .c = y.view}), std::logic_error);
  EXPECT_THROW(RunStream(1, {.mix = StreamMix::kTwoToOne, .a = x.view, .c = x.view}), std::logic_error);
}

TEST(RandomFillTest, NumbersAreNormalFiniteAndDifferBySeed) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Matrix x(dtype, 300, 257, 1), y(dtype, 300, 257, 2);
    double sum = 0, square = 0;
    int64_t equal = 0;
    const int64_t count = 300 * 257;
    for (int64_t i = 0; i < count; ++i) {
      const double value = std::bit_cast<float>(x.At(i));
      ASSERT_TRUE(std::isfinite(value) && std::fabs(value) >= 0x1p-14);
      sum += value, square += value * value;
      equal += x.At(i) == y.At(i);
    }
    // Standard errors of 77,100 normal numbers: 0.0036 of the mean, 0.0051 of the variance; five of each.
    EXPECT_NEAR(sum / static_cast<double>(count), 0, 0.018);
    EXPECT_NEAR(square / static_cast<double>(count), 1, 0.026);
    EXPECT_LT(equal, count / 10);
  }
}

TEST(RandomFillTest, HalfPrecisionHoldsTheSameNumbers) {
  const Matrix wide(DType::kF32, 3, 500, 5), narrow(DType::kF16, 3, 500, 5);
  for (int64_t i = 0; i < 1500; ++i) {
    const uint32_t bits = narrow.At(i) >> 16;
    const int exponent = static_cast<int>((bits >> 10) & 31);
    const double magnitude = std::ldexp(1024 + static_cast<double>(bits & 1023), exponent - 25);
    const double value = bits >> 15 != 0 ? -magnitude : magnitude;
    const double exact = std::bit_cast<float>(wide.At(i));
    ASSERT_NEAR(value, exact, std::fabs(exact) * 0x1p-10) << i;  // truncated to 11 bits
  }
}

}  // namespace
}  // namespace normlab
