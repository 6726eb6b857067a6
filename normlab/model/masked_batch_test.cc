// The gradient of a batch whose sequences count different numbers of targets.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/reference/reference_device.h"
#include "normlab/testing/tiny_gpt.h"

namespace normlab {
namespace {

constexpr int64_t kBatch = 8, kWindow = 64;

GptConfig Config(const std::string& norm) {
  GptConfig config = test::TinyConfig(norm, "pre");
  config.context_length = kWindow;
  return config;
}

struct Gradient {
  double loss = 0;
  std::vector<double> values;
};

// The batch in pieces of `micro_batch` sequences; sequence i counts its first lengths[i] targets.
Gradient InPieces(Device& device, const GptConfig& config, int64_t micro_batch,
                  const std::vector<int64_t>& lengths) {
  const auto inputs = test::RandomIds(kBatch * kWindow, config.vocab_size, "inputs");
  auto targets = test::RandomIds(kBatch * kWindow, config.vocab_size, "targets");
  int64_t counted = 0;
  for (int64_t i = 0; i < kBatch; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    std::fill(targets.begin() + i * kWindow + length, targets.begin() + (i + 1) * kWindow, -1);
    counted += length;
  }
  test::TinyGpt gpt(device, config, {.micro_batch = micro_batch, .window = kWindow});
  const size_t piece = static_cast<size_t>(micro_batch * kWindow);
  std::vector<double> losses(piece);
  Gradient gradient;
  for (size_t begin = 0; begin < inputs.size(); begin += piece) {
    gpt.model.LossesAndGradients(std::span(inputs).subspan(begin, piece),
                                 std::span(targets).subspan(begin, piece), 1.0 / static_cast<double>(counted),
                                 begin > 0, losses);
    for (const double loss : losses) gradient.loss += loss / static_cast<double>(counted);
  }
  gradient.values = gpt.Values(gpt.model.gradients());
  return gradient;
}

double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += a[i] * a[i];
  }
  return std::sqrt(difference / size);
}

void ExpectTheSameGradient(Device& device, double tolerance) {
  for (const char* norm : {"layernorm", "rmsnorm"}) {
    const GptConfig config = Config(norm);
    // Eight batches, in which every length from 1 to 64 occurs once.
    for (int64_t b = 0; b < 8; ++b) {
      std::vector<int64_t> lengths;
      for (int64_t i = 0; i < kBatch; ++i) lengths.push_back(1 + b + 8 * i);
      const Gradient whole = InPieces(device, config, 8, lengths);
      for (const int64_t micro_batch : {1, 2}) {
        const Gradient parts = InPieces(device, config, micro_batch, lengths);
        EXPECT_LE(RelativeDifference(whole.values, parts.values), tolerance)
            << norm << " " << b << " " << micro_batch;
        EXPECT_LE(std::abs(whole.loss - parts.loss), tolerance * whole.loss);
      }
    }
  }
}

// T-15: 8 sequences as 1x8, 2x4 and 8x1 with 1 to 64 counted targets have one gradient, that of the mean over
// all counted targets and not of means of micro-batches. The reference device differs in the order of float64
// sums.
TEST(MaskedBatch, HasOneGradientHoweverItIsCut) { ExpectTheSameGradient(*MakeReferenceDevice(), 1e-13); }

// T-15, in fp32. 1e-6 is some 16 roundings of 2^-24, relative to the whole gradient.
TEST(MaskedBatch, HasOneGradientHoweverItIsCutOnTheCpu) {
  ExpectTheSameGradient(*MakeCpuDevice({.threads = 2}), 1e-6);
}

// The check above can fail: the mean of micro-batch means is another gradient.
TEST(MaskedBatch, MeansOfMicroBatchesWouldBeSeen) {
  const auto device = MakeReferenceDevice();
  const GptConfig config = Config("rmsnorm");
  const std::vector<int64_t> lengths = {1, 9, 17, 25, 33, 41, 49, 57};
  const Gradient whole = InPieces(*device, config, 8, lengths);
  std::vector<double> mean(whole.values.size());
  for (int64_t i = 0; i < kBatch; ++i) {
    std::vector<int64_t> one(kBatch, 0);
    one[static_cast<size_t>(i)] = lengths[static_cast<size_t>(i)];
    const Gradient alone = InPieces(*device, config, 8, one);
    for (size_t k = 0; k < mean.size(); ++k) mean[k] += alone.values[k] / kBatch;
  }
  EXPECT_GT(RelativeDifference(whole.values, mean), 0.01);
}

}  // namespace
}  // namespace normlab
