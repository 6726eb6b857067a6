#include "normlab/kernels/cpu/cpu_device.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "normlab/base/bfloat16.h"
#include "normlab/base/float16.h"
#include "normlab/base/isa.h"
#include "normlab/base/memory.h"
#include "normlab/kernels/check_args.h"
#include "normlab/kernels/cpu/cpu_context.h"
#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/kernels/cpu/onednn.h"
#include "normlab/kernels/cpu/ops.h"

namespace normlab {
namespace {

// Calls f(flat index in row-major order, offset in elements) for every element.
template <class F>
void ForEachElement(const View& view, F&& f) {
  std::array<int64_t, View::kMaxRank> index{};
  const int64_t count = view.elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank; ++axis) offset += index[axis] * view.strides[axis];
    f(i, offset);
    for (int axis = view.rank - 1; axis >= 0 && ++index[axis] == view.shape[axis]; --axis) index[axis] = 0;
  }
}

// Calls f(element, index) for all of a dense fp32 view, which may be millions; whether it is one. Not through
// ParallelFor: that would make 0 of denormals, and these are copies.
template <class F>
bool ForDenseFloats(const View& view, const F& f) {
  if (view.dtype != DType::kF32 || !view.IsDense()) return false;
  float* const data = view.as<float>();
  const int64_t count = view.elements();
  for (int64_t i = 0; i < count; ++i) f(data + i, i);
  return true;
}

double Load(const View& view, int64_t offset) {
  switch (view.dtype) {
    case DType::kF32:
      return static_cast<const float*>(view.data)[offset];
    case DType::kF64:
      return static_cast<const double*>(view.data)[offset];
    case DType::kI32:
      return static_cast<const int32_t*>(view.data)[offset];
    case DType::kBF16:
      return static_cast<const BFloat16*>(view.data)[offset].ToFloat();
    case DType::kF16:
      return static_cast<const Float16*>(view.data)[offset].ToFloat();
  }
  NL_CHECK(!"a dtype that the CPU device cannot read");
  return 0;
}

void Store(const View& view, int64_t offset, double value) {
  switch (view.dtype) {
    case DType::kF32:
      static_cast<float*>(view.data)[offset] = static_cast<float>(value);
      return;
    case DType::kF64:
      static_cast<double*>(view.data)[offset] = value;
      return;
    case DType::kI32:
      static_cast<int32_t*>(view.data)[offset] = static_cast<int32_t>(value);
      return;
    case DType::kBF16:
      static_cast<BFloat16*>(view.data)[offset] = BFloat16::FromFloat(static_cast<float>(value));
      return;
    case DType::kF16:
      static_cast<Float16*>(view.data)[offset] = Float16::FromFloat(static_cast<float>(value));
      return;
  }
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options) : context_(options.threads) {
    if (options.threads < 1) Fail("threads is {}; it must be at least 1", options.threads);
  }

  std::string_view name() const override { return "cpu"; }
  DType compute_dtype() const override { return DType::kF32; }
  DType StorageType(DType wanted) const override { return wanted; }
  int threads() const override { return context_.threads(); }

  void* Allocate(size_t bytes) override {
    allocations_.emplace_back(bytes);
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
    return allocations_.back().data();
  }
  void Free(void* data, size_t bytes) override {
    const auto it = std::find_if(allocations_.begin(), allocations_.end(),
                                 [&](const AlignedMemory& memory) { return memory.data() == data; });
    NL_CHECK(it != allocations_.end());
    allocations_.erase(it);
    allocated_ -= bytes;
  }
  size_t allocated_bytes() const override { return allocated_ + context_.scratch_bytes(); }
  size_t peak_bytes() const override { return peak_ + context_.scratch_bytes(); }

  void Upload(std::span<const double> values, const View& to) override {
    NL_CHECK_EQ(static_cast<int64_t>(values.size()), to.elements());
    if (ForDenseFloats(to, [&](float* element, int64_t i) {
          *element = static_cast<float>(values[static_cast<size_t>(i)]);
        }))
      return;
    ForEachElement(to, [&](int64_t i, int64_t offset) { Store(to, offset, values[static_cast<size_t>(i)]); });
  }
  void UploadIds(std::span<const int32_t> ids, const View& to) override {
    NL_CHECK(to.IsDense() && static_cast<int64_t>(ids.size()) == to.elements());
    std::memcpy(to.as<int32_t>(), ids.data(), ids.size_bytes());
  }
  void ReadBack(const View& from, std::span<double> values) override {
    NL_CHECK_EQ(static_cast<int64_t>(values.size()), from.elements());
    if (ForDenseFloats(from, [&](float* element, int64_t i) {
          values[static_cast<size_t>(i)] = static_cast<double>(*element);
        }))
      return;
    ForEachElement(from,
                   [&](int64_t i, int64_t offset) { values[static_cast<size_t>(i)] = Load(from, offset); });
  }
  void Fill(const View& to, double value) override {
    if (ForDenseFloats(to, [value](float* element, int64_t) { *element = static_cast<float>(value); }))
      return;
    ForEachElement(to, [&](int64_t, int64_t offset) { Store(to, offset, value); });
  }
  void Copy(const View& from, const View& to) override {
    NL_CHECK(from.rank == to.rank && from.shape == to.shape);
    if (from.dtype == to.dtype && from.IsDense() && to.IsDense()) {
      std::memcpy(to.data, from.data, to.bytes());
      return;
    }
    if (from.dtype == DType::kF32 && to.dtype == DType::kBF16 && from.IsDense() && to.IsDense()) {
      cpu::NarrowFlat(context_, from, to);
      return;
    }
    std::vector<double> values(static_cast<size_t>(from.elements()));
    ReadBack(from, values);
    Upload(values, to);
  }

  void MatMul(const MatMulArgs& args) override {
    CheckMatMul(args);
    cpu::MatMul(context_, args);
  }
  void BiasGradient(const View& dy, const View& dbias, bool accumulate) override {
    CheckBiasGradient(dy, dbias);
    cpu::BiasGradient(context_, dy, dbias, accumulate);
  }
  void NormForward(const NormForwardArgs& args) override {
    CheckNormForward(args);
    const cpu::NormImplementationEntry& norm = cpu::ResolveNorm(args.spec, args.x.cols());
    NL_CHECK_LE(norm.saved_elements(args.spec, args.x.rows(), args.x.cols()), args.saved.elements());
    norm.forward(context_, args);
  }
  void NormBackward(const NormBackwardArgs& args) override {
    CheckNormBackward(args);
    const cpu::NormImplementationEntry& norm = cpu::ResolveNorm(args.spec, args.dy.cols());
    NL_CHECK_LE(norm.saved_elements(args.spec, args.dy.rows(), args.dy.cols()), args.saved.elements());
    norm.backward(context_, args);
  }
  int64_t NormSavedElements(const NormSpec& spec, int64_t rows, int64_t cols) const override {
    return cpu::ResolveNorm(spec, cols).saved_elements(spec, rows, cols);
  }
  NormImplementation ResolveNorm(const NormSpec& spec, int64_t cols) const override {
    return cpu::ResolveNorm(spec, cols).implementation;
  }
  std::vector<NormImplementationStatus> NormImplementations(const NormSpec& spec,
                                                            int64_t cols) const override {
    std::vector<NormImplementationStatus> list;
    for (const cpu::NormImplementationEntry* entry : cpu::NormImplementationOrder())
      list.push_back({.implementation = entry->implementation,
                      .name = std::string(Name(entry->implementation)),
                      .refusal = entry->refuses(spec, cols)});
    return list;
  }
  void AttentionForward(const AttentionForwardArgs& args) override {
    CheckAttentionForward(args);
    cpu::AttentionForward(context_, args);
  }
  void AttentionBackward(const AttentionBackwardArgs& args) override {
    CheckAttentionBackward(args);
    cpu::AttentionBackward(context_, args);
  }
  void EmbeddingForward(const EmbeddingForwardArgs& args) override {
    CheckEmbeddingForward(args);
    cpu::EmbeddingForward(context_, args);
  }
  void EmbeddingBackward(const EmbeddingBackwardArgs& args) override {
    CheckEmbeddingBackward(args);
    cpu::EmbeddingBackward(context_, args);
  }
  void CrossEntropy(const CrossEntropyArgs& args) override {
    CheckCrossEntropy(args);
    cpu::CrossEntropy(context_, args);
  }
  void AdamW(const AdamWArgs& args) override {
    CheckAdamW(args);
    cpu::AdamW(context_, args);
  }
  std::optional<double> FastestProductSeconds(const ProductShape& wanted) override {
    ProductShape shape = wanted;
    if (!cpu::HasNativeBf16Products()) shape.operands = DType::kF32;
    if (shape.one_of_many) return cpu::FastestProductSeconds(shape, 1) / context_.threads();
    return cpu::FastestProductSeconds(shape, context_.threads());
  }
  void SumSquares(const View& x, const View& to) override {
    NL_CHECK(x.IsDense() && to.dtype == DType::kF64);
    *to.as<double>() = cpu::SumSquares(context_, x);
  }

 private:
  cpu::CpuContext context_;
  std::vector<AlignedMemory> allocations_;
  size_t allocated_ = 0, peak_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

std::optional<NormImplementation> ForcedCpuNorm() {
  const NormImplementation forced = cpu::ForcedImplementation();
  return forced == NormImplementation::kFastest ? std::nullopt : std::optional(forced);
}

std::string CpuBf16Products() {
  switch (cpu::NativeBf16()) {
    case cpu::Bf16Instructions::kAmx:
      return "AMX";
    case cpu::Bf16Instructions::kAvx512Bf16:
      return "AVX-512-BF16";
    case cpu::Bf16Instructions::kNone:
      break;
  }
  return "emulated";
}

std::string CpuLibraryVersion() { return cpu::OneDnnVersion(); }

bool LimitCpuIsa(std::string_view isa) {
  LimitIsa(isa);
  return isa.empty() || cpu::LimitOneDnnIsa(isa);
}

}  // namespace normlab
