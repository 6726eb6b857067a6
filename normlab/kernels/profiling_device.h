#pragma once
// A device that passes every operation on to another and keeps the time that each kind took. Operations of
// the CPU have ended when they return, so these are their seconds.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/kernels/device.h"

namespace normlab {

struct OperationTime {
  std::string name;  // "norms, forward"
  int64_t calls = 0;
  double seconds = 0;
};

class ProfilingDevice final : public Device {
 public:
  explicit ProfilingDevice(Device& device) : device_(device) {}

  // Times are kept while this is on; at first it is off.
  void Keep(bool on) { keeping_ = on; }
  // What has been kept, in the order of a training step; kinds that did not run are left out.
  std::vector<OperationTime> Times() const;

  std::string_view name() const override { return device_.name(); }
  DType compute_dtype() const override { return device_.compute_dtype(); }
  DType StorageType(DType wanted) const override { return device_.StorageType(wanted); }
  int threads() const override { return device_.threads(); }

  void* Allocate(size_t bytes) override { return device_.Allocate(bytes); }
  void Free(void* data, size_t bytes) override { device_.Free(data, bytes); }
  size_t allocated_bytes() const override { return device_.allocated_bytes(); }
  size_t peak_bytes() const override { return device_.peak_bytes(); }
  void Upload(std::span<const double> values, const View& to) override;
  void UploadIds(std::span<const int32_t> ids, const View& to) override;
  void ReadBack(const View& from, std::span<double> values) override;
  void Fill(const View& to, double value) override;
  void Copy(const View& from, const View& to) override;

  void MatMul(const MatMulArgs& args) override;
  void BiasGradient(const View& dy, const View& dbias, bool accumulate) override;
  void NormForward(const NormForwardArgs& args) override;
  void NormBackward(const NormBackwardArgs& args) override;
  int64_t NormSavedElements(const NormSpec& spec, int64_t rows, int64_t cols) const override {
    return device_.NormSavedElements(spec, rows, cols);
  }
  NormImplementation ResolveNorm(const NormSpec& spec, int64_t cols) const override {
    return device_.ResolveNorm(spec, cols);
  }
  std::vector<NormImplementationStatus> NormImplementations(const NormSpec& spec,
                                                            int64_t cols) const override {
    return device_.NormImplementations(spec, cols);
  }
  void AttentionForward(const AttentionForwardArgs& args) override;
  void AttentionBackward(const AttentionBackwardArgs& args) override;
  void EmbeddingForward(const EmbeddingForwardArgs& args) override;
  void EmbeddingBackward(const EmbeddingBackwardArgs& args) override;
  void CrossEntropy(const CrossEntropyArgs& args) override;
  void AdamW(const AdamWArgs& args) override;
  std::optional<double> FastestProductSeconds(const ProductShape& shape) override {
    return device_.FastestProductSeconds(shape);
  }
  void SumSquares(const View& x, const View& to) override;

 private:
  enum Kind {
    kEmbeddingForward,
    kNormForward,
    kAttentionForward,
    kForwardProducts,
    kCrossEntropy,
    kInputProducts,
    kWeightProducts,
    kBiasGradients,
    kNormBackward,
    kAttentionBackward,
    kEmbeddingBackward,
    kGradientNorm,
    kAdamW,
    kCopies,
    kKinds,
  };
  struct Time {
    int64_t calls = 0;
    double seconds = 0;
  };

  template <class F>
  void Timed(Kind kind, F&& operation);

  Device& device_;
  bool keeping_ = false;
  std::array<Time, kKinds> times_{};
};

}  // namespace normlab
