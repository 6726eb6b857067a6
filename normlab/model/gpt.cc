#include "normlab/model/gpt.h"

#include <algorithm>
#include <optional>

#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {

using Epilogue = MatMulArgs::Epilogue;

// Rows of logits held at a time: at most 2^25 logits (128 MiB in fp32), and never all rows.
int64_t HeadChunk(int64_t rows, int64_t vocab) {
  const int64_t by_size = std::max<int64_t>(1, (int64_t{1} << 25) / vocab);
  const int64_t chunks = std::max<int64_t>((rows + by_size - 1) / by_size, std::min<int64_t>(2, rows));
  return (rows + chunks - 1) / chunks;
}

}  // namespace

Gpt::Gpt(Device& device, const GptConfig& config, double init, const GptShape& shape)
    : device_(device),
      config_(config),
      shape_(shape),
      pre_(config.position() == NormPosition::kPre),
      operand_type_(device.StorageType(shape.operands)),
      stream_type_(device.StorageType(shape.residual)),
      parameters_(config, init),
      norm_implementation_(device.ResolveNorm(config.Norm(), config.emb_dim)) {
  config.Validate();
  NL_CHECK(shape.micro_batch >= 1 && shape.window >= 1 && shape.window <= config.context_length);
  NL_CHECK(stream_type_ == operand_type_ || stream_type_ == device.compute_dtype());
  const DType dtype = device.compute_dtype();
  const int64_t flat = parameters_.flat_elements();
  weight_arena_ = Arena(device, [&](Arena::Planner& plan) { weights_ = plan.Take({flat}, dtype); });
  gradient_arena_ = Arena(device, [&](Arena::Planner& plan) { gradients_ = plan.Take({flat}, dtype); });
  device.Fill(weights_, 0);
  device.Fill(gradients_, 0);
  if (operand_type_ != dtype) {
    // The embedding tables come first, and are read as they are unless the head shares one.
    if (!config.tie_weights) operand_begin_ = parameters_.Find("trf_blocks.0.att.W_query.weight")->offset;
    const int64_t count = parameters_.flat_decayed() - operand_begin_;
    operand_arena_ =
        Arena(device, [&](Arena::Planner& plan) { operand_weights_ = plan.Take({count}, operand_type_); });
    RefreshOperands();
  }

  token_ = Weight("tok_emb.weight");
  position_ = Weight("pos_emb.weight");
  dtoken_ = Gradient("tok_emb.weight");
  dposition_ = Gradient("pos_emb.weight");
  head_ = config.tie_weights ? MakeLinear("tok_emb.weight", "") : MakeLinear("out_head.weight", "");
  const NormKind kind = config.Norm().kind;
  const int64_t C = config.emb_dim;
  for (int64_t i = 0; i < config.n_layers; ++i) {
    const std::string name = fmt::format("trf_blocks.{}.", i);
    Block block;
    block.norm1 = MakeNormSite(name + "norm1", kind);
    block.norm2 = MakeNormSite(name + "norm2", kind);
    block.qkv = MakeLinear(name + "att.W_query.weight", name + "att.W_query.bias");
    // Query, key and value are adjacent: one [3C, C] matrix.
    for (View* view : {&block.qkv.weight, &block.qkv.dweight}) view->shape[0] = 3 * C;
    for (View* view : {&block.qkv.bias, &block.qkv.dbias})
      if (!view->empty()) view->shape[0] = 3 * C;
    block.proj = MakeLinear(name + "att.out_proj.weight", name + "att.out_proj.bias");
    block.up = MakeLinear(name + "ff.layers.0.weight", name + "ff.layers.0.bias");
    block.down = MakeLinear(name + "ff.layers.2.weight", name + "ff.layers.2.bias");
    blocks_.push_back(block);
  }
  final_ = MakeNormSite("final_norm", config.final_norm ? kind : KindOf<NoNorm>());
  activation_arena_ = Arena(device, [&](Arena::Planner& plan) { PlanActivations(plan); });
}

Gpt::NormSite Gpt::MakeNormSite(const std::string& name, NormKind kind) const {
  NormSite site;
  site.name = name;
  site.spec = config_.Norm();
  site.spec.kind = kind;
  site.weight = Weight(name + ".scale");
  site.bias = Weight(name + ".shift");
  site.alpha = Weight(name + ".alpha");
  site.dweight = Gradient(name + ".scale");
  site.dbias = Gradient(name + ".shift");
  site.dalpha = Gradient(name + ".alpha");
  return site;
}

Gpt::Linear Gpt::MakeLinear(const std::string& weight, const std::string& bias) const {
  return {
      .weight = Operand(weight), .bias = Weight(bias), .dweight = Gradient(weight), .dbias = Gradient(bias)};
}

// A matrix as the products read it.
View Gpt::Operand(std::string_view name) const {
  if (operand_weights_.empty()) return Weight(name);
  const Parameter& parameter = *parameters_.Find(name);
  const int64_t begin = parameter.offset - operand_begin_;
  return operand_weights_.Slice(begin, begin + parameter.elements())
      .Reshaped({parameter.shape[0], parameter.shape[1]});
}

void Gpt::RefreshOperands() {
  if (operand_weights_.empty()) return;
  device_.Copy(weights_.Slice(operand_begin_, operand_begin_ + operand_weights_.elements()),
               operand_weights_);
}

View Gpt::Heads(const View& matrix, int64_t first_column) const {
  const int64_t D = config_.head_dim();
  View view = matrix.Columns(first_column, first_column + config_.emb_dim);
  view.rank = 4;
  view.shape = {shape_.micro_batch, shape_.window, config_.n_heads, D};
  view.strides = {shape_.window * matrix.row_stride(), matrix.row_stride(), D, 1};
  return view;
}

void Gpt::PlanActivations(Arena::Planner& plan) {
  const int64_t B = shape_.micro_batch, T = shape_.window, R = B * T;
  const int64_t C = config_.emb_dim, F = config_.feed_forward_dim(), H = config_.n_heads;
  const DType statistics = device_.compute_dtype();

  ids_ = plan.Take({B, T}, DType::kI32);
  targets_ = plan.Take({R}, DType::kI32);

  saved_bytes_ = 0;
  const auto keep = [&](View view) {
    saved_bytes_ += view.bytes();
    return view;
  };
  const auto plan_result = [&](NormSite& site, DType type) {
    const bool identity = InfoOf(site.spec.kind).identity;
    site.y = identity && type == site.x.dtype ? site.x : keep(plan.Take({R, C}, type));
  };
  const auto plan_saved = [&](NormSite& site) {
    if (!InfoOf(site.spec.kind).identity)
      site.saved = keep(plan.Take({device_.NormSavedElements(site.spec, R, C)}, statistics));
  };
  // The stream as the products read it: in post-norm nothing else writes that.
  const auto plan_operand = [&](const View& stream) {
    return operand_type_ == stream_type_ ? stream : keep(plan.Take({R, C}, operand_type_));
  };

  // The stream between the blocks. In post-norm the last norm leaves it to the head.
  View stream = embedded_ = keep(plan.Take({R, C}, stream_type_));
  for (Block& block : blocks_) {
    block.input = stream;
    if (!pre_ || &block != &blocks_.back()) stream = keep(plan.Take({R, C}, stream_type_));
    if (!pre_) block.norm2.y = stream;
  }
  const size_t shared = plan.mark();
  for (Block& block : blocks_) {
    if (shape_.recompute) plan.ReturnTo(shared);
    if (pre_) {
      block.norm1.x = block.input;
      plan_result(block.norm1, operand_type_);
      plan_saved(block.norm1);
      block.attention_in = block.norm1.y;
    } else {
      block.attention_in = plan_operand(block.input);
    }
    block.qkv_out = keep(plan.Take({R, 3 * C}, operand_type_));
    block.q = Heads(block.qkv_out, 0);
    block.k = Heads(block.qkv_out, C);
    block.v = Heads(block.qkv_out, 2 * C);
    block.lse = keep(plan.Take({B, H, T}, statistics));
    block.attended = keep(plan.Take({R, C}, operand_type_));
    NormSite& middle = pre_ ? block.norm2 : block.norm1;
    middle.x = keep(plan.Take({R, C}, stream_type_));
    plan_result(middle, pre_ ? operand_type_ : stream_type_);
    plan_saved(middle);
    block.ff_in = pre_ ? middle.y : plan_operand(middle.y);
    block.z = keep(plan.Take({R, F}, operand_type_));
    block.activated = keep(plan.Take({R, F}, operand_type_));
    if (!pre_) {
      const bool identity = InfoOf(block.norm2.spec.kind).identity;
      block.norm2.x = identity ? block.norm2.y : keep(plan.Take({R, C}, stream_type_));
      plan_saved(block.norm2);
    }
  }
  final_.x = pre_ ? keep(plan.Take({R, C}, stream_type_)) : stream;
  plan_result(final_, operand_type_);
  plan_saved(final_);
  hidden_ = final_.y;
  // A norm that adds a branch to an fp32 stream takes it as its result is wanted.
  branch_ = plan.Take({R, C}, pre_ ? operand_type_ : stream_type_);
  PlanGradients(plan);
}

// What backward needs beside the activations that it reads.
void Gpt::PlanGradients(Arena::Planner& plan) {
  const int64_t R = shape_.micro_batch * shape_.window, C = config_.emb_dim, F = config_.feed_forward_dim(),
                V = config_.vocab_size;
  logits_ = plan.Take({HeadChunk(R, V), V}, operand_type_);
  losses_ = plan.Take({R}, device_.compute_dtype());
  dhidden_ = plan.Take({R, C}, operand_type_);
  dstream_ = plan.Take({R, C}, stream_type_);
  dstream_operand_ = operand_type_ == stream_type_ ? dstream_ : plan.Take({R, C}, operand_type_);
  dbranch_in_ = plan.Take({R, C}, operand_type_);
  dattended_ = plan.Take({R, C}, operand_type_);
  dqkv_ = plan.Take({R, 3 * C}, operand_type_);
  dz_ = plan.Take({R, F}, operand_type_);
}

void Gpt::Initialize(uint64_t seed) {
  for (const Parameter& parameter : parameters_.all())
    device_.Upload(parameters_.InitialValues(parameter, seed, device_.threads()),
                   weights_.Slice(parameter.offset, parameter.offset + parameter.elements()));
  RefreshOperands();
}

// ---- Forward, from the ids to what the head reads.

void Gpt::ApplyNorm(const NormSite& site, const View& stream, const View& branch) {
  if (branch.empty()) {
    if (site.y.data == site.x.data) return;  // an identity
    device_.NormForward({.spec = site.spec,
                         .x = stream,
                         .weight = site.weight,
                         .bias = site.bias,
                         .alpha = site.alpha,
                         .y = site.y,
                         .saved = site.saved});
    return;
  }
  device_.NormForward({.spec = site.spec,
                       .x = branch,
                       .residual = stream,
                       .weight = site.weight,
                       .bias = site.bias,
                       .alpha = site.alpha,
                       .sum = site.x,
                       .y = site.y,
                       .saved = site.saved});
}

void Gpt::NarrowStream(const View& stream, const View& operand) {
  if (operand.data != stream.data) device_.Copy(stream, operand);
}

// From the block's normed (pre-norm) or plain input to its middle norm: attention, and its branch added.
void Gpt::ForwardAttention(const Block& b) {
  if (!pre_) NarrowStream(b.input, b.attention_in);
  device_.MatMul({.a = b.attention_in,
                  .b = b.qkv.weight.Transposed(),
                  .epilogue = b.qkv.bias.empty() ? Epilogue::kNone : Epilogue::kBias,
                  .bias = b.qkv.bias,
                  .c = b.qkv_out});
  device_.AttentionForward({.q = b.q, .k = b.k, .v = b.v, .o = Heads(b.attended, 0), .lse = b.lse});
  device_.MatMul({.a = b.attended,
                  .b = b.proj.weight.Transposed(),
                  .epilogue = Epilogue::kBias,
                  .bias = b.proj.bias,
                  .c = branch_});
  ApplyNorm(pre_ ? b.norm2 : b.norm1, b.input, branch_);
}

// From there to what the second product of the feed-forward reads.
void Gpt::ForwardHidden(const Block& b) {
  if (!pre_) NarrowStream(b.norm1.y, b.ff_in);
  device_.MatMul({.a = b.ff_in,
                  .b = b.up.weight.Transposed(),
                  .epilogue = Epilogue::kBiasGelu,
                  .bias = b.up.bias,
                  .c = b.z,
                  .gelu = b.activated});
}

// To the end: the branch, and in post-norm the stream that leaves.
void Gpt::ForwardOutput(const Block& b) {
  device_.MatMul({.a = b.activated,
                  .b = b.down.weight.Transposed(),
                  .epilogue = Epilogue::kBias,
                  .bias = b.down.bias,
                  .c = branch_});
  if (!pre_) ApplyNorm(b.norm2, b.norm1.y, branch_);
}

void Gpt::Forward(std::span<const int32_t> inputs) {
  device_.UploadIds(inputs, ids_);
  device_.EmbeddingForward({.ids = ids_, .token = token_, .position = position_, .h = embedded_});

  // In pre-norm each block leaves a branch that the next norm adds to the stream.
  View stream = embedded_, branch;
  for (const Block& b : blocks_) {
    if (pre_) ApplyNorm(b.norm1, stream, branch);
    ForwardAttention(b);
    ForwardHidden(b);
    ForwardOutput(b);
    stream = pre_ ? b.norm2.x : b.norm2.y;
    if (pre_) branch = branch_;
  }
  ApplyNorm(final_, stream, branch);
}

// What backward reads of a block, from its input alone.
void Gpt::RecomputeBlock(const Block& b) {
  if (pre_) ApplyNorm(b.norm1, b.input, {});
  ForwardAttention(b);
  ForwardHidden(b);
  if (!pre_) ForwardOutput(b);  // its norm keeps its own input
}

// ---- The head and the loss.

void Gpt::Head(std::span<const int32_t> targets, std::optional<double> gradient_scale, bool accumulate,
               std::span<double> losses) {
  device_.UploadIds(targets, targets_);
  const int64_t R = hidden_.rows(), chunk = logits_.rows();
  for (int64_t begin = 0; begin < R; begin += chunk) {
    const int64_t end = std::min(R, begin + chunk);
    const View hidden = hidden_.Slice(begin, end), logits = logits_.Slice(0, end - begin);
    device_.MatMul({.a = hidden, .b = head_.weight.Transposed(), .c = logits});
    device_.CrossEntropy({.logits = logits,
                          .targets = targets_.Slice(begin, end),
                          .scale = gradient_scale.value_or(0),
                          .losses = losses_.Slice(begin, end),
                          .dlogits = gradient_scale ? logits : View{}});
    if (!gradient_scale) continue;
    device_.MatMul({.a = logits, .b = head_.weight, .c = dhidden_.Slice(begin, end)});
    device_.MatMul(
        {.a = logits.Transposed(), .b = hidden, .c = head_.dweight, .accumulate = accumulate || begin > 0});
  }
  device_.ReadBack(losses_, losses);
}

void Gpt::Losses(std::span<const int32_t> inputs, std::span<const int32_t> targets,
                 std::span<double> losses) {
  Forward(inputs);
  Head(targets, std::nullopt, false, losses);
}

void Gpt::LossesAndGradients(std::span<const int32_t> inputs, std::span<const int32_t> targets,
                             double gradient_scale, bool accumulate, std::span<double> losses) {
  Forward(inputs);
  Head(targets, gradient_scale, accumulate, losses);
  Backward(accumulate);
}

// ---- Backward: the list of Forward, reversed.

// With dx_low, also what the next products read of dx; dx itself where the types are one.
void Gpt::ApplyNormBackward(const NormSite& site, const View& dy, const View& dx, const View& dx_low,
                            bool accumulate_dx, bool accumulate) {
  device_.NormBackward({.spec = site.spec,
                        .x = site.x,
                        .dy = dy,
                        .weight = site.weight,
                        .alpha = site.alpha,
                        .saved = site.saved,
                        .dx = dx,
                        .dx_low = dx_low.data == dx.data ? View{} : dx_low,
                        .dweight = site.dweight,
                        .dbias = site.dbias,
                        .dalpha = site.dalpha,
                        .accumulate_dx = accumulate_dx,
                        .accumulate_dparams = accumulate});
}

// Gradients of weight and bias of y = x W^T + b.
void Gpt::LinearBackward(const Linear& linear, const View& x, const View& dy, bool accumulate) {
  device_.MatMul({.a = dy.Transposed(), .b = x, .c = linear.dweight, .accumulate = accumulate});
  if (!linear.dbias.empty()) device_.BiasGradient(dy, linear.dbias, accumulate);
}

void Gpt::Backward(bool accumulate) {
  // The gradient at the head's input becomes that of the residual stream. In pre-norm the stream's gradient
  // runs past every sublayer and each norm adds to it; in post-norm it goes through the norms, and each
  // sublayer's input gradient is added to it. The products read it as an operand, which the norms leave
  // behind.
  const bool one = InfoOf(final_.spec.kind).identity && operand_type_ == stream_type_;
  const View dstream = one ? dhidden_ : dstream_;
  const View operand = one ? dhidden_ : dstream_operand_;
  if (!one) ApplyNormBackward(final_, dhidden_, dstream, operand, false, accumulate);

  for (size_t i = blocks_.size(); i-- > 0;) {
    const Block& b = blocks_[i];
    if (shape_.recompute && i + 1 < blocks_.size()) RecomputeBlock(b);  // the last one's are still there
    if (!pre_) ApplyNormBackward(b.norm2, dstream, dstream, operand, false, accumulate);
    LinearBackward(b.down, b.activated, operand, accumulate);
    device_.MatMul(
        {.a = operand, .b = b.down.weight, .epilogue = Epilogue::kGeluBackward, .z = b.z, .c = dz_});
    LinearBackward(b.up, b.ff_in, dz_, accumulate);
    if (pre_) {
      device_.MatMul({.a = dz_, .b = b.up.weight, .c = dbranch_in_});
      ApplyNormBackward(b.norm2, dbranch_in_, dstream, operand, true, accumulate);
    } else {
      device_.MatMul({.a = dz_, .b = b.up.weight, .c = dstream, .accumulate = true});
      ApplyNormBackward(b.norm1, dstream, dstream, operand, false, accumulate);
    }
    LinearBackward(b.proj, b.attended, operand, accumulate);
    device_.MatMul({.a = operand, .b = b.proj.weight, .c = dattended_});
    device_.AttentionBackward({.q = b.q,
                               .k = b.k,
                               .v = b.v,
                               .o = Heads(b.attended, 0),
                               .lse = b.lse,
                               .d_o = Heads(dattended_, 0),
                               .dq = Heads(dqkv_, 0),
                               .dk = Heads(dqkv_, config_.emb_dim),
                               .dv = Heads(dqkv_, 2 * config_.emb_dim)});
    LinearBackward(b.qkv, b.attention_in, dqkv_, accumulate);
    if (pre_) {
      device_.MatMul({.a = dqkv_, .b = b.qkv.weight, .c = dbranch_in_});
      ApplyNormBackward(b.norm1, dbranch_in_, dstream, i == 0 ? View{} : operand, true, accumulate);
    } else {
      device_.MatMul({.a = dqkv_, .b = b.qkv.weight, .c = dstream, .accumulate = true});
    }
  }
  device_.EmbeddingBackward({.ids = ids_,
                             .dh = dstream,
                             .dtoken = dtoken_,
                             .dposition = dposition_,
                             .accumulate_token = accumulate || config_.tie_weights,
                             .accumulate_position = accumulate});
}

std::vector<Gpt::NormActivations> Gpt::Norms() const {
  std::vector<NormActivations> norms;
  if (shape_.recompute) return norms;
  const auto add = [&](const NormSite& site) {
    norms.push_back({.site = site.name, .spec = site.spec, .x = site.x, .y = site.y, .alpha = site.alpha});
  };
  for (const Block& block : blocks_) {
    add(block.norm1);
    add(block.norm2);
  }
  add(final_);
  return norms;
}

std::vector<Gpt::Product> Gpt::Products() const {
  const int64_t B = shape_.micro_batch, T = shape_.window, R = B * T;
  const int64_t C = config_.emb_dim, F = config_.feed_forward_dim(), D = config_.head_dim();
  const double L = static_cast<double>(config_.n_layers);
  std::vector<Product> products;
  const auto linear = [&](int64_t rows, int64_t out, int64_t in, double times) {
    products.push_back({{.m = rows, .n = out, .k = in, .operands = operand_type_}, times});  // forward
    products.push_back({{.m = rows, .n = in, .k = out, .operands = operand_type_}, times});  // gradient of x
    products.push_back({{.m = out, .n = in, .k = rows, .operands = operand_type_}, times});  // gradient of W
  };
  linear(R, 3 * C, C, L);
  linear(R, C, C, L);
  linear(R, F, C, L);
  linear(R, C, F, L);
  const int64_t chunk = logits_.rows();
  linear(chunk, config_.vocab_size, C, static_cast<double>(R) / static_cast<double>(chunk));
  // Scores forward and the gradient of the probabilities; values forward and the gradients of q, k and v.
  // Causality leaves (T + 1) / 2T of each.
  const double heads = L * static_cast<double>(B * config_.n_heads);
  const double causal = static_cast<double>(T + 1) / static_cast<double>(2 * T);
  products.push_back(
      {{.m = T, .n = T, .k = D, .one_of_many = true, .operands = operand_type_}, 2 * heads * causal});
  products.push_back(
      {{.m = T, .n = D, .k = T, .one_of_many = true, .operands = operand_type_}, 4 * heads * causal});
  return products;
}

}  // namespace normlab
