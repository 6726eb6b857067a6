#pragma once
// A GPT that trains: forward is a flat list of device operations per block, backward the same list reversed.
// Everything it needs is planned at construction from (config, micro-batch, window); a step allocates
// nothing. It holds no data of its own beyond device memory, and several models may live in one process.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "normlab/kernels/arena.h"
#include "normlab/kernels/device.h"
#include "normlab/model/config.h"
#include "normlab/model/parameters.h"

namespace normlab {

struct GptShape {
  int64_t micro_batch = 1;  // sequences at a time (B)
  int64_t window = 1;       // tokens of a sequence (T), at most context_length
  // How activations are stored, as far as the device has these types (Device::StorageType): what the matrix
  // products read, and the residual stream with its gradient.
  DType operands = DType::kF32, residual = DType::kF32;
  // Of each block only the stream that enters it is kept; backward computes the rest again, with the same
  // bits, into memory that all blocks share (Chen et al. 2016, arXiv 1604.06174).
  bool recompute = false;
};

class Gpt {
 public:
  // The device outlives the model. Throws Error where the norm asked for cannot run there.
  Gpt(Device& device, const GptConfig& config, double init, const GptShape& shape);

  const GptConfig& config() const { return config_; }
  const GptShape& shape() const { return shape_; }
  const ParameterList& parameters() const { return parameters_; }
  NormImplementation norm_implementation() const { return norm_implementation_; }

  void Initialize(uint64_t seed);

  // Flat memory of the device: weights and gradients, laid out as parameters() says.
  const View& weights() const { return weights_; }
  const View& gradients() const { return gradients_; }
  // What the products read of the weights where that is another type, the elements of weights() from
  // operand_begin() on; empty where they read the weights themselves. An update of the weights writes both,
  // or calls RefreshOperands() afterwards.
  const View& operand_weights() const { return operand_weights_; }
  int64_t operand_begin() const { return operand_begin_; }
  void RefreshOperands();
  View Weight(std::string_view name) const { return parameters_.Of(name, weights_); }
  View Gradient(std::string_view name) const { return parameters_.Of(name, gradients_); }

  // Losses in nats of each of the B * T targets, 0 where the target is -1. Inputs and targets are [B, T].
  void Losses(std::span<const int32_t> inputs, std::span<const int32_t> targets, std::span<double> losses);

  // The same, and the gradients of gradient_scale * (sum of losses): written, or added where `accumulate`.
  void LossesAndGradients(std::span<const int32_t> inputs, std::span<const int32_t> targets,
                          double gradient_scale, bool accumulate, std::span<double> losses);

  // What each norm saw in the last pass, in forward order. The next pass writes that memory anew. Empty where
  // activations are computed again: the blocks have shared their memory.
  struct NormActivations {
    std::string site;  // "trf_blocks.0.norm1", "final_norm": its tensors without their last part
    NormSpec spec;
    View x, y;   // [R, C]: what is normalized, and the result; one memory where the norm is the identity
    View alpha;  // absent where the norm has none
  };
  std::vector<NormActivations> Norms() const;

  // The matrix products of one LossesAndGradients, for the bound on its time. Attention appears as the T x T
  // products of one head; `times` counts only the part that causality leaves.
  struct Product {
    ProductShape shape;
    double times = 1;
  };
  std::vector<Product> Products() const;

  // Bytes of activations that backward reads: written once, read once. Those that it computes again count
  // too.
  size_t saved_bytes() const { return saved_bytes_; }
  size_t operand_weight_bytes() const { return operand_arena_.bytes(); }
  size_t arena_bytes() const {
    return weight_arena_.bytes() + gradient_arena_.bytes() + operand_arena_.bytes() +
           activation_arena_.bytes();
  }

 private:
  struct NormSite {
    std::string name;
    NormSpec spec;
    View weight, bias, alpha;  // absent where the norm has none
    View dweight, dbias, dalpha;
    View x;      // what is normalized; kept for backward
    View y;      // the result; x itself for the identity
    View saved;  // what the implementation keeps for backward
  };

  struct Linear {
    View weight;  // as the products read it
    View bias, dweight, dbias;
  };

  struct Block {
    View input;  // the residual stream that enters; in pre-norm with the branch before it added
    NormSite norm1, norm2;
    Linear qkv, proj, up, down;
    View qkv_out;              // [R, 3C]
    View q, k, v;              // [B, T, H, D], thirds of qkv_out
    View lse;                  // [B, H, T]
    View attended;             // [R, C]
    View attention_in, ff_in;  // what qkv and up read: the norm's result, or the stream as an operand
    View z, activated;         // [R, 4C]: before and after GELU
  };

  View Operand(std::string_view name) const;
  void PlanActivations(Arena::Planner& plan);
  void PlanGradients(Arena::Planner& plan);
  NormSite MakeNormSite(const std::string& name, NormKind kind) const;
  Linear MakeLinear(const std::string& weight, const std::string& bias) const;
  View Heads(const View& matrix, int64_t first_column) const;

  void Forward(std::span<const int32_t> inputs);
  void ForwardAttention(const Block& block);
  void ForwardHidden(const Block& block);
  void ForwardOutput(const Block& block);
  void RecomputeBlock(const Block& block);
  void Backward(bool accumulate);
  // Head and cross-entropy by chunks of rows; with gradients when `gradient_scale` is given.
  void Head(std::span<const int32_t> targets, std::optional<double> gradient_scale, bool accumulate,
            std::span<double> losses);

  void ApplyNorm(const NormSite& site, const View& stream, const View& branch);
  void ApplyNormBackward(const NormSite& site, const View& dy, const View& dx, const View& dx_low,
                         bool accumulate_dx, bool accumulate);
  void NarrowStream(const View& stream, const View& operand);
  void LinearBackward(const Linear& linear, const View& x, const View& dy, bool accumulate);

  Device& device_;
  GptConfig config_;
  GptShape shape_;
  bool pre_;
  DType operand_type_, stream_type_;
  ParameterList parameters_;
  NormImplementation norm_implementation_;
  Arena weight_arena_, gradient_arena_, operand_arena_, activation_arena_;

  View weights_, gradients_, operand_weights_;
  int64_t operand_begin_ = 0;
  View token_, position_, dtoken_, dposition_;
  Linear head_;
  std::vector<Block> blocks_;
  NormSite final_;

  // Activations.
  View ids_, targets_;      // [B, T], [R]
  View embedded_;           // [R, C]
  View branch_;             // [R, C]: output of the last sublayer, not yet added
  View hidden_;             // [R, C]: what the head reads
  View logits_, losses_;    // [chunk, V], [R]
  View dhidden_, dstream_;  // [R, C]
  View dstream_operand_;    // [R, C]: dstream as the products read it; itself where the types are one
  View dbranch_in_;         // [R, C]: gradient at a sublayer's input
  View dattended_;          // [R, C]
  View dqkv_, dz_;          // [R, 3C], [R, 4C]
  size_t saved_bytes_ = 0;
};

}  // namespace normlab
