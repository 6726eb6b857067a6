#include "normlab/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "normlab/base/text.h"

namespace normlab {
namespace {

Split CheckedSplit(const TrainConfig& config, const TokenSource& tokens) {
  config.Validate();
  CheckVocabulary(tokens, config.model.vocab_size);
  return SplitTokens(tokens, {.window = config.Window(),
                              .batch = config.batch,
                              .held_out_fraction = config.held_out_fraction,
                              .held_out_windows = config.held_out_windows});
}

double Sum(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

GptShape ShapeOf(const TrainConfig& config) {
  return {.micro_batch = config.MicroBatch(),
          .window = config.Window(),
          .operands = config.OperandType(),
          .residual = config.ResidualType(),
          .recompute = config.recompute};
}

std::string Divergence::ToString() const {
  std::string text = fmt::format("{} became {} at step {}", what, NonFiniteText(value), step + 1);
  if (tensor) text += fmt::format("; first non-finite gradient: {}", *tensor);
  if (activation) text += fmt::format("; first non-finite activation: {}", *activation);
  return text;
}

Trainer::Trainer(Device& device, const TrainConfig& config, std::shared_ptr<const TokenSource> tokens)
    : device_(device),
      config_(config),
      tokens_(std::move(tokens)),
      split_(CheckedSplit(config, *tokens_)),
      sampler_(tokens_, split_, config.batch, config.seed),
      schedule_{.learning_rate = config.learning_rate,
                .min_learning_rate = config.MinLearningRate(),
                .warmup_steps = config.WarmupSteps(),
                .steps = config.steps},
      model_(device, config.model, config.init, ShapeOf(config)) {
  const int64_t flat = model_.parameters().flat_elements();
  moments_arena_ = Arena(device, [&](Arena::Planner& plan) {
    m_ = plan.Take({flat}, device.compute_dtype());
    v_ = plan.Take({flat}, device.compute_dtype());
    norm_ = plan.Take({1}, DType::kF64);
  });
  device.Fill(m_, 0);
  device.Fill(v_, 0);
  model_.Initialize(config.seed);
  const size_t tokens_at_a_time = static_cast<size_t>(config.MicroBatch() * config.Window());
  inputs_.resize(tokens_at_a_time);
  targets_.resize(tokens_at_a_time);
  losses_.resize(tokens_at_a_time);
}

void Trainer::WarmUp() {
  NL_CHECK_EQ(position_.micro_batches, 0);  // it writes gradients
  sampler_.Fill(position_.step, 0, config_.MicroBatch(), inputs_, targets_);
  model_.LossesAndGradients(inputs_, targets_, 1.0, false, losses_);
}

StepResult Trainer::Step() { return *StepOrPause({}); }

std::optional<StepResult> Trainer::StepOrPause(const std::function<bool()>& pause) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return position_.time_s + std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  StepResult result{.step = position_.step,
                    .learning_rate = schedule_.At(position_.step),
                    .tokens = config_.TokensPerStep()};

  // Losses are summed over all targets of the step and divided once, so that the gradient is that of the
  // whole batch however it is cut.
  const double scale = 1.0 / static_cast<double>(config_.TokensPerStep());
  const int64_t pieces = config_.batch / config_.MicroBatch();
  while (position_.micro_batches < pieces) {
    const bool first = position_.micro_batches == 0;
    sampler_.Fill(position_.step, position_.micro_batches * config_.MicroBatch(), config_.MicroBatch(),
                  inputs_, targets_);
    model_.LossesAndGradients(inputs_, targets_, scale, !first, losses_);
    position_.loss_sum += Sum(losses_);
    if (++position_.micro_batches < pieces && pause && pause()) {
      position_.time_s = elapsed_s();
      return std::nullopt;
    }
  }
  result.loss = position_.loss_sum * scale;

  result.gradient_norm = Norm(model_.gradients());

  const bool loss_finite = std::isfinite(result.loss);
  if (loss_finite && std::isfinite(result.gradient_norm)) {
    const bool clip = config_.grad_clip > 0 && result.gradient_norm > config_.grad_clip;
    const AdamWArgs update = {
        .gradient = model_.gradients(),
        .decayed = model_.parameters().flat_decayed(),
        .step = position_.step + 1,
        .learning_rate = result.learning_rate,
        .beta1 = config_.beta1,
        .beta2 = config_.beta2,
        .eps = config_.adam_eps,
        .weight_decay = config_.weight_decay,
        .gradient_scale = clip ? config_.grad_clip / result.gradient_norm : 1.0,
        .weight = model_.weights(),
        .m = m_,
        .v = v_,
        .low = model_.operand_weights(),
        .low_begin = model_.operand_begin(),
    };
    if (StaysFinite(update, result.gradient_norm * update.gradient_scale)) {
      device_.AdamW(update);
      last_update_ = update;
    } else {
      result.divergence = Divergence{.step = position_.step,
                                     .what = "the bound of the next weights",
                                     .value = std::numeric_limits<double>::infinity()};
    }
  } else {
    result.divergence = Divergence{.step = position_.step,
                                   .what = loss_finite ? "gradient norm" : "loss",
                                   .tensor = FirstNonFiniteGradient(),
                                   .activation = FirstNonFiniteActivation(),
                                   .value = loss_finite ? result.gradient_norm : result.loss};
  }
  result.time_s = elapsed_s();
  position_ = {.step = position_.step + (result.divergence ? 0 : 1)};
  return result;
}

double Trainer::Norm(const View& flat) {
  double square = 0;
  device_.SumSquares(flat, norm_);
  device_.ReadBack(norm_, {&square, 1});
  return std::sqrt(square);
}

bool Trainer::StaysFinite(const AdamWArgs& update, double gradient) {
  const bool known = bounded_steps_ == position_.step;  // else the weights came from elsewhere
  if (known) bound_ = bound_.After(update, gradient);
  // The bound grows with every step, and is taken anew should it ever leave the range.
  if (!known || !bound_.FitsFloat())
    bound_ = UpdateBound(Norm(model_.weights()), Norm(m_)).After(update, gradient);
  bounded_steps_ = position_.step + 1;
  return bound_.FitsFloat();
}

std::vector<double> Trainer::TensorNorms(const View& flat) {
  std::vector<double> norms;
  for (const Parameter& parameter : model_.parameters().all())
    norms.push_back(Norm(flat.Slice(parameter.offset, parameter.offset + parameter.elements())));
  return norms;
}

std::optional<std::string> Trainer::FirstNonFiniteGradient() {
  const std::vector<double> norms = TensorNorms(model_.gradients());
  for (size_t i = 0; i < norms.size(); ++i)
    if (!std::isfinite(norms[i])) return model_.parameters().all()[i].name;
  return std::nullopt;
}

// Of the last micro-batch, row by row: it may be large, and time does not matter any more.
std::optional<std::string> Trainer::FirstNonFiniteActivation() {
  std::vector<double> row;
  const auto finite = [&](const View& matrix) {
    row.resize(static_cast<size_t>(matrix.cols()));
    for (int64_t r = 0; r < matrix.rows(); ++r) {
      device_.ReadBack(matrix.Slice(r, r + 1), row);
      if (!std::ranges::all_of(row, [](double value) { return std::isfinite(value); })) return false;
    }
    return true;
  };
  for (const Gpt::NormActivations& norm : model_.Norms()) {
    if (!finite(norm.x)) return norm.site + ", input";
    if (!finite(norm.y)) return norm.site + ", output";
  }
  return std::nullopt;
}

std::optional<Evaluation> Trainer::Evaluate(const std::function<bool(double)>& keep_going) {
  const int64_t windows = static_cast<int64_t>(split_.held_out_starts.size());
  const int64_t T = config_.Window(), at_a_time = config_.MicroBatch();
  Evaluation evaluation;
  for (int64_t first = 0; first < windows; first += at_a_time) {
    const int64_t count = std::min(at_a_time, windows - first);
    // A last, smaller group leaves stale ids behind it; their targets are not counted.
    std::fill(targets_.begin(), targets_.end(), -1);
    const size_t used = static_cast<size_t>(count * T);
    FillHeldOut(*tokens_, split_, first, count, std::span(inputs_).first(used),
                std::span(targets_).first(used));
    model_.Losses(inputs_, targets_, losses_);
    for (int64_t w = 0; w < count; ++w)
      evaluation.block_losses.push_back(
          Sum(std::span(losses_).subspan(static_cast<size_t>(w * T), static_cast<size_t>(T))) /
          static_cast<double>(T));
    if (keep_going && !keep_going(static_cast<double>(first + count) / static_cast<double>(windows)))
      return std::nullopt;
  }
  evaluation.loss = Sum(evaluation.block_losses) / static_cast<double>(windows);
  return evaluation;
}

std::optional<double> Trainer::ProductsBound() {
  if (products_bound_) return products_bound_;
  double seconds = 0;
  for (const Gpt::Product& product : model_.Products()) {
    const auto alone = device_.FastestProductSeconds(product.shape);
    if (!alone) return std::nullopt;
    seconds += *alone * product.times;
  }
  const int64_t passes = config_.batch / config_.MicroBatch();
  products_bound_ = seconds * static_cast<double>(passes);
  return products_bound_;
}

}  // namespace normlab
