#include "normlab/study/report/heat_map.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace normlab {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Columns of one quantity as they come; rows in the order of their first appearance.
class Gathered {
 public:
  void Add(size_t column, const std::string& row, double value) {
    auto place = std::ranges::find(rows_, row);
    if (place == rows_.end()) {
      rows_.push_back(row);
      values_.emplace_back();
      place = rows_.end() - 1;
    }
    std::map<size_t, double>& values = values_[static_cast<size_t>(place - rows_.begin())];
    values[column] = value;
  }

  HeatMap Map(const std::string& quantity, const std::vector<double>& step, size_t columns) const {
    HeatMap map{.quantity = quantity, .rows = rows_};
    const size_t count = std::min(columns, step.size());
    for (size_t c = 0; c < count; ++c) map.step.push_back(step[c * step.size() / count]);
    for (const std::map<size_t, double>& values : values_) {
      std::vector<double> row(count, kNaN);
      std::vector<bool> known(count, false);
      for (const auto& [column, value] : values) {
        const size_t c = ((column + 1) * count - 1) / step.size();  // the stretch that holds it
        if (!known[c] || !std::isfinite(value) || (std::isfinite(row[c]) && value > row[c])) row[c] = value;
        known[c] = true;
      }
      map.values.push_back(std::move(row));
      map.known.push_back(std::move(known));
    }
    return map;
  }

  bool empty() const { return rows_.empty(); }

 private:
  std::vector<std::string> rows_;
  std::vector<std::map<size_t, double>> values_;
};

// "block 3" of trf_blocks.3.att.W_query.weight; "tok_emb" of tok_emb.weight.
std::string LayerOf(const std::string& tensor) {
  constexpr std::string_view kBlocks = "trf_blocks.";
  if (!tensor.starts_with(kBlocks)) return tensor.substr(0, tensor.find('.'));
  const size_t end = tensor.find('.', kBlocks.size());
  return "block " + tensor.substr(kBlocks.size(), end - kBlocks.size());
}

std::optional<double> NumberIn(const Json& json, const char* key) {
  if (!json.is_object()) return std::nullopt;
  return OptionalNumberFromJson(json.value(key, Json()), key);
}

struct LayerSums {
  double gradient = 0, update = 0, weight = 0;  // of squares
};

}  // namespace

std::vector<HeatMap> HeatMaps(std::string_view lines, size_t columns) {
  constexpr std::pair<const char*, const char*> kOfInputs[] = {
      {"input_rms", "rms"}, {"input_kurtosis", "kurtosis"}, {"input_mean_share", "mean_share"}};
  std::vector<double> steps;
  Gathered of_inputs[std::size(kOfInputs)], gradients, updates;

  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step")) continue;
    try {
      const double step = NumberFromJson(json["step"], "step");
      const size_t column = steps.size();
      steps.push_back(step);
      for (const Json& norm : json.value("norms", Json::array())) {
        const auto site = norm.value("site", std::string("?"));
        for (size_t q = 0; q < std::size(kOfInputs); ++q)
          if (const auto value = NumberIn(norm.value("input", Json()), kOfInputs[q].second))
            of_inputs[q].Add(column, site, *value);
      }
      std::vector<std::pair<std::string, LayerSums>> layers;
      for (const Json& tensor : json.value("tensors", Json::array())) {
        const std::string layer = LayerOf(tensor.value("name", std::string("?")));
        auto place = std::ranges::find(layers, layer, &std::pair<std::string, LayerSums>::first);
        if (place == layers.end()) place = layers.insert(layers.end(), {layer, {}});
        LayerSums& sums = place->second;
        const auto add = [&](double& sum, const char* key) {
          const double value = NumberIn(tensor, key).value_or(0);
          sum += value * value;
        };
        add(sums.gradient, "gradient_norm");
        add(sums.update, "update_norm");
        add(sums.weight, "weight_norm");
      }
      for (const auto& [layer, sums] : layers) {
        gradients.Add(column, layer, std::sqrt(sums.gradient));
        if (sums.weight != 0) updates.Add(column, layer, std::sqrt(sums.update / sums.weight));
      }
    } catch (const std::exception&) {
      continue;
    }
  }

  std::vector<HeatMap> maps;
  const auto keep = [&](const char* quantity, const Gathered& gathered) {
    if (!gathered.empty()) maps.push_back(gathered.Map(quantity, steps, columns));
  };
  for (size_t q = 0; q < std::size(kOfInputs); ++q) keep(kOfInputs[q].first, of_inputs[q]);
  keep("gradient_norm", gradients);
  keep("update_ratio", updates);
  return maps;
}

Json HeatMapsJson(const std::vector<HeatMap>& maps) {
  Json list = Json::array();
  for (const HeatMap& map : maps) {
    Json values = Json::array();
    for (size_t r = 0; r < map.values.size(); ++r) {
      Json row = Json::array();
      for (size_t c = 0; c < map.values[r].size(); ++c) {
        const double value = map.values[r][c];
        if (!map.known[r][c])
          row.push_back(nullptr);
        else
          row.push_back(ToJson(
              std::isfinite(value) ? std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr) : value));
      }
      values.push_back(std::move(row));
    }
    list.push_back(
        {{"quantity", map.quantity}, {"rows", map.rows}, {"step", map.step}, {"values", std::move(values)}});
  }
  return list;
}

}  // namespace normlab
