#include "normlab/kernels/reference/reference_device.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "normlab/base/memory.h"
#include "normlab/kernels/check_args.h"
#include "normlab/kernels/reference/host_row.h"
#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {

using reference::At;

double& At(const View& v, int64_t i) { return At<double>(v, i); }
double& At(const View& v, int64_t i, int64_t j) { return At<double>(v, i, j); }
double& At(const View& v, int64_t i, int64_t j, int64_t k) { return At<double>(v, i, j, k); }
double& At(const View& v, int64_t i, int64_t j, int64_t k, int64_t l) { return At<double>(v, i, j, k, l); }

// Calls f(element) with the offset of every element of a view, row-major.
template <class F>
void ForEachOffset(const View& view, F&& f) {
  std::array<int64_t, View::kMaxRank> index{};
  for (int64_t n = view.elements(); n > 0; --n) {
    int64_t offset = 0;
    for (int i = 0; i < view.rank; ++i) offset += index[i] * view.strides[i];
    f(offset);
    for (int i = view.rank - 1; i >= 0 && ++index[i] == view.shape[i]; --i) index[i] = 0;
  }
}

// Gaussian error linear unit, tanh form (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2).
constexpr double kCubic = 0.044715;
double GeluInner(double z) { return std::sqrt(2 / std::numbers::pi) * (z + kCubic * z * z * z); }
double Gelu(double z) { return 0.5 * z * (1 + std::tanh(GeluInner(z))); }
double GeluDerivative(double z) {
  const double t = std::tanh(GeluInner(z));
  const double inner_derivative = std::sqrt(2 / std::numbers::pi) * (1 + 3 * kCubic * z * z);
  return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * inner_derivative;
}

double Dot(const View& a, const View& b, int64_t batch, int64_t head, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t d = 0; d < a.shape[3]; ++d) sum += At(a, batch, i, head, d) * At(b, batch, j, head, d);
  return sum;
}

class ReferenceDevice final : public Device {
 public:
  std::string_view name() const override { return "reference"; }
  DType compute_dtype() const override { return DType::kF64; }
  DType StorageType(DType) const override { return DType::kF64; }

  // ---- Memory: the host's.
  void* Allocate(size_t bytes) override {
    AlignedMemory memory(std::max<size_t>(bytes, 1));
    void* data = memory.data();
    blocks_.push_back(std::move(memory));
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
    return data;
  }
  void Free(void* data, size_t bytes) override {
    if (data == nullptr) return;
    const auto block =
        std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& b) { return b.data() == data; });
    NL_CHECK(block != blocks_.end());
    blocks_.erase(block);
    allocated_ -= bytes;
  }
  size_t allocated_bytes() const override { return allocated_; }
  size_t peak_bytes() const override { return peak_; }

  void Upload(std::span<const double> values, const View& to) override {
    NL_CHECK_EQ(static_cast<int64_t>(values.size()), to.elements());
    size_t i = 0;
    ForEachOffset(to, [&](int64_t offset) { to.as<double>()[offset] = values[i++]; });
  }
  void UploadIds(std::span<const int32_t> ids, const View& to) override {
    NL_CHECK_EQ(static_cast<int64_t>(ids.size()), to.elements());
    NL_CHECK(to.dtype == DType::kI32 && to.IsDense());
    std::copy(ids.begin(), ids.end(), to.as<int32_t>());
  }
  void ReadBack(const View& from, std::span<double> values) override {
    NL_CHECK_EQ(static_cast<int64_t>(values.size()), from.elements());
    size_t i = 0;
    ForEachOffset(from, [&](int64_t offset) { values[i++] = from.as<double>()[offset]; });
  }
  void Fill(const View& to, double value) override {
    ForEachOffset(to, [&](int64_t offset) { to.as<double>()[offset] = value; });
  }
  void Copy(const View& from, const View& to) override {
    CheckCopy(from, to);
    std::vector<double> values(from.elements());
    ReadBack(from, values);
    Upload(values, to);
  }

  // ---- Products.
  void MatMul(const MatMulArgs& args) override {
    CheckMatMul(args);
    using Epilogue = MatMulArgs::Epilogue;
    const int64_t m = args.a.shape[0], k = args.a.shape[1], n = args.b.shape[1];
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double value = 0;
        for (int64_t l = 0; l < k; ++l) value += At(args.a, i, l) * At(args.b, l, j);
        if (!args.bias.empty()) value += At(args.bias, j);
        if (args.epilogue == Epilogue::kBiasGelu) At(args.gelu, i, j) = Gelu(value);
        if (args.epilogue == Epilogue::kGeluBackward) value *= GeluDerivative(At(args.z, i, j));
        double& c = At(args.c, i, j);
        c = (args.accumulate ? c : 0) + value;
      }
    }
  }

  void BiasGradient(const View& dy, const View& dbias, bool accumulate) override {
    CheckBiasGradient(dy, dbias);
    for (int64_t j = 0; j < dy.shape[1]; ++j) {
      double sum = accumulate ? At(dbias, j) : 0;
      for (int64_t i = 0; i < dy.shape[0]; ++i) sum += At(dy, i, j);
      At(dbias, j) = sum;
    }
  }

  // ---- Norms: the bodies of norms/, in float64.
  void NormForward(const NormForwardArgs& args) override {
    CheckNormForward(args);
    NL_CHECK_LE(NormSavedElements(args.spec, args.x.shape[0], args.x.shape[1]), args.saved.elements());
    AllNorms::Visit(args.spec.kind,
                    [&](auto norm) { reference::RunNormForward<decltype(norm), double>(args); });
  }
  void NormBackward(const NormBackwardArgs& args) override {
    CheckNormBackward(args);
    NL_CHECK_LE(NormSavedElements(args.spec, args.dy.shape[0], args.dy.shape[1]), args.saved.elements());
    AllNorms::Visit(args.spec.kind,
                    [&](auto norm) { reference::RunNormBackward<decltype(norm), double>(args); });
  }
  int64_t NormSavedElements(const NormSpec& spec, int64_t rows, int64_t) const override {
    return rows * InfoOf(spec.kind).saved_per_row;
  }
  NormImplementation ResolveNorm(const NormSpec&, int64_t) const override {
    return NormImplementation::kGeneric;
  }
  std::vector<NormImplementationStatus> NormImplementations(const NormSpec&, int64_t) const override {
    return {{NormImplementation::kGeneric, std::string(Name(NormImplementation::kGeneric)), std::nullopt}};
  }

  // ---- Attention, one row of scores at a time.
  void AttentionForward(const AttentionForwardArgs& args) override {
    CheckAttentionForward(args);
    const auto [batches, time, heads, width] = args.q.shape;
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    std::vector<double> score(time);
    for (int64_t b = 0; b < batches; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < time; ++i) {
          for (int64_t j = 0; j <= i; ++j) score[j] = Dot(args.q, args.k, b, h, i, j) * scale;
          const double largest = *std::max_element(score.begin(), score.begin() + i + 1);
          double sum = 0;
          for (int64_t j = 0; j <= i; ++j) sum += std::exp(score[j] - largest);
          At(args.lse, b, h, i) = largest + std::log(sum);
          for (int64_t d = 0; d < width; ++d) {
            double o = 0;
            for (int64_t j = 0; j <= i; ++j) o += std::exp(score[j] - largest) / sum * At(args.v, b, j, h, d);
            At(args.o, b, i, h, d) = o;
          }
        }
      }
    }
  }

  // With p = softmax row i: dv[j] += p[j] do[i];  ds[j] = p[j] (do[i].v[j] - do[i].o[i]), as the derivative
  // of softmax is diag(p) - p p^T and sum_j p[j] do[i].v[j] = do[i].o[i].
  void AttentionBackward(const AttentionBackwardArgs& args) override {
    CheckAttentionBackward(args);
    const auto [batches, time, heads, width] = args.q.shape;
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    Fill(args.dq, 0);
    Fill(args.dk, 0);
    Fill(args.dv, 0);
    for (int64_t b = 0; b < batches; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < time; ++i) {
          const double do_dot_o = Dot(args.d_o, args.o, b, h, i, i);
          for (int64_t j = 0; j <= i; ++j) {
            const double p = std::exp(Dot(args.q, args.k, b, h, i, j) * scale - At(args.lse, b, h, i));
            const double dscore = p * (Dot(args.d_o, args.v, b, h, i, j) - do_dot_o) * scale;
            for (int64_t d = 0; d < width; ++d) {
              At(args.dq, b, i, h, d) += dscore * At(args.k, b, j, h, d);
              At(args.dk, b, j, h, d) += dscore * At(args.q, b, i, h, d);
              At(args.dv, b, j, h, d) += p * At(args.d_o, b, i, h, d);
            }
          }
        }
      }
    }
  }

  // ---- Embeddings and loss.
  void EmbeddingForward(const EmbeddingForwardArgs& args) override {
    CheckEmbeddingForward(args);
    const int64_t time = args.ids.shape[1], vocabulary = args.token.shape[0], width = args.token.shape[1];
    for (int64_t r = 0; r < args.ids.elements(); ++r) {
      const int64_t id = IdAt(args.ids, r, 0, vocabulary);
      for (int64_t c = 0; c < width; ++c)
        At(args.h, r, c) = At(args.token, id, c) + At(args.position, r % time, c);
    }
  }
  void EmbeddingBackward(const EmbeddingBackwardArgs& args) override {
    CheckEmbeddingBackward(args);
    const int64_t time = args.ids.shape[1], vocabulary = args.dtoken.shape[0], width = args.dtoken.shape[1];
    if (!args.accumulate_token) Fill(args.dtoken, 0);
    if (!args.accumulate_position) Fill(args.dposition, 0);
    for (int64_t r = 0; r < args.ids.elements(); ++r) {
      const int64_t id = IdAt(args.ids, r, 0, vocabulary);
      for (int64_t c = 0; c < width; ++c) {
        At(args.dtoken, id, c) += At(args.dh, r, c);
        At(args.dposition, r % time, c) += At(args.dh, r, c);
      }
    }
  }

  void CrossEntropy(const CrossEntropyArgs& args) override {
    CheckCrossEntropy(args);
    const int64_t rows = args.logits.shape[0], vocabulary = args.logits.shape[1];
    std::vector<double> logit(vocabulary);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < vocabulary; ++v) logit[v] = At(args.logits, r, v);
      const int64_t target = IdAt(args.targets, r, -1, vocabulary);
      const double largest = *std::max_element(logit.begin(), logit.end());
      double sum = 0;
      for (const double l : logit) sum += std::exp(l - largest);
      const double lse = largest + std::log(sum);
      At(args.losses, r) = target < 0 ? 0 : lse - logit[target];
      if (args.dlogits.empty()) continue;
      for (int64_t v = 0; v < vocabulary; ++v) {
        const double gradient = std::exp(logit[v] - lse) - (v == target ? 1 : 0);
        At(args.dlogits, r, v) = target < 0 ? 0 : gradient * args.scale;
      }
    }
  }

  // ---- Optimizer.
  void AdamW(const AdamWArgs& args) override {
    CheckAdamW(args);
    const double correction1 = 1 - std::pow(args.beta1, static_cast<double>(args.step));
    const double correction2 = 1 - std::pow(args.beta2, static_cast<double>(args.step));
    for (int64_t i = 0; i < args.weight.elements(); ++i) {
      const double g = At(args.gradient, i) * args.gradient_scale;
      double &w = At(args.weight, i), &m = At(args.m, i), &v = At(args.v, i);
      m = args.beta1 * m + (1 - args.beta1) * g;
      v = args.beta2 * v + (1 - args.beta2) * g * g;
      const double decay = i < args.decayed ? args.weight_decay : 0;
      w -= args.learning_rate * (decay * w + m / correction1 / (std::sqrt(v / correction2) + args.eps));
    }
  }

  void SumSquares(const View& x, const View& to) override {
    CheckSumSquares(x, to);
    // Other devices add in float64 too, so the judge carries what each addition loses (Kahan 1965).
    double sum = 0, lost = 0;
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double term = At(x, i) * At(x, i) - lost, next = sum + term;
      lost = (next - sum) - term;
      sum = next;
    }
    At(to, 0) = sum;
  }

 private:
  // Element r of dense ids, which must lie in [lowest, vocabulary).
  static int64_t IdAt(const View& ids, int64_t r, int64_t lowest, int64_t vocabulary) {
    const int64_t id = ids.as<int32_t>()[r];
    NL_CHECK_LE(lowest, id);
    NL_CHECK_LE(id, vocabulary - 1);
    return id;
  }

  std::vector<AlignedMemory> blocks_;
  size_t allocated_ = 0, peak_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeReferenceDevice() { return std::make_unique<ReferenceDevice>(); }

}  // namespace normlab
