#include "normlab/kernels/cpu/planning_device.h"

#include <algorithm>

#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/kernels/cpu/ops.h"

namespace normlab {
namespace {

class CpuPlanningDevice final : public PlanningDevice {
 public:
  explicit CpuPlanningDevice(const CpuOptions& options)
      : cpu_(MakeCpuDevice(options)), context_(options.threads) {}

  std::string_view name() const override { return cpu_->name(); }
  DType compute_dtype() const override { return cpu_->compute_dtype(); }
  DType StorageType(DType wanted) const override { return cpu_->StorageType(wanted); }
  int threads() const override { return cpu_->threads(); }

  void* Allocate(size_t bytes) override {
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
    return reinterpret_cast<void*>(uintptr_t{64});
  }
  void Free(void*, size_t bytes) override { allocated_ -= bytes; }
  size_t allocated_bytes() const override { return allocated_ + scratch_; }
  size_t peak_bytes() const override { return peak_ + scratch_; }
  size_t scratch_bytes() const override { return scratch_; }
  size_t timing_bytes() const override { return timing_; }

  void Upload(std::span<const double>, const View&) override {}
  void UploadIds(std::span<const int32_t>, const View&) override {}
  void ReadBack(const View&, std::span<double> values) override { std::ranges::fill(values, 0.0); }
  void Fill(const View&, double) override {}
  void Copy(const View&, const View&) override {}

  void MatMul(const MatMulArgs& args) override { TakeScratch(cpu::MatMulFloats(context_, args)); }
  void BiasGradient(const View& dy, const View&, bool) override {
    TakeScratch(cpu::BiasGradientFloats(dy.rows(), dy.cols()));
  }
  void NormForward(const NormForwardArgs& args) override {
    TakeScratch(cpu::ResolveNorm(args.spec, args.x.cols()).forward_floats(args, threads()));
  }
  void NormBackward(const NormBackwardArgs& args) override {
    TakeScratch(cpu::ResolveNorm(args.spec, args.dy.cols()).backward_floats(args, threads()));
  }
  int64_t NormSavedElements(const NormSpec& spec, int64_t rows, int64_t cols) const override {
    return cpu_->NormSavedElements(spec, rows, cols);
  }
  NormImplementation ResolveNorm(const NormSpec& spec, int64_t cols) const override {
    return cpu_->ResolveNorm(spec, cols);
  }
  std::vector<NormImplementationStatus> NormImplementations(const NormSpec& spec,
                                                            int64_t cols) const override {
    return cpu_->NormImplementations(spec, cols);
  }
  void AttentionForward(const AttentionForwardArgs& args) override {
    TakeScratch(cpu::AttentionForwardFloats(context_, args));
  }
  void AttentionBackward(const AttentionBackwardArgs& args) override {
    TakeScratch(cpu::AttentionBackwardFloats(context_, args));
  }
  void EmbeddingForward(const EmbeddingForwardArgs&) override {}
  void EmbeddingBackward(const EmbeddingBackwardArgs&) override {}
  void CrossEntropy(const CrossEntropyArgs&) override {}
  void AdamW(const AdamWArgs&) override {}
  void SumSquares(const View&, const View&) override {}

  // Both operands, the second once more in packed form, and the product.
  std::optional<double> FastestProductSeconds(const ProductShape& shape) override {
    const int64_t elements = shape.m * shape.k + 2 * shape.k * shape.n + shape.m * shape.n;
    const DType type = cpu::HasNativeBf16Products() ? shape.operands : DType::kF32;
    timing_ = std::max(timing_, static_cast<size_t>(elements) * SizeOf(type));
    return 0.0;
  }

 private:
  void TakeScratch(int64_t floats) {
    scratch_ = std::max(scratch_, static_cast<size_t>(floats) * sizeof(float));
  }

  std::unique_ptr<Device> cpu_;
  cpu::CpuContext context_;  // describes products; never runs one
  size_t allocated_ = 0, peak_ = 0, scratch_ = 0, timing_ = 0;
};

}  // namespace

std::unique_ptr<PlanningDevice> MakeCpuPlanningDevice(const CpuOptions& options) {
  return std::make_unique<CpuPlanningDevice>(options);
}

}  // namespace normlab
