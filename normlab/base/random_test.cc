#include "normlab/base/random.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace normlab {
namespace {

// Philox4x32-10 written from the paper, independently of Random123.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

TEST(RandomStream, TheTestsOwnPhiloxGivesThePublishedVectors) {
  // kat_vectors of Random123: philox4x32 10, all zeros and all ones.
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

RC_GTEST_PROP(RandomStream, BitsArePhiloxOfSeedNameAndIndex,
              (uint64_t seed, const std::string& name, uint64_t index)) {
  const auto hash = static_cast<uint32_t>(XXH3_64bits(name.data(), name.size()));
  const uint64_t counter = index / 4;
  const auto block = Philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), hash, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  RC_ASSERT(RandomStream(seed, name).Bits(index) == block[index % 4]);
}

TEST(RandomStream, IsAFunctionOfSeedNameAndIndexAlone) {
  const RandomStream a(7, "weights"), b(7, "weights"), other_seed(8, "weights"), other_name(7, "batches");
  EXPECT_EQ(a.Normal(1000), b.Normal(1000));  // in any order, from any object
  EXPECT_EQ(a.Normal(3), b.Normal(3));
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    equal += a.Bits(i) == other_seed.Bits(i) ? 1 : 0;
    equal += a.Bits(i) == other_name.Bits(i) ? 1 : 0;
    equal += a.Uniform(i) == other_name.Uniform(i) ? 1 : 0;
  }
  EXPECT_EQ(equal, 0);
}

TEST(RandomStream, SeedsThatDifferInHighBitsDiffer) {
  EXPECT_NE(RandomStream(1, "x").Bits(0), RandomStream(1 + (uint64_t{1} << 32), "x").Bits(0));
}

TEST(RandomStream, UniformFillsTheUnitInterval) {
  const RandomStream stream(1, "uniform");
  constexpr int kCount = 100000, kBins = 100;
  std::vector<int> bins(kBins);
  for (int i = 0; i < kCount; ++i) {
    const double u = stream.Uniform(static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<size_t>(u * kBins)];
  }
  double chi2 = 0;
  for (const int count : bins) chi2 += std::pow(count - 1000.0, 2) / 1000.0;
  EXPECT_LT(chi2, 160);  // 99 degrees of freedom: above 157 with probability 2e-4
  EXPECT_GT(chi2, 55);   // and below 55 as rarely
}

TEST(RandomStream, NormalHasTheMomentsOfTheNormal) {
  const RandomStream stream(2, "normal");
  constexpr int kCount = 200000;
  double sum[5] = {}, neighbours = 0, previous = 0;
  int beyond2 = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.Normal(static_cast<uint64_t>(i));
    double power = 1;
    for (double& s : sum) {
      s += power;
      power *= x;
    }
    neighbours += x * previous;
    previous = x;
    beyond2 += std::fabs(x) > 2 ? 1 : 0;
  }
  // Five standard errors of each moment.
  const double error = 5 / std::sqrt(kCount);
  EXPECT_NEAR(sum[1] / kCount, 0, error);
  EXPECT_NEAR(sum[2] / kCount, 1, error * std::sqrt(2));
  EXPECT_NEAR(sum[3] / kCount, 0, error * std::sqrt(15));
  EXPECT_NEAR(sum[4] / kCount, 3, error * std::sqrt(96));
  EXPECT_NEAR(neighbours / kCount, 0, error);
  EXPECT_NEAR(static_cast<double>(beyond2) / kCount, 0.0455, error * 0.21);
}

RC_GTEST_PROP(RandomStream, BelowStaysBelow, (uint64_t seed, uint64_t bound)) {
  RC_PRE(bound > 0u);
  const RandomStream stream(seed, "below");
  for (uint64_t i = 0; i < 20; ++i) RC_ASSERT(stream.Below(i, bound) < bound);
  RC_ASSERT(stream.Below(5, 1) == 0u);
}

TEST(RandomStream, BelowHasNoBias) {
  const RandomStream stream(3, "below");
  // A bound of 2/3 of the range: taking a remainder would double the lower half of it.
  const uint64_t bound = UINT64_MAX / 3 * 2;
  int low = 0;
  for (uint64_t i = 0; i < 10000; ++i) low += stream.Below(i, bound) < bound / 2 ? 1 : 0;
  EXPECT_NEAR(low, 5000, 250);  // five standard deviations
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 70000; ++i) ++counts[stream.Below(i, 7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 465);
}

TEST(RandomStream, BelowZeroIsABug) { EXPECT_THROW(RandomStream(1, "x").Below(0, 0), std::logic_error); }

TEST(RandomStream, KeepsItsNumbersForever) {
  // A change here changes every initial weight and data order: old runs could not be repeated.
  const RandomStream stream(1, "tok_emb.weight");
  const std::array<uint32_t, 4> bits = {stream.Bits(0), stream.Bits(1), stream.Bits(2), stream.Bits(3)};
  EXPECT_EQ(bits, (std::array<uint32_t, 4>{2191685671u, 4192770290u, 955523197u, 4271709047u}));
  EXPECT_EQ(stream.Below(0, 1000000), 625391u);
  EXPECT_NEAR(stream.Normal(0), -1.2614000629958648, 1e-12);
  EXPECT_NEAR(stream.Normal(1), 0.74697277604212964, 1e-12);
}

}  // namespace
}  // namespace normlab
