// What holds between the norms, and what each promises beside its formula.

#include <cmath>

#include <gtest/gtest.h>

#include "normlab/base/bfloat16.h"
#include "normlab/kernels/reference/host_row.h"
#include "normlab/norms/norm_list.h"
#include "normlab/testing/norm_check.h"
#include "normlab/testing/norm_implementations.h"

namespace normlab::test {
namespace {

class NormFamily : public ::testing::Test {
 protected:
  // The same problem for another norm: its own parameters where it has them.
  static NormProblem As(NormProblem p, NormKind kind) {
    p.spec.kind = kind;
    if (!p.has_weight()) p.weight.clear(), p.dweight_before.clear();
    if (!p.has_bias()) p.bias.clear(), p.dbias_before.clear();
    return p;
  }
  NormAnswer Run(const NormProblem& p) { return RunNorm(*device_, p); }

  std::unique_ptr<Device> device_ = MakeCpuDevice({.threads = 2});
  std::unique_ptr<Device> oracle_ = MakeReferenceDevice();
};

TEST_F(NormFamily, PartialRmsNormOfTheWholeRowIsRmsNorm) {
  NormProblem p = RandomNormProblem(
      {.kind = KindOf<PartialRmsNorm>(), .implementation = NormImplementation::kGeneric, .fraction = 1}, 5,
      130, {.mean = 1}, Seed());
  const NormAnswer partial = Run(p);
  p.spec = {.kind = KindOf<RmsNorm>(), .implementation = NormImplementation::kGeneric};
  const NormAnswer whole = Run(p);
  EXPECT_TRUE(SameBits(partial.y, whole.y, "y"));
  EXPECT_TRUE(SameBits(partial.dx, whole.dx, "dx"));
  EXPECT_TRUE(SameBits(partial.dweight, whole.dweight, "dweight"));
}

TEST_F(NormFamily, PartialRmsNormCountsTheCeilingOfTheFraction) {
  EXPECT_EQ(PartialCols(0.0625, 768), 48);
  EXPECT_EQ(PartialCols(0.0625, 770), 49);
  EXPECT_EQ(PartialCols(0.0625, 1), 1);
  EXPECT_EQ(PartialCols(1e-9, 768), 1);
  EXPECT_EQ(PartialCols(1, 768), 768);
  // Columns beyond the first k change nothing but themselves.
  NormProblem p = RandomNormProblem({.kind = KindOf<PartialRmsNorm>()}, 1, 768, {}, Seed());
  const NormAnswer before = Run(p);
  p.x[48] = 1e6;
  const NormAnswer after = Run(p);
  for (size_t c = 0; c < 768; ++c) {
    if (c != 48) {
      ASSERT_EQ(after.y[c], before.y[c]) << c;
    }
  }
  p.x[47] = 1e6;
  EXPECT_NE(Run(p).y[0], before.y[0]);
}

TEST_F(NormFamily, RescaleIsRmsNormWithoutItsGain) {
  const NormProblem rms = RandomNormProblem({.kind = KindOf<RmsNorm>(), .gain = false}, 9, 200, {}, Seed());
  const NormAnswer a = Run(rms), b = Run(As(rms, KindOf<Rescale>()));
  EXPECT_TRUE(SameBits(a.y, b.y, "y"));
  EXPECT_TRUE(SameBits(a.dx, b.dx, "dx"));
}

// The two halves of LayerNorm, one after the other, are LayerNorm without gain and bias.
TEST_F(NormFamily, RecenterThenRescaleIsLayerNorm) {
  NormProblem p = RandomNormProblem({.kind = KindOf<Recenter>()}, 4, 50, {.mean = 3}, Seed());
  NormProblem layer = p, second = p;
  second.spec.kind = KindOf<Rescale>();
  second.x = RunNorm(*oracle_, p).y;
  layer.spec = {.kind = KindOf<LayerNorm>(), .gain = false, .bias = false};
  const NormAnswer halves = RunNorm(*oracle_, second), whole = RunNorm(*oracle_, layer);
  for (size_t i = 0; i < whole.y.size(); ++i) ASSERT_NEAR(halves.y[i], whole.y[i], 1e-13) << i;
}

// A gain that is stored as 1 + g gives what the same gain stored as it is does.
TEST_F(NormFamily, AGainStoredAsOnePlusGIsTheSameGain) {
  for (const NormKind kind : AllKinds()) {
    if (!InfoOf(kind).has_gain) continue;
    NormProblem p = RandomNormProblem({.kind = kind, .weight_offset = 1}, 3, 65, {}, Seed());
    for (double& g : p.weight) g = std::round(g * 256) / 256;  // exact in fp32, and 1 + g too
    NormProblem plain = p;
    plain.spec.weight_offset = 0;
    for (double& g : plain.weight) g += 1;
    ForEachImplementation(*device_, p.spec, 65, [&](const NormSpec& s, const std::string& name) {
      NormProblem a = p, b = plain;
      a.spec = s;
      b.spec.implementation = s.implementation;
      const NormAnswer offset = Run(a), stored = Run(b);
      EXPECT_TRUE(SameBits(offset.y, stored.y, "y")) << name;
      EXPECT_TRUE(SameBits(offset.dx, stored.dx, "dx")) << name;
      EXPECT_TRUE(SameBits(offset.dweight, stored.dweight, "dweight")) << name;
    });
  }
}

// the published value, and the ends.
TEST_F(NormFamily, DytSaturatesAndKeepsNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  NormProblem p{.spec = {.kind = KindOf<Dyt>()}, .rows = 1, .cols = 6};
  p.x = {1, RoundToF32(1e30), inf, -inf, kNaN, 0};
  p.weight = Values(6, 1), p.bias = Values(6, 0), p.alpha = {0.5};
  p.dy = Values(6, 1), p.dx_before = Values(6, 0);
  ForEachImplementation(*device_, p.spec, 6, [&](const NormSpec& s, const std::string& name) {
    NormProblem named = p;
    named.spec = s;
    const NormAnswer answer = Run(named);
    EXPECT_NEAR(answer.y[0], 0.46211715726000975, 2 * kUnitF32) << name;
    EXPECT_EQ(answer.y[1], 1) << name;
    EXPECT_EQ(answer.y[2], 1) << name;
    EXPECT_EQ(answer.y[3], -1) << name;
    EXPECT_TRUE(std::isnan(answer.y[4])) << name;
    EXPECT_EQ(answer.y[5], 0) << name;
    for (const int saturated : {1, 2, 3}) EXPECT_EQ(answer.dx[saturated], 0) << name;
    EXPECT_EQ(answer.dx[5], 0.5) << name;
  });
}

// The tanh of the generic path over the whole range: within 4 units in the last place of the true one, odd,
// at most 1.
TEST_F(NormFamily, TanhIsAccurateEverywhere) {
  Values x;
  for (double v = 1e-30; v < 100; v *= 1.01) x.push_back(RoundToF32(v)), x.push_back(RoundToF32(-v));
  const int64_t cols = static_cast<int64_t>(x.size());
  NormProblem p{.spec = {.kind = KindOf<Dyt>()}, .rows = 1, .cols = cols, .x = x};
  p.weight = Values(x.size(), 1), p.bias = Values(x.size(), 0), p.alpha = {1};
  p.dy = p.weight, p.dx_before = p.bias;
  ForEachImplementation(*device_, p.spec, cols, [&](const NormSpec& s, const std::string& name) {
    NormProblem named = p;
    named.spec = s;
    const NormAnswer answer = Run(named);
    Comparison tanh("tanh");
    for (size_t i = 0; i < x.size(); ++i) {
      tanh.Add(answer.y[i], std::tanh(x[i]), 4 * 2 * kUnitF32 * std::abs(std::tanh(x[i])),
               static_cast<int64_t>(i));
      ASSERT_LE(std::abs(answer.y[i]), 1) << name;
      ASSERT_EQ(answer.y[i], -answer.y[i ^ 1]) << name;
    }
    LogWorst(tanh);
    EXPECT_TRUE(Within(tanh, Repro(name)));
  });
}

// N-01, N-25: in fp32 squares overflow where |x| is above 1.8e19. Such a row is not a number; it is never
// zeros.
TEST_F(NormFamily, RowsWhoseSquaresOverflowAreNotSilentlyZero) {
  for (const NormKind kind :
       {KindOf<LayerNorm>(), KindOf<RmsNorm>(), KindOf<PartialRmsNorm>(), KindOf<Rescale>()}) {
    NormProblem p = RandomNormProblem({.kind = kind}, 2, 40, {}, Seed());
    for (int64_t c = 0; c < 40; ++c) p.x[c] = RoundToF32(c % 2 == 0 ? 1e20 : -2e20);
    ForEachImplementation(*device_, p.spec, 40, [&](const NormSpec& s, const std::string& name) {
      NormProblem named = p;
      named.spec = s;
      const NormAnswer answer = Run(named);
      for (size_t c = 0; c < 40; ++c) ASSERT_TRUE(std::isnan(answer.y[c])) << name << " " << answer.y[c];
      for (size_t c = 40; c < 80; ++c) ASSERT_TRUE(std::isfinite(answer.y[c])) << name;
    });
  }
}

// ---- The place of the cast. The bodies are asked directly, with a row whose y is bf16.

float ToBf16(float v) { return BFloat16::FromFloat(v).ToFloat(); }

struct Bf16Row : reference::HostRow<float> {
  using HostRow::HostRow;
  float Stored(float v) const { return ToBf16(v); }
};

TEST_F(NormFamily, TheCastComesBeforeOrAfterTheGain) {
  const int64_t cols = 33;
  for (const NormKind kind : AllKinds()) {
    if (!InfoOf(kind).has_gain) continue;
    NormSpec spec{.kind = kind};
    const NormProblem p = RandomNormProblem(spec, 1, cols, {}, Seed());
    std::vector<float> results[2];
    for (const bool before : {false, true}) {
      spec.cast = before ? NormCast::kBeforeGain : NormCast::kAfterGain;
      Bf16Row row(cols);
      std::vector<float> saved(4);
      row.set_saved(saved.data());
      if (p.has_alpha()) row.set_alpha(static_cast<float>(p.alpha[0]));
      for (int64_t c = 0; c < cols; ++c) {
        row.x_values()[c] = static_cast<float>(p.x[c]);
        row.gain_values()[c] = static_cast<float>(p.weight[c]);  // the bias stays 0
      }
      AllNorms::Visit(kind, [&](auto norm) { decltype(norm)::Forward(row, NumbersOf<float>(spec, cols)); });
      results[before] = row.y_values();
    }
    int differ = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const float gain = static_cast<float>(p.weight[c]), normalized = results[0][c] / gain;
      // Rounded to 8 bits, then multiplied: half a unit in the eighth bit, no more.
      ASSERT_EQ(results[1][c], ToBf16(results[1][c] / gain) * gain) << InfoOf(kind).name << " column " << c;
      ASSERT_NEAR(results[1][c], results[0][c], std::abs(normalized * gain) * 0x1p-8f) << InfoOf(kind).name;
      differ += results[0][c] != results[1][c];
    }
    EXPECT_GT(differ, cols / 2) << InfoOf(kind).name;
  }
}

TEST_F(NormFamily, InFp32ThePlaceOfTheCastChangesNoBit) {
  for (const NormKind kind : AllKinds()) {
    const NormProblem p = RandomNormProblem({.kind = kind, .cast = NormCast::kBeforeGain}, 3, 40, {}, Seed());
    ForEachImplementation(*device_, p.spec, 40, [&](const NormSpec& s, const std::string& name) {
      NormProblem after = p, before = p;
      after.spec = before.spec = s;
      after.spec.cast = NormCast::kAfterGain;
      EXPECT_TRUE(SameBits(Run(before).y, Run(after).y, "y")) << name;
    });
  }
}

}  // namespace
}  // namespace normlab::test
