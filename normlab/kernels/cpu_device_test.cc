// Embeddings, loss and optimizer of the CPU device against the reference, and what the device promises as a
// whole. (Products, attention and norms have files of their own.) The bounds stand at each test; u = 2^-24.

#include "normlab/kernels/cpu/cpu_device.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "normlab/testing/cpu_against_reference.h"

namespace normlab::test {
namespace {

constexpr double kU = kUnitF32;

// Activations are stored as f32 or bf16; what is stored as bf16 is rounded once more.
constexpr DType kStorage[] = {DType::kF32, DType::kBF16};
double UnitOf(DType type) { return type == DType::kBF16 ? 0x1p-8 : 0; }
Values As(DType type, Values values) {
  return type == DType::kBF16 ? RoundedToBf16(std::move(values)) : values;
}

class CpuOperations : public CpuAgainstReference {};

std::vector<int32_t> RandomIds(int64_t count, int64_t lowest, int64_t vocabulary) {
  const RandomStream stream(Seed(), "ids");
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(
        lowest + static_cast<int64_t>(stream.Below(i, static_cast<uint64_t>(vocabulary - lowest))));
  return ids;
}

// ---- Embeddings.

// One addition: exact up to its rounding, u |h|.
TEST_F(CpuOperations, EmbeddingForwardAddsOnce) {
  for (const auto& [b, t, v, c] : {std::array<int64_t, 4>{1, 1, 5, 1}, {2, 33, 257, 80}, {3, 70, 17, 129}})
    for (const DType type : kStorage) {
      const Values token = RandomValues({v, c}, "token"), position = RandomValues({t + 3, c}, "position");
      const std::vector<int32_t> ids = RandomIds(b * t, 0, v);
      Check(
          [&](Device& device) {
            const Ids tids(device, {b, t}, ids);
            const Tensor ttoken(device, {v, c}, token), tposition(device, {t + 3, c}, position),
                h(device, {b * t, c}, device.StorageType(type));
            device.EmbeddingForward(
                {.ids = tids.view(), .token = ttoken.view(), .position = tposition.view(), .h = h.view()});
            return std::vector<Values>{h.Read()};
          },
          [&](const std::vector<Values>& want) {
            Values tolerance = want[0];
            for (double& value : tolerance) value = (kU + (1 + kU) * UnitOf(type)) * std::abs(value);
            return std::vector<Expected>{{"h", tolerance}};
          },
          fmt::format("{} B{} T{} V{} C{}", Name(type), b, t, v, c));
    }
}

// Sums over the rows of one token or position: (4 + sqrt n) u times their magnitudes, n + 1 terms with what
// was there.
TEST_F(CpuOperations, EmbeddingBackwardGathersRepeatedTokens) {
  for (const auto& [b, t, v, c] : {std::array<int64_t, 4>{1, 1, 5, 1}, {2, 33, 257, 80}, {5, 70, 17, 129}})
    for (const bool accumulate_token : {false, true})
      for (const DType type : kStorage)
        for (const bool accumulate_position : {false, true}) {
          const Values dh = As(type, RandomValues({b * t, c}, "dh")), token = RandomValues({v, c}, "dtoken"),
                       position = RandomValues({t + 3, c}, "dposition");
          const std::vector<int32_t> ids = RandomIds(b * t, 0, v);
          Check(
              [&](Device& device) {
                const Ids tids(device, {b, t}, ids);
                const Tensor tdh(device, {b * t, c}, dh, device.StorageType(type));
                const Tensor dtoken =
                    accumulate_token ? Tensor(device, {v, c}, token) : Tensor(device, {v, c});
                const Tensor dposition =
                    accumulate_position ? Tensor(device, {t + 3, c}, position) : Tensor(device, {t + 3, c});
                device.EmbeddingBackward({.ids = tids.view(),
                                          .dh = tdh.view(),
                                          .dtoken = dtoken.view(),
                                          .dposition = dposition.view(),
                                          .accumulate_token = accumulate_token,
                                          .accumulate_position = accumulate_position});
                return std::vector<Values>{dtoken.Read(), dposition.Read()};
              },
              [&](const std::vector<Values>&) {
                const auto bounds = [&](int64_t table_rows, const Values& before, bool accumulate,
                                        const auto& row_of) {
                  Values magnitude(table_rows * c);
                  std::vector<int64_t> terms(table_rows, 1);
                  if (accumulate)
                    for (size_t i = 0; i < magnitude.size(); ++i) magnitude[i] = std::abs(before[i]);
                  for (int64_t r = 0; r < b * t; ++r) {
                    ++terms[row_of(r)];
                    for (int64_t i = 0; i < c; ++i) magnitude[row_of(r) * c + i] += std::abs(dh[r * c + i]);
                  }
                  for (int64_t i = 0; i < table_rows * c; ++i) magnitude[i] *= SumBound(terms[i / c]);
                  return magnitude;
                };
                return std::vector<Expected>{
                    {"dtoken", bounds(v, token, accumulate_token, [&](int64_t r) { return ids[r]; })},
                    {"dposition",
                     bounds(t + 3, position, accumulate_position, [&](int64_t r) { return r % t; })}};
              },
              fmt::format("{} B{} T{} V{} C{} accumulate {} {}", Name(type), b, t, v, c, accumulate_token,
                          accumulate_position));
        }
}

// T-06: an id outside of the vocabulary is refused before it reads other memory.
TEST_F(CpuOperations, IdsAndTargetsOutsideTheVocabularyAreRefused) {
  Device& device = *devices_[1];
  const Tensor token(device, {3, 2}), position(device, {1, 2}), h(device, {1, 2}), logits(device, {1, 3}),
      losses(device, {1});
  for (const int32_t id : {-1, 3}) {
    const Ids ids(device, {1, 1}, {id});
    EXPECT_THROW(device.EmbeddingForward(
                     {.ids = ids.view(), .token = token.view(), .position = position.view(), .h = h.view()}),
                 std::logic_error);
    EXPECT_THROW(
        device.EmbeddingBackward(
            {.ids = ids.view(), .dh = h.view(), .dtoken = token.view(), .dposition = position.view()}),
        std::logic_error);
  }
  for (const int32_t target : {-2, 3}) {
    const Ids targets(device, {1}, {target});
    EXPECT_THROW(
        device.CrossEntropy(
            {.logits = logits.view(), .targets = targets.view(), .losses = losses.view(), .dlogits = {}}),
        std::logic_error);
  }
}

// ---- Loss.

// With m the largest logit and S = sum exp(l - m): each exponential has a relative error of u |l - m| + 2e-7
// (= 3.4 u), the sum (4 + sqrt V) u more; so log S is off by that in all, d, and u |log S|; the loss adds the
// two roundings of m - l_target and its own. A gradient p scale has the errors of its exponential and of S,
// and 3 roundings; the target's one more, of the size of scale. Below e^-87 an exponential is 0, and a
// gradient below 2^-126 is flushed to 0.
TEST_F(CpuOperations, CrossEntropyAgrees) {
  for (const auto& [rows, vocabulary] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 3}, {257, 7}, {33, 257}, {3, 5003}})
    for (const double spread : {1.0, 40.0})
      for (const DType type : kStorage)
        for (const int place : {0, 1, 2}) {  // gradient absent, apart, in place of the logits
          const Values logits = As(type, RandomValues({rows, vocabulary}, "logits", 0, spread));
          const std::vector<int32_t> targets = RandomIds(rows, rows > 1 ? -1 : 0, vocabulary);
          const double scale = 1.0 / 64;
          Check(
              [&](Device& device) {
                const Ids ttargets(device, {rows}, targets);
                const DType storage = device.StorageType(type);
                const Tensor tlogits(device, {rows, vocabulary}, logits, storage), losses(device, {rows}),
                    dlogits(device, {rows, vocabulary}, storage);
                const View gradient = place == 0 ? View{} : place == 1 ? dlogits.view() : tlogits.view();
                device.CrossEntropy({.logits = tlogits.view(),
                                     .targets = ttargets.view(),
                                     .scale = scale,
                                     .losses = losses.view(),
                                     .dlogits = gradient});
                std::vector<Values> out = {losses.Read()};
                if (place != 0) out.push_back(dlogits.Read(gradient));
                return out;
              },
              [&](const std::vector<Values>& want) {
                Values loss(rows), gradient(rows * vocabulary);
                for (int64_t r = 0; r < rows; ++r) {
                  if (targets[r] < 0) continue;  // exactly 0
                  const double* const l = logits.data() + r * vocabulary;
                  const double largest = *std::max_element(l, l + vocabulary);
                  double sum = 0, shift_error = 0;
                  for (int64_t v = 0; v < vocabulary; ++v)
                    sum += std::exp(l[v] - largest),
                        shift_error += std::exp(l[v] - largest) * std::abs(l[v] - largest);
                  const double relative = SumBound(vocabulary) + kU * shift_error / sum + 3.4 * kU;
                  loss[r] = relative + kU * (std::abs(std::log(sum)) + 2 * std::abs(largest - l[targets[r]]) +
                                             std::abs(want[0][r]));
                  for (int64_t v = 0; v < vocabulary; ++v) {
                    const double p = std::exp(l[v] - largest) / sum;
                    gradient[r * vocabulary + v] =
                        scale * (p * (relative + kU * std::abs(l[v] - largest) + 6.4 * kU) + 2e-38) +
                        0x1p-126 + (v == targets[r] ? kU * scale : 0);
                    double& tolerance = gradient[r * vocabulary + v];
                    if (place != 0)
                      tolerance = (1 + UnitOf(type)) *
                                  (tolerance + UnitOf(type) * std::abs(want[1][r * vocabulary + v]));
                  }
                }
                std::vector<Expected> expected = {{"losses", loss}};
                if (place != 0) expected.push_back({"dlogits", gradient});
                return expected;
              },
              fmt::format("{} {}x{} spread {} place {}", Name(type), rows, vocabulary, spread, place));
        }
}

// T-11, T-34: a loss of NaN is shown as one, and only where it belongs.
TEST_F(CpuOperations, CrossEntropyShowsNaNInItsRow) {
  for (const int64_t vocabulary : {7, 33, 257})
    for (const int64_t column : {int64_t{0}, int64_t{4}, vocabulary - 1})
      for (const std::string& isa : SupportedIsas()) {
        const IsaScope scope(isa);
        Device& device = *devices_[1];
        Values logits = RandomValues({40, vocabulary}, "logits");
        logits[17 * vocabulary + column] = kNaN;
        const Ids targets(device, {40}, std::vector<int32_t>(40, 2));
        const Tensor tlogits(device, {40, vocabulary}, logits), losses(device, {40}),
            dlogits(device, {40, vocabulary});
        device.CrossEntropy({.logits = tlogits.view(),
                             .targets = targets.view(),
                             .scale = 1,
                             .losses = losses.view(),
                             .dlogits = dlogits.view()});
        const Values loss = losses.Read(), gradient = dlogits.Read();
        for (int64_t r = 0; r < 40; ++r)
          ASSERT_EQ(std::isnan(loss[r]), r == 17)
              << isa << " row " << r << " width " << vocabulary << " column " << column;
        for (int64_t i = 0; i < 40 * vocabulary; ++i)
          ASSERT_EQ(std::isnan(gradient[i]), i / vocabulary == 17) << isa << " width " << vocabulary;
      }
}

// ---- Optimizer.

// g = gradient scale: u. m = b1 m + (1 - b1) g: 3 u of the magnitudes (coefficients, product, sum) and g's
// own; v likewise, 5 u. The update is a quotient of m by sqrt(v) c + eps: half of v's relative error, 6 u for
// root, coefficients, product, sum and division. w: its own rounding, that of 1 - lr decay, and the update's
// error.
TEST_F(CpuOperations, AdamWAgreesOnEveryStep) {
  for (const int64_t count : {1, 7, 33, 1000, 70000, 140001})
    for (const int64_t step : {1, 2, 1000}) {
      const AdamWArgs numbers{.gradient = {},
                              .decayed = count / 2,
                              .step = step,
                              .learning_rate = 1e-3,
                              .weight_decay = 0.1,
                              .gradient_scale = 0.3,
                              .weight = {},
                              .m = {},
                              .v = {}};
      const Values gradient = RandomValues({count}, "gradient"), weight = RandomValues({count}, "weight"),
                   m = RandomValues({count}, "m");
      Values v = RandomValues({count}, "v");
      for (double& value : v) value = std::abs(value);
      Check(
          [&](Device& device) {
            const Tensor tgradient(device, {count}, gradient), tweight(device, {count}, weight),
                tm(device, {count}, m), tv(device, {count}, v);
            AdamWArgs args = numbers;
            args.gradient = tgradient.view(), args.weight = tweight.view(), args.m = tm.view(),
            args.v = tv.view();
            device.AdamW(args);
            return std::vector<Values>{tweight.Read(), tm.Read(), tv.Read()};
          },
          [&](const std::vector<Values>& want) {
            Values tw(count), tm(count), tv(count);
            const double correction1 = 1 - std::pow(numbers.beta1, static_cast<double>(step)),
                         correction2 = 1 - std::pow(numbers.beta2, static_cast<double>(step));
            for (int64_t i = 0; i < count; ++i) {
              const double g = std::abs(gradient[i] * numbers.gradient_scale);
              tm[i] = 3 * kU * numbers.beta1 * std::abs(m[i]) + 4 * kU * (1 - numbers.beta1) * g;
              tv[i] = 3 * kU * numbers.beta2 * v[i] + 6 * kU * (1 - numbers.beta2) * g * g;
              const double denominator = std::sqrt(want[2][i] / correction2) + numbers.eps;
              const double update = numbers.learning_rate * std::abs(want[1][i]) / correction1 / denominator;
              const double update_error = numbers.learning_rate * tm[i] / correction1 / denominator +
                                          update * (tv[i] / want[2][i] / 2 + 6 * kU);
              tw[i] = 2 * kU * std::abs(weight[i]) + kU * std::abs(want[0][i]) + update_error;
            }
            return std::vector<Expected>{{"weight", tw}, {"m", tm}, {"v", tv}};
          },
          fmt::format("{} elements step {}", count, step));
    }
}

// T-21: what the products read follows the fp32 weights, of which no step is lost.
TEST_F(CpuOperations, AdamWLeavesTheRoundedWeightsBehind) {
  const int64_t count = 70'001;
  Device& device = *devices_[1];
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{0, count}, {16, count}, {65'552, 65'569}, {32, 48}}) {
    const Tensor gradient(device, {count}, RandomValues({count}, "gradient")),
        weight(device, {count}, RandomValues({count}, "weight")), m(device, {count}, Values(count, 0)),
        v(device, {count}, Values(count, 0)), low(device, {count}, DType::kBF16);
    device.AdamW({.gradient = gradient.view(),
                  .decayed = 65'000,
                  .learning_rate = 1e-2,
                  .weight_decay = 0.1,
                  .weight = weight.view(),
                  .m = m.view(),
                  .v = v.view(),
                  .low = low.view().Slice(0, end - begin),
                  .low_begin = begin});
    const Values after = RoundedToBf16(weight.Read()), copy = low.Read();
    for (int64_t i = 0; i < count; ++i) {
      if (i < end - begin)
        ASSERT_EQ(copy[i], after[begin + i]) << i << " from " << begin;
      else
        ASSERT_TRUE(std::isnan(copy[i])) << i << " from " << begin;
    }
  }

  const Tensor one(device, {16}, Values(16, 1)), weight(device, {16}, Values(16, 1)),
      m(device, {16}, Values(16, 0)), v(device, {16}, Values(16, 0)),
      low(device, {16}, Values(16, 1), DType::kBF16);
  for (int64_t step = 1; step <= 100; ++step)
    device.AdamW({.gradient = one.view(),
                  .step = step,
                  .learning_rate = 6e-4,
                  .weight = weight.view(),
                  .m = m.view(),
                  .v = v.view(),
                  .low = low.view()});
  EXPECT_NEAR(weight.Read()[0], 1 - 100 * 6e-4, 100 * 2 * kU);  // two roundings of each step
  EXPECT_EQ(low.Read()[0], RoundedToBf16({1 - 100 * 6e-4})[0]);
}

// T-14: without a gradient the decayed half shrinks by 1 - lr decay, the other half keeps its bits.
TEST_F(CpuOperations, AdamWDecaysExactlyTheDecayedElements) {
  const int64_t count = 70001, decayed = 65537;
  const Tensor zero(*devices_[1], {count}, Values(count, 0)), m(*devices_[1], {count}, Values(count, 0)),
      v(*devices_[1], {count}, Values(count, 0));
  const Tensor weight(*devices_[1], {count}, Values(count, 1));
  devices_[1]->AdamW({.gradient = zero.view(),
                      .decayed = decayed,
                      .learning_rate = 1e-2,
                      .weight_decay = 0.1,
                      .weight = weight.view(),
                      .m = m.view(),
                      .v = v.view()});
  const Values after = weight.Read();
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(after[i], i < decayed ? RoundToF32(0.999) : 1.0) << i;
}

// float64 all the way: (4 + sqrt n) 2^-53 of the sum.
TEST_F(CpuOperations, SumSquaresIsFloat64) {
  for (const int64_t count : {1, 15, 17, 1000, 65536, 200001}) {
    const Values x = RandomValues({count}, "x", 0, 1e-3);
    Check(
        [&](Device& device) {
          const Tensor tx(device, {count}, x), to(device, {1}, Values{kNaN}, DType::kF64);
          device.SumSquares(tx.view(), to.view());
          return std::vector<Values>{to.Read()};
        },
        [&](const std::vector<Values>& want) {
          return std::vector<Expected>{
              {"sum", {(4 + std::sqrt(static_cast<double>(count))) * kUnitF64 * want[0][0]}}};
        },
        fmt::format("{} elements", count));
  }
}

TEST_F(CpuOperations, SumSquaresOfANaNIsNaN) {
  for (const int64_t at : {0, 16, 70000}) {
    Values x(70001, 1);
    x[at] = kNaN;
    const Tensor tx(*devices_[1], {70001}, x), to(*devices_[1], {1}, Values{0}, DType::kF64);
    devices_[1]->SumSquares(tx.view(), to.view());
    EXPECT_TRUE(std::isnan(to.Read()[0])) << at;
  }
}

// ---- The device.

TEST(CpuDevice, MemoryIsAlignedAndCounted) {
  const auto device = MakeCpuDevice({.threads = 1});
  const size_t before = device->allocated_bytes();
  void* a = device->Allocate(1000);
  void* b = device->Allocate(24);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
  EXPECT_EQ(device->allocated_bytes() - before, 1024u);
  device->Free(a, 1000);
  EXPECT_EQ(device->allocated_bytes() - before, 24u);
  EXPECT_EQ(device->peak_bytes() - before, 1024u);
  device->Free(b, 24);
}

TEST(CpuDevice, CopiesHonourEveryStride) {
  const auto device = MakeCpuDevice({.threads = 1});
  const Tensor x(*device, {2, 3}, Values{1, 2, 3, 4, 5, 6}), y(*device, {3, 2});
  device->Copy(x.view().Transposed(), y.view());
  EXPECT_EQ(y.Read(), (Values{1, 4, 2, 5, 3, 6}));
  device->Fill(y.view().Columns(1, 2), -1);
  EXPECT_EQ(y.Read(), (Values{1, -1, 2, -1, 3, -1}));
}

TEST(CpuDevice, CopiesRoundToBf16) {
  const auto device = MakeCpuDevice({.threads = 2});
  Values values = RandomValues({70'001}, "values");
  values[5] = kNaN, values[6] = HUGE_VAL, values[7] = 3.4e38;
  const Tensor from(*device, {70'001}, values), to(*device, {70'001}, DType::kBF16);
  device->Copy(from.view(), to.view());
  EXPECT_TRUE(SameBits(to.Read(), RoundedToBf16(values), "copy"));
}

TEST(CpuDevice, RefusesZeroThreads) { EXPECT_THROW((void)MakeCpuDevice({.threads = 0}), Error); }

}  // namespace
}  // namespace normlab::test
