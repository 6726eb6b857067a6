#include "normlab/apps/bench_norm_cases.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"
#include "normlab/norms/norm_list.h"

namespace normlab::apps {
namespace {

constexpr std::array kOps = {NormOp::kForward, NormOp::kResidualForward, NormOp::kBackward,
                             NormOp::kBackwardAccumulate};
constexpr std::array kTypes = {RowTypes::kF32, RowTypes::kBF16, RowTypes::kF16, RowTypes::kMixed};
constexpr int64_t kMostElements = int64_t{1} << 30, kWidest = int64_t{1} << 20;

// Where less than this is lost to the stream, memory is what limits.
constexpr double kNearStream = 0.8;
constexpr double kMuchOverhead = 0.3;
constexpr double kCliff = 0.6;

std::vector<std::string> Split(std::string_view option, std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    if (parts.back().empty())
      throw UsageError(
          fmt::format("{} \"{}\" has an empty entry; separate names with single commas", option, text));
    begin = end + 1;
  }
  return parts;
}

// The values of a list of names, each once. Throws UsageError for an unknown one.
template <class Value, size_t N>
std::vector<Value> ParseNames(std::string_view option, std::string_view text,
                              const std::array<Value, N>& known) {
  std::vector<std::string> names;
  for (const Value value : known) names.emplace_back(Name(value));
  std::vector<Value> values;
  for (const std::string& part : Split(option, text)) {
    const auto found = std::ranges::find(names, part);
    if (found == names.end())
      throw UsageError(fmt::format("{}: unknown name {}", option, UnknownName(part, names)));
    const Value value = known[static_cast<size_t>(found - names.begin())];
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  return values;
}

enum class Cache { kWarm, kCold };
std::string_view Name(Cache cache) { return cache == Cache::kWarm ? "warm" : "cold"; }

// 1 to `most`; 0 for what is no such number.
int64_t ParseCount(std::string_view text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= most;
  return good ? value : 0;
}

std::vector<NormShape> ParseShapes(std::string_view text) {
  std::vector<NormShape> shapes;
  for (const std::string& part : Split("--shapes", text)) {
    const size_t x = std::min(part.find('x'), part.size() - 1);
    const NormShape shape{ParseCount(std::string_view(part).substr(0, x), kMostElements),
                          ParseCount(std::string_view(part).substr(x + 1), kWidest)};
    if (shape.rows == 0 || shape.cols == 0 || shape.rows > kMostElements / shape.cols)
      throw UsageError(fmt::format(
          "--shapes: \"{}\" is no shape; a shape is ROWSxCOLS, such as 2048x768, of 1 to {} columns "
          "and at most {} elements",
          part, kWidest, kMostElements));
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

std::vector<NormType> ParseNorms(std::string_view text) {
  std::vector<NormType> norms;
  if (text == "all") {
    for (const NormInfo& info : AllNorms::kInfos) norms.push_back({.kind = info.kind});
    return norms;
  }
  for (const std::string& part : Split("--norms", text)) {
    const NormType norm = ParseNormType(part);
    if (std::ranges::find(norms, norm) == norms.end()) norms.push_back(norm);
  }
  return norms;
}

}  // namespace

std::string_view Name(NormOp op) {
  switch (op) {
    case NormOp::kForward:
      return "forward";
    case NormOp::kResidualForward:
      return "residual";
    case NormOp::kBackward:
      return "backward";
    case NormOp::kBackwardAccumulate:
      return "accumulate";
  }
  return "?";
}

std::string_view Name(RowTypes types) {
  switch (types) {
    case RowTypes::kF32:
      return "f32";
    case RowTypes::kBF16:
      return "bf16";
    case RowTypes::kF16:
      return "f16";
    case RowTypes::kMixed:
      return "mixed";
  }
  return "?";
}

std::string Name(const NormShape& shape) { return fmt::format("{}x{}", shape.rows, shape.cols); }

std::vector<NormMatrix> MatricesOf(RowTypes types, NormOp op) {
  DType stream = DType::kF32, branch = DType::kF32;  // the residual stream's type, and the branches'
  if (types == RowTypes::kBF16) stream = branch = DType::kBF16;
  if (types == RowTypes::kF16) stream = branch = DType::kF16;
  if (types == RowTypes::kMixed) branch = DType::kBF16;
  switch (op) {
    case NormOp::kForward:  // x, y
      return {{stream, true, 'a'}, {branch, false, 'c'}};
    case NormOp::kResidualForward:  // residual, x, sum, y
      return {{stream, true, 'a'}, {branch, true, 'b'}, {stream, false, 'c'}, {branch, false, 'd'}};
    case NormOp::kBackward:  // x, dy, dx
    case NormOp::kBackwardAccumulate:
      return {{stream, true, 'a'}, {branch, true, 'b'}, {stream, op == NormOp::kBackwardAccumulate, 'c'}};
  }
  return {};
}

StreamMix MixOf(NormOp op) {
  switch (op) {
    case NormOp::kForward:
      return StreamMix::kCopy;
    case NormOp::kResidualForward:
      return StreamMix::kTwoToTwo;
    case NormOp::kBackward:
      return StreamMix::kTwoToOne;
    case NormOp::kBackwardAccumulate:
      return StreamMix::kTwoIntoOneInPlace;
  }
  return StreamMix::kCopy;
}

size_t BytesOf(const NormCase& norm_case) {
  size_t bytes = 0;
  for (const NormMatrix& matrix : MatricesOf(norm_case.types, norm_case.op)) {
    const bool twice = norm_case.op == NormOp::kBackwardAccumulate && matrix.stream == 'c';
    bytes += static_cast<size_t>(norm_case.shape.rows * norm_case.shape.cols) * SizeOf(matrix.dtype) *
             (twice ? 2 : 1);
  }
  return bytes;
}

std::vector<NormCase> NormCases(const NormCaseRequest& request) {
  const auto norms = ParseNorms(request.norms);
  const auto types = ParseNames("--dtypes", request.dtypes, kTypes);
  const auto shapes = ParseShapes(request.shapes);
  const auto ops = ParseNames("--ops", request.ops, kOps);
  const auto caches = ParseNames("--caches", request.caches, std::array{Cache::kWarm, Cache::kCold});
  std::vector<NormCase> cases;
  for (const NormType& norm : norms)
    for (const RowTypes type : types)
      for (const Cache cache : caches)
        for (const NormOp op : ops)
          for (const NormShape& shape : shapes)
            cases.push_back(
                {.norm = norm, .types = type, .shape = shape, .op = op, .cold = cache == Cache::kCold});
  return cases;
}

std::vector<int64_t> ParseWidths(std::string_view text) {
  std::vector<int64_t> widths;
  for (const std::string& part : Split("--sweep", text)) {
    const int64_t width = ParseCount(part, kWidest);
    if (width == 0)
      throw UsageError(
          fmt::format("--sweep: \"{}\" is no width; it takes whole numbers from 1 to {}", part, kWidest));
    widths.push_back(width);
  }
  std::ranges::sort(widths);
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  if (widths.size() < 2) throw UsageError("--sweep compares a width with its neighbours; name two or more");
  return widths;
}

std::vector<NormShape> SweepShapes(const std::vector<int64_t>& widths) {
  constexpr int64_t kElements = 2048 * 768;
  std::vector<NormShape> shapes;
  for (const int64_t width : widths) shapes.push_back({std::max<int64_t>(2, kElements / width), width});
  return shapes;
}

std::vector<size_t> Cliffs(const std::vector<double>& speeds) {
  std::vector<size_t> cliffs;
  for (size_t i = 0; i < speeds.size(); ++i) {
    double neighbour = 0;
    if (i > 0) neighbour = std::max(neighbour, speeds[i - 1]);
    if (i + 1 < speeds.size()) neighbour = std::max(neighbour, speeds[i + 1]);
    if (speeds[i] > 0 && speeds[i] < kCliff * neighbour) cliffs.push_back(i);
  }
  return cliffs;
}

std::string_view LimitOf(const LimitEvidence& evidence) {
  if (evidence.overhead_s > kMuchOverhead * evidence.seconds) return "the call";
  if (evidence.share && *evidence.share >= kNearStream) return evidence.in_cache ? "cache" : "memory";
  return evidence.implementation == NormImplementation::kHandrolled ? "its passes" : "compute";
}

}  // namespace normlab::apps
