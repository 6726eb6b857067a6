#include "normlab/kernels/profiling_device.h"

#include <chrono>

namespace normlab {
namespace {

// c[m,n] = a b: a weight gradient sums over the rows of a, which is stored transposed; forward reads weights
// [out, in] transposed, the gradient of its input reads them as they are.
bool ReadsTransposed(const View& matrix) { return matrix.strides[1] != 1 && matrix.shape[1] > 1; }

}  // namespace

std::vector<OperationTime> ProfilingDevice::Times() const {
  static constexpr std::array<std::string_view, kKinds> kNames = {
      "embeddings, forward",
      "norms, forward",
      "attention, forward",
      "products, forward",
      "cross-entropy",
      "products, gradients of inputs",
      "products, gradients of weights",
      "gradients of biases",
      "norms, backward",
      "attention, backward",
      "embeddings, backward",
      "norm of the gradient",
      "AdamW",
      "copies",
  };
  std::vector<OperationTime> times;
  for (size_t i = 0; i < kKinds; ++i)
    if (times_[i].calls > 0) times.push_back({std::string(kNames[i]), times_[i].calls, times_[i].seconds});
  return times;
}

template <class F>
void ProfilingDevice::Timed(Kind kind, F&& operation) {
  using Clock = std::chrono::steady_clock;
  if (!keeping_) return operation();
  const auto start = Clock::now();
  operation();
  ++times_[kind].calls;
  times_[kind].seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

void ProfilingDevice::Upload(std::span<const double> values, const View& to) {
  Timed(kCopies, [&] { device_.Upload(values, to); });
}
void ProfilingDevice::UploadIds(std::span<const int32_t> ids, const View& to) {
  Timed(kCopies, [&] { device_.UploadIds(ids, to); });
}
void ProfilingDevice::ReadBack(const View& from, std::span<double> values) {
  Timed(kCopies, [&] { device_.ReadBack(from, values); });
}
void ProfilingDevice::Fill(const View& to, double value) {
  Timed(kCopies, [&] { device_.Fill(to, value); });
}
void ProfilingDevice::Copy(const View& from, const View& to) {
  Timed(kCopies, [&] { device_.Copy(from, to); });
}
void ProfilingDevice::MatMul(const MatMulArgs& args) {
  const Kind kind = ReadsTransposed(args.a)   ? kWeightProducts
                    : ReadsTransposed(args.b) ? kForwardProducts
                                              : kInputProducts;
  Timed(kind, [&] { device_.MatMul(args); });
}
void ProfilingDevice::BiasGradient(const View& dy, const View& dbias, bool accumulate) {
  Timed(kBiasGradients, [&] { device_.BiasGradient(dy, dbias, accumulate); });
}
void ProfilingDevice::NormForward(const NormForwardArgs& args) {
  Timed(kNormForward, [&] { device_.NormForward(args); });
}
void ProfilingDevice::NormBackward(const NormBackwardArgs& args) {
  Timed(kNormBackward, [&] { device_.NormBackward(args); });
}
void ProfilingDevice::AttentionForward(const AttentionForwardArgs& args) {
  Timed(kAttentionForward, [&] { device_.AttentionForward(args); });
}
void ProfilingDevice::AttentionBackward(const AttentionBackwardArgs& args) {
  Timed(kAttentionBackward, [&] { device_.AttentionBackward(args); });
}
void ProfilingDevice::EmbeddingForward(const EmbeddingForwardArgs& args) {
  Timed(kEmbeddingForward, [&] { device_.EmbeddingForward(args); });
}
void ProfilingDevice::EmbeddingBackward(const EmbeddingBackwardArgs& args) {
  Timed(kEmbeddingBackward, [&] { device_.EmbeddingBackward(args); });
}
void ProfilingDevice::CrossEntropy(const CrossEntropyArgs& args) {
  Timed(kCrossEntropy, [&] { device_.CrossEntropy(args); });
}
void ProfilingDevice::AdamW(const AdamWArgs& args) {
  Timed(kAdamW, [&] { device_.AdamW(args); });
}
void ProfilingDevice::SumSquares(const View& x, const View& to) {
  Timed(kGradientNorm, [&] { device_.SumSquares(x, to); });
}

}  // namespace normlab
