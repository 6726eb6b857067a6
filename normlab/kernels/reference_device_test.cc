// The judge of all devices, judged: each operation against numbers worked out by hand or against central
// differences of its own forward pass. (Its norms: norm_oracle_test.cc.)

#include "normlab/kernels/reference/reference_device.h"

#include <cmath>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "normlab/base/random.h"
#include "normlab/testing/central_difference.h"
#include "normlab/testing/near.h"
#include "normlab/testing/tensors.h"

namespace normlab::test {
namespace {

class ReferenceDevice : public ::testing::Test {
 protected:
  Tensor Make(std::initializer_list<int64_t> shape, const Values& values) {
    return Tensor(*device_, shape, values);
  }
  Tensor Random(std::initializer_list<int64_t> shape, const char* name, double spread = 1) {
    return Tensor(*device_, shape, RandomValues(shape, name, 0, spread));
  }

  // Compares d(loss)/d(tensor) with `gradient`, element by element. The functions here are smooth on the
  // scale of 1, so a step of 1e-3 leaves h^4/30 f5 < 1e-11 of truncation (f5 up to some hundred) and 1.5
  // roundings of the loss over h.
  void CheckGradient(Tensor& tensor, const Values& gradient, const std::function<double()>& loss,
                     const char* what) {
    const Values original = tensor.Read();
    ASSERT_EQ(original.size(), gradient.size());
    Comparison comparison(what);
    const double rounding = kUnitF64 * 64 * (1 + std::abs(loss()));
    for (size_t i = 0; i < original.size(); ++i) {
      const double numeric = CentralDifference(
          [&](double t) {
            Values moved = original;
            moved[i] += t;
            tensor.Write(moved);
            return loss();
          },
          1e-3);
      comparison.Add(gradient[i], numeric, 1e-10 * (1 + std::abs(numeric)) + 1.5 * rounding / 1e-3,
                     static_cast<int64_t>(i));
    }
    tensor.Write(original);
    EXPECT_TRUE(Within(comparison, Repro(what)));
    EXPECT_GE(static_cast<double>(comparison.nonzero()), 0.7 * static_cast<double>(comparison.count()))
        << what;
    EXPECT_GT(comparison.largest(), 0.1) << what;
  }

  std::unique_ptr<Device> device_ = MakeReferenceDevice();
};

double Sum(const Values& weights, const Values& values) {
  return std::inner_product(weights.begin(), weights.end(), values.begin(), 0.0);
}

TEST_F(ReferenceDevice, MemoryIsAlignedAndCounted) {
  void* a = device_->Allocate(1000);
  void* b = device_->Allocate(24);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
  EXPECT_EQ(device_->allocated_bytes(), 1024u);
  device_->Free(a, 1000);
  EXPECT_EQ(device_->allocated_bytes(), 24u);
  EXPECT_EQ(device_->peak_bytes(), 1024u);
  device_->Free(b, 24);
}

TEST_F(ReferenceDevice, CopiesHonourEveryStride) {
  Tensor x = Make({2, 3}, {1, 2, 3, 4, 5, 6}), y = Make({3, 2}, Values(6, 0));
  device_->Copy(x.view().Transposed(), y.view());
  EXPECT_EQ(y.Read(), (Values{1, 4, 2, 5, 3, 6}));
  device_->Copy(x.view().Columns(1, 3), y.view().Slice(0, 2));
  EXPECT_EQ(y.Read(), (Values{2, 3, 5, 6, 3, 6}));
  EXPECT_THROW(device_->Copy(x.view(), y.view()), std::logic_error);
  device_->Fill(y.view().Columns(1, 2), -1);
  EXPECT_EQ(y.Read(), (Values{2, -1, 5, -1, 3, -1}));
}

// ---- Products.

TEST_F(ReferenceDevice, MatMulMultipliesInEveryOrientation) {
  Tensor a = Make({2, 3}, {1, 2, 3, 4, 5, 6}), b = Make({3, 2}, {7, 8, 9, 10, 11, 12}),
         c = Make({2, 2}, Values(4, kNaN));
  const Values product = {58, 64, 139, 154};
  device_->MatMul({.a = a.view(), .b = b.view(), .bias = {}, .z = {}, .c = c.view(), .gelu = {}});
  EXPECT_EQ(c.Read(), product);

  Tensor a_t = Make({3, 2}, {1, 4, 2, 5, 3, 6}), b_t = Make({2, 3}, {7, 9, 11, 8, 10, 12});
  device_->MatMul({.a = a_t.view().Transposed(),
                   .b = b_t.view().Transposed(),
                   .bias = {},
                   .z = {},
                   .c = c.view(),
                   .gelu = {}});
  EXPECT_EQ(c.Read(), product);

  device_->MatMul(
      {.a = a.view(), .b = b.view(), .bias = {}, .z = {}, .c = c.view(), .gelu = {}, .accumulate = true});
  EXPECT_EQ(c.Read(), (Values{116, 128, 278, 308}));
}

// GELU(1) = 0.5 (1 + tanh(0.7978845608 * 1.044715)) = 0.8411919906; GELU(-1) = GELU(1) - 1; GELU(3)
// = 2.996362607918
TEST_F(ReferenceDevice, MatMulAddsTheBiasAndAppliesGelu) {
  Tensor a = Make({1, 1}, {1}), b = Make({1, 4}, {0.5, -1.5, 2.5, -0.5}),
         bias = Make({4}, {0.5, 0.5, 0.5, 0.5});
  Tensor c = Make({1, 4}, Values(4, kNaN)), gelu = Make({1, 4}, Values(4, kNaN));
  device_->MatMul({.a = a.view(),
                   .b = b.view(),
                   .epilogue = MatMulArgs::Epilogue::kBias,
                   .bias = bias.view(),
                   .z = {},
                   .c = c.view(),
                   .gelu = {}});
  EXPECT_EQ(c.Read(), (Values{1, -1, 3, 0}));
  c.Write(Values(4, kNaN));
  device_->MatMul({.a = a.view(),
                   .b = b.view(),
                   .epilogue = MatMulArgs::Epilogue::kBiasGelu,
                   .bias = bias.view(),
                   .z = {},
                   .c = c.view(),
                   .gelu = gelu.view()});
  EXPECT_EQ(c.Read(), (Values{1, -1, 3, 0}));
  const Values want = {0.84119199060827676, -0.15880800939172324, 2.996362607918227, 0};
  Comparison comparison("gelu");
  comparison.AddAll(gelu.Read(), want, Values{1e-15, 1e-15, 2e-15, 0});
  EXPECT_TRUE(Within(comparison, Repro("gelu")));
}

TEST_F(ReferenceDevice, GeluBackwardIsTheDerivativeOfGelu) {
  Tensor a = Make({1, 1}, {1}), z = Make({1, 7}, {-5, -2, -0.7, 0, 0.3, 1.3, 6}), dy = Random({1, 7}, "dy");
  Tensor c = Make({1, 7}, Values(7, 0)), gelu = Make({1, 7}, Values(7, 0)),
         dz = Make({1, 7}, Values(7, kNaN));
  device_->MatMul({.a = a.view(),
                   .b = dy.view(),
                   .epilogue = MatMulArgs::Epilogue::kGeluBackward,
                   .bias = {},
                   .z = z.view(),
                   .c = dz.view(),
                   .gelu = {}});
  const Values weights = dy.Read();
  CheckGradient(
      z, dz.Read(),
      [&] {
        device_->MatMul({.a = a.view(),
                         .b = z.view(),
                         .epilogue = MatMulArgs::Epilogue::kBiasGelu,
                         .bias = {},
                         .z = {},
                         .c = c.view(),
                         .gelu = gelu.view()});
        return Sum(weights, gelu.Read());
      },
      "gelu'");
}

TEST_F(ReferenceDevice, BiasGradientSumsRows) {
  Tensor dy = Make({3, 2}, {1, 2, 3, 4, 5, 6}), dbias = Make({2}, {100, 200});
  device_->BiasGradient(dy.view(), dbias.view(), true);
  EXPECT_EQ(dbias.Read(), (Values{109, 212}));
  device_->BiasGradient(dy.view(), dbias.view(), false);
  EXPECT_EQ(dbias.Read(), (Values{9, 12}));
}

// ---- Attention.

// Two positions, width 1: o[0] = v[0]; o[1] mixes v by softmax(q1 k0, q1 k1).
TEST_F(ReferenceDevice, AttentionEqualsTheSoftmaxWorkedOutByHand) {
  Tensor q = Make({1, 2, 1, 1}, {5, std::log(3.0)}), k = Make({1, 2, 1, 1}, {1, 0}),
         v = Make({1, 2, 1, 1}, {10, 20});
  Tensor o = Make({1, 2, 1, 1}, Values(2, kNaN)), lse = Make({1, 1, 2}, Values(2, kNaN));
  device_->AttentionForward({.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lse = lse.view()});
  Comparison comparison("attention");
  // exp(log 3 * 1) : exp(0) = 3 : 1.
  comparison.AddAll(o.Read(), Values{10, 0.75 * 10 + 0.25 * 20}, Values(2, 1e-14));
  comparison.AddAll(lse.Read(), Values{5, std::log(4.0)}, Values(2, 1e-14));
  EXPECT_TRUE(Within(comparison, Repro("two positions")));
}

TEST_F(ReferenceDevice, AttentionScalesByTheRootOfTheWidthAndSeesNoFuture) {
  const int64_t t = 5, d = 4;
  Tensor q = Random({1, t, 1, d}, "q"), k = Random({1, t, 1, d}, "k"), v = Random({1, t, 1, d}, "v");
  Tensor o = Make({1, t, 1, d}, Values(t * d, kNaN)), lse = Make({1, 1, t}, Values(t, kNaN));
  device_->AttentionForward({.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lse = lse.view()});
  const Values before = o.Read(), lse_before = lse.Read();
  const Values qv = q.Read(), kv = k.Read();
  double score = 0;  // of position 0 with itself: its lse
  for (int64_t c = 0; c < d; ++c) score += qv[c] * kv[c];
  EXPECT_NEAR(lse_before[0], score / 2, 1e-14);
  Values changed = v.Read();
  for (int64_t c = 0; c < d; ++c) changed[(t - 1) * d + c] += 100;
  v.Write(changed);
  device_->AttentionForward({.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lse = lse.view()});
  const Values after = o.Read();
  for (int64_t i = 0; i < (t - 1) * d; ++i) EXPECT_EQ(after[i], before[i]);
  EXPECT_NE(after[t * d - 1], before[t * d - 1]);
}

TEST_F(ReferenceDevice, AttentionBackwardIsTheDerivativeOfForward) {
  const int64_t b = 2, t = 4, h = 2, d = 3;
  Tensor q = Random({b, t, h, d}, "q"), k = Random({b, t, h, d}, "k"), v = Random({b, t, h, d}, "v");
  Tensor o = Make({b, t, h, d}, Values(b * t * h * d, kNaN)), lse = Make({b, h, t}, Values(b * h * t, kNaN));
  Tensor d_o = Random({b, t, h, d}, "do");
  const Values nothing(b * t * h * d, kNaN);
  Tensor dq = Make({b, t, h, d}, nothing), dk = Make({b, t, h, d}, nothing), dv = Make({b, t, h, d}, nothing);
  const auto loss = [&] {
    device_->AttentionForward(
        {.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .lse = lse.view()});
    return Sum(d_o.Read(), o.Read());
  };
  loss();
  device_->AttentionBackward({.q = q.view(),
                              .k = k.view(),
                              .v = v.view(),
                              .o = o.view(),
                              .lse = lse.view(),
                              .d_o = d_o.view(),
                              .dq = dq.view(),
                              .dk = dk.view(),
                              .dv = dv.view()});
  CheckGradient(q, dq.Read(), loss, "dq");
  CheckGradient(k, dk.Read(), loss, "dk");
  CheckGradient(v, dv.Read(), loss, "dv");
}

// ---- Embeddings.

TEST_F(ReferenceDevice, EmbeddingAddsTokenAndPosition) {
  Tensor token = Make({3, 2}, {1, 2, 3, 4, 5, 6}), position = Make({3, 2}, {10, 20, 30, 40, 50, 60});
  const Ids ids(*device_, {2, 2}, {2, 0, 0, 1});
  Tensor h = Make({4, 2}, Values(8, kNaN));
  device_->EmbeddingForward(
      {.ids = ids.view(), .token = token.view(), .position = position.view(), .h = h.view()});
  EXPECT_EQ(h.Read(), (Values{15, 26, 31, 42, 11, 22, 33, 44}));
}

TEST_F(ReferenceDevice, EmbeddingBackwardGathersRepeatedTokensAndWritesEveryRow) {
  Tensor dh = Make({4, 1}, {1, 2, 4, 8}), dtoken = Make({4, 1}, Values(4, kNaN)),
         dposition = Make({3, 1}, Values(3, kNaN));
  const Ids ids(*device_, {2, 2}, {2, 0, 0, 1});
  device_->EmbeddingBackward(
      {.ids = ids.view(), .dh = dh.view(), .dtoken = dtoken.view(), .dposition = dposition.view()});
  EXPECT_EQ(dtoken.Read(), (Values{6, 8, 1, 0}));
  EXPECT_EQ(dposition.Read(), (Values{5, 10, 0}));
  device_->EmbeddingBackward({.ids = ids.view(),
                              .dh = dh.view(),
                              .dtoken = dtoken.view(),
                              .dposition = dposition.view(),
                              .accumulate_token = true,
                              .accumulate_position = true});
  EXPECT_EQ(dtoken.Read(), (Values{12, 16, 2, 0}));
  EXPECT_EQ(dposition.Read(), (Values{10, 20, 0}));
}

// T-06: an id outside of the vocabulary is refused, not folded into it or read out of bounds.
TEST_F(ReferenceDevice, EmbeddingRefusesIdsOutsideTheVocabulary) {
  Tensor token = Make({3, 2}, Values(6, 1)), position = Make({1, 2}, Values(2, 1)),
         h = Make({1, 2}, Values(2, 0));
  for (const int32_t id : {-1, 3}) {
    const Ids ids(*device_, {1, 1}, {id});
    EXPECT_THROW(device_->EmbeddingForward(
                     {.ids = ids.view(), .token = token.view(), .position = position.view(), .h = h.view()}),
                 std::logic_error);
  }
}

// ---- Loss.

// Logits log(1), log(2), log(5): probabilities 1/8, 2/8, 5/8.
TEST_F(ReferenceDevice, CrossEntropyEqualsTheSoftmaxWorkedOutByHand) {
  const Values row = {std::log(1.0), std::log(2.0), std::log(5.0)};
  Values logits_values = row;
  logits_values.insert(logits_values.end(), row.begin(), row.end());
  Tensor logits = Make({2, 3}, logits_values), losses = Make({2}, Values(2, kNaN)),
         dlogits = Make({2, 3}, Values(6, kNaN));
  const Ids targets(*device_, {2}, {2, -1});
  device_->CrossEntropy({.logits = logits.view(),
                         .targets = targets.view(),
                         .scale = 0.5,
                         .losses = losses.view(),
                         .dlogits = dlogits.view()});
  Comparison comparison("cross-entropy");
  comparison.AddAll(losses.Read(), Values{std::log(8.0 / 5), 0}, Values{1e-15, 0});
  comparison.AddAll(dlogits.Read(), Values{1 / 16.0, 2 / 16.0, -3 / 16.0, 0, 0, 0},
                    Values{1e-15, 1e-15, 1e-15, 0, 0, 0});
  EXPECT_TRUE(Within(comparison, Repro("two rows")));
}

TEST_F(ReferenceDevice, CrossEntropyGradientIsTheDerivativeAndMayReplaceTheLogits) {
  Tensor logits = Random({3, 6}, "logits", 2), losses = Make({3}, Values(3, kNaN)),
         in_place = Random({3, 6}, "logits", 2);
  const Ids targets(*device_, {3}, {5, 0, 2});
  device_->CrossEntropy({.logits = in_place.view(),
                         .targets = targets.view(),
                         .scale = 3,
                         .losses = losses.view(),
                         .dlogits = in_place.view()});
  CheckGradient(
      logits, in_place.Read(),
      [&] {
        device_->CrossEntropy(
            {.logits = logits.view(), .targets = targets.view(), .losses = losses.view(), .dlogits = {}});
        return 3 * Sum(Values(3, 1), losses.Read());
      },
      "dlogits");
}

TEST_F(ReferenceDevice, CrossEntropyOfHugeLogitsIsFinite) {
  Tensor logits = Make({1, 2}, {1e4, -1e4}), losses = Make({1}, {kNaN});
  const Ids targets(*device_, {1}, {1});
  device_->CrossEntropy(
      {.logits = logits.view(), .targets = targets.view(), .losses = losses.view(), .dlogits = {}});
  EXPECT_EQ(losses.Read(), Values{2e4});
}

// ---- Optimizer.

// T-14: with no gradient a decayed weight shrinks by 1 - lr * decay, any other stays.
TEST_F(ReferenceDevice, AdamWDecaysOnlyWhatItShould) {
  Tensor gradient = Make({2}, {0, 0}), weight = Make({2}, {1, 1}), m = Make({2}, {0, 0}),
         v = Make({2}, {0, 0});
  device_->AdamW({.gradient = gradient.view(),
                  .decayed = 1,
                  .learning_rate = 1e-2,
                  .weight_decay = 0.1,
                  .weight = weight.view(),
                  .m = m.view(),
                  .v = v.view()});
  EXPECT_EQ(weight.Read(), (Values{0.999, 1}));
}

// The first step moves by the learning rate whatever the gradient; the second by hand:
//   g = 2, 1 (after scaling by 0.5): m = 0.2, 0.28; v = 0.2, 0.24; m^ = 0.28 / 0.19; v^ = 0.24 / 0.0975.
TEST_F(ReferenceDevice, AdamWEqualsTwoStepsWorkedOutByHand) {
  Tensor gradient = Make({1}, {4}), weight = Make({1}, {1}), m = Make({1}, {0}), v = Make({1}, {0});
  AdamWArgs args{.gradient = gradient.view(),
                 .step = 1,
                 .learning_rate = 0.1,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 0,
                 .gradient_scale = 0.5,
                 .weight = weight.view(),
                 .m = m.view(),
                 .v = v.view()};
  device_->AdamW(args);
  EXPECT_NEAR(weight.Read()[0], 0.9, 1e-15);
  gradient.Write(Values{2});
  args.step = 2;
  device_->AdamW(args);
  EXPECT_NEAR(m.Read()[0], 0.28, 1e-15);
  EXPECT_NEAR(v.Read()[0], 0.24, 1e-15);
  EXPECT_NEAR(weight.Read()[0], 0.9 - 0.1 * (0.28 / 0.19) / std::sqrt(0.24 / 0.0975), 1e-15);
}

TEST_F(ReferenceDevice, SumSquaresAddsSquares) {
  Tensor x = Make({3}, {1, -2, 3}), to = Make({1}, {kNaN});
  device_->SumSquares(x.view(), to.view());
  EXPECT_EQ(to.Read(), Values{14});
}

}  // namespace
}  // namespace normlab::test
