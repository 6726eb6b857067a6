#include "normlab/train/inside.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "normlab/base/threads.h"
#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {

// ---- Activations.

// `most` rows of a matrix, evenly spaced, or all of fewer, as doubles.
std::vector<double> RowsOf(Device& device, const View& matrix, int64_t most) {
  const int64_t rows = matrix.rows(), count = std::min(rows, most);
  const size_t width = static_cast<size_t>(matrix.cols());
  std::vector<double> values(static_cast<size_t>(count) * width);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i * rows / count;
    device.ReadBack(matrix.Slice(row, row + 1),
                    std::span(values).subspan(static_cast<size_t>(i) * width, width));
  }
  return values;
}

double ShareAbove(std::span<const double> values, double bound) {
  const auto above = std::ranges::count_if(values, [bound](double value) { return std::abs(value) > bound; });
  return static_cast<double>(above) / static_cast<double>(values.size());
}

NormInside LookAt(Device& device, const Gpt::NormActivations& norm) {
  NormInside inside{.site = norm.site};
  const int64_t cols = norm.x.cols();
  const std::vector<double> input = RowsOf(device, norm.x, kMostRows);
  inside.input = stats::MomentsOf(input, cols, device.threads());
  inside.output = norm.y.data == norm.x.data
                      ? inside.input
                      : stats::MomentsOf(RowsOf(device, norm.y, kMostRows), cols, device.threads());
  if (norm.spec.kind == KindOf<Dyt>() && !norm.alpha.empty()) {
    double alpha = 0;
    device.ReadBack(norm.alpha, {&alpha, 1});
    if (alpha != 0) inside.saturated_share = ShareAbove(input, kSaturated / std::abs(alpha));
  }
  return inside;
}

// ---- Updates.

constexpr int64_t kPiece = 1 << 16, kPart = 1 << 12;  // elements read at a time, and by one thread

// Sums of squares of updates, piece by piece.
class Updates {
 public:
  explicit Updates(Trainer& trainer) : device_(trainer.device()), args_(*trainer.last_update()) {
    const double t = static_cast<double>(args_.step);
    rate_ = args_.learning_rate / (1 - std::pow(args_.beta1, t));
    inverse_root_ = 1 / std::sqrt(1 - std::pow(args_.beta2, t));
  }

  // Of the elements [begin, end) of flat memory, which decay or not as one.
  double Squares(int64_t begin, int64_t end) {
    const size_t count = static_cast<size_t>(end - begin);
    for (auto* values : {&w_, &m_, &v_}) values->resize(std::max(values->size(), count));
    const auto read = [&](const View& flat, std::vector<double>& values) {
      device_.ReadBack(flat.Slice(begin, end), std::span(values).first(count));
    };
    read(args_.weight, w_);
    read(args_.m, m_);
    read(args_.v, v_);
    const double decay = begin < args_.decayed ? args_.learning_rate * args_.weight_decay : 0;
    const double keep = 1 - decay;
    const int64_t parts = (end - begin + kPart - 1) / kPart;
    std::vector<double> squares(static_cast<size_t>(parts));
    ParallelFor(device_.threads(), parts, [&](int64_t part, int) {
      const size_t from = static_cast<size_t>(part * kPart), to = std::min(count, from + kPart);
      double sum = 0;
      for (size_t i = from; i < to; ++i) {
        const double update =
            (decay * w_[i] + rate_ * m_[i] / (std::sqrt(v_[i]) * inverse_root_ + args_.eps)) / keep;
        sum += update * update;
      }
      squares[static_cast<size_t>(part)] = sum;
    });
    double sum = 0;
    for (const double square : squares) sum += square;
    return sum;
  }

  double Norm(const Parameter& parameter) {
    double squares = 0;
    const int64_t end = parameter.offset + parameter.elements();
    for (int64_t begin = parameter.offset; begin < end; begin += kPiece)
      squares += Squares(begin, std::min(end, begin + kPiece));
    return std::sqrt(squares);
  }

  // From evenly spaced pieces of a large tensor, scaled to all of it. Many, since a table's rows differ.
  double SampledNorm(const Parameter& parameter) {
    constexpr int64_t kPieces = 16;
    const int64_t elements = parameter.elements();
    if (elements <= kSampledElements) return Norm(parameter);
    double squares = 0;
    for (int64_t i = 0; i < kPieces; ++i) {
      const int64_t begin = parameter.offset + i * (elements / kPieces);
      squares += Squares(begin, begin + kSampledElements / kPieces);
    }
    return std::sqrt(squares * static_cast<double>(elements) / static_cast<double>(kSampledElements));
  }

 private:
  Device& device_;
  AdamWArgs args_;
  double rate_ = 0, inverse_root_ = 0;
  std::vector<double> w_, m_, v_;
};

double Rms(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

Json MomentsToJson(const stats::MatrixMoments& moments) {
  return {{"rms", ToJson(moments.rms)}, {"max", ToJson(moments.max)}, {"kurtosis", ToJson(moments.kurtosis)}};
}

Json InputToJson(const stats::MatrixMoments& moments) {
  Json json = MomentsToJson(moments);
  json["mean_share"] = ToJson(moments.mean_share);
  json["outlier_channel"] = moments.outlier_channel ? Json(*moments.outlier_channel) : Json();
  json["outlier_ratio"] = ToJson(moments.outlier_ratio);
  return json;
}

Json TensorToJson(const TensorInside& tensor) {
  return {{"name", tensor.name},
          {"weight_norm", ToJson(tensor.weight_norm)},
          {"gradient_norm", ToJson(tensor.gradient_norm)},
          {"update_norm", ToJson(tensor.update_norm)},
          {"update_ratio", ToJson(tensor.update_ratio())}};
}

Json Line(int64_t step, std::string_view why) {
  return {{"step", step}, {"why", why}, {"norms", Json::array()}, {"tensors", Json::array()}};
}

}  // namespace

std::optional<double> TensorInside::update_ratio() const {
  if (weight_norm == 0) return std::nullopt;
  return update_norm / weight_norm;
}

Inside LookInside(Trainer& trainer) {
  NL_CHECK(trainer.last_update().has_value());
  Inside inside{.step = trainer.next_step()};
  const Gpt& model = trainer.model();
  for (const Gpt::NormActivations& norm : model.Norms())
    inside.norms.push_back(LookAt(trainer.device(), norm));

  const std::vector<double> weights = trainer.TensorNorms(model.weights());
  const std::vector<double> gradients = trainer.TensorNorms(model.gradients());
  Updates updates(trainer);
  for (size_t i = 0; i < weights.size(); ++i) {
    const Parameter& parameter = model.parameters().all()[i];
    inside.tensors.push_back({.name = parameter.name,
                              .weight_norm = weights[i],
                              .gradient_norm = gradients[i],
                              .update_norm = updates.Norm(parameter)});
  }
  return inside;
}

size_t InsideBytes(const TrainConfig& config) {
  const int64_t rows = std::min(kMostRows, config.MicroBatch() * config.Window());
  return static_cast<size_t>(2 * rows * config.model.emb_dim + 3 * kPiece) * sizeof(double);
}

Json ToJson(const Inside& inside, std::string_view why) {
  Json json = Line(inside.step, why);
  for (const NormInside& norm : inside.norms) {
    Json entry = {
        {"site", norm.site}, {"input", InputToJson(norm.input)}, {"output", MomentsToJson(norm.output)}};
    if (norm.saturated_share) entry["saturated_share"] = ToJson(*norm.saturated_share);
    json["norms"].push_back(std::move(entry));
  }
  for (const TensorInside& tensor : inside.tensors) json["tensors"].push_back(TensorToJson(tensor));
  return json;
}

Json SummaryToJson(const Inside& inside) {
  Json json = {{"step", inside.step}, {"norms", Json::array()}};
  for (const NormInside& norm : inside.norms) {
    Json entry = {{"site", norm.site},
                  {"input_rms", ToJson(norm.input.rms)},
                  {"input_max", ToJson(norm.input.max)},
                  {"input_kurtosis", ToJson(norm.input.kurtosis)},
                  {"mean_share", ToJson(norm.input.mean_share)}};
    if (norm.saturated_share) entry["saturated_share"] = ToJson(*norm.saturated_share);
    json["norms"].push_back(std::move(entry));
  }
  return json;
}

std::vector<Signal> SignalsOf(const Trainer& trainer) {
  std::vector<Signal> signals;
  for (const char* what : {"gradient_norm", "update_norm"})
    for (const Parameter& parameter : trainer.model().parameters().all())
      signals.push_back({what, parameter.name});
  for (const Gpt::NormActivations& norm : trainer.model().Norms())
    signals.push_back({"input_rms", norm.site});
  return signals;
}

std::vector<double> ReadSignals(Trainer& trainer) {
  std::vector<double> values = trainer.TensorNorms(trainer.model().gradients());
  Updates updates(trainer);
  for (const Parameter& parameter : trainer.model().parameters().all())
    values.push_back(updates.SampledNorm(parameter));
  for (const Gpt::NormActivations& norm : trainer.model().Norms())
    values.push_back(Rms(RowsOf(trainer.device(), norm.x, kSampledRows)));
  return values;
}

Json LastFiniteToJson(Trainer& trainer, int64_t step, std::span<const double> signals) {
  Json json = Line(step, "divergence");
  const std::vector<Parameter>& parameters = trainer.model().parameters().all();
  const size_t tensors = parameters.size();
  const std::vector<double> weights = trainer.TensorNorms(trainer.model().weights());
  for (size_t i = 0; i < tensors; ++i)
    json["tensors"].push_back(TensorToJson({.name = parameters[i].name,
                                            .weight_norm = weights[i],
                                            .gradient_norm = signals[i],
                                            .update_norm = signals[tensors + i]}));
  Json unknown = InputToJson({});
  for (auto& [key, value] : unknown.items()) value = nullptr;
  const std::vector<Gpt::NormActivations> norms = trainer.model().Norms();
  for (size_t i = 0; i < norms.size(); ++i) {
    Json input = unknown;
    input["rms"] = ToJson(signals[2 * tensors + i]);
    json["norms"].push_back({{"site", norms[i].site},
                             {"input", std::move(input)},
                             {"output", {{"rms", nullptr}, {"max", nullptr}, {"kurtosis", nullptr}}}});
  }
  return json;
}

}  // namespace normlab
