#include "normlab/stats/matrix_moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/threads.h"

namespace normlab::stats {
namespace {

constexpr int64_t kChunkRows = 64;
constexpr size_t kLanes = 4;  // independent sums of a row, so that additions do not wait for each other

// Sum over a row of f(x), added in an order of its own.
template <class F>
double SumOf(std::span<const double> row, const F& f) {
  std::array<double, kLanes> sums{};
  const size_t whole = row.size() / kLanes * kLanes;
  for (size_t c = 0; c < whole; c += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += f(row[c + lane]);
  for (size_t c = whole; c < row.size(); ++c) sums[c - whole] += f(row[c]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The first pass over a chunk of rows.
struct Sums {
  double sum = 0, squares = 0, shares = 0;
  int64_t rows_with_share = 0;
  std::vector<double> column_squares;

  void Add(const Sums& other) {
    sum += other.sum;
    squares += other.squares;
    shares += other.shares;
    rows_with_share += other.rows_with_share;
    for (size_t c = 0; c < column_squares.size(); ++c) column_squares[c] += other.column_squares[c];
  }
};

// The second pass: about the mean, and the largest magnitude with its place among the values.
struct Powers {
  double second = 0, fourth = 0;
  double max = 0;
  size_t place = 0;

  void TakeLarger(double magnitude, size_t where) {
    if (!(magnitude > max) && !std::isnan(magnitude)) return;  // a NaN stays
    max = magnitude;
    place = where;
  }
  void Add(const Powers& other) {
    second += other.second;
    fourth += other.fourth;
    TakeLarger(other.max, other.place);
  }
};

Powers PowersOf(std::span<const double> row, double mean) {
  std::array<double, kLanes> second{}, fourth{};
  const auto add = [&](size_t lane, double value) {
    const double square = (value - mean) * (value - mean);
    second[lane] += square;
    fourth[lane] += square * square;
  };
  const size_t whole = row.size() / kLanes * kLanes;
  for (size_t c = 0; c < whole; c += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) add(lane, row[c + lane]);
  for (size_t c = whole; c < row.size(); ++c) add(c - whole, row[c]);
  return {.second = (second[0] + second[1]) + (second[2] + second[3]),
          .fourth = (fourth[0] + fourth[1]) + (fourth[2] + fourth[3])};
}

// The middle of values of which the order does not matter; the upper one of two.
double MiddleOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

MatrixMoments MomentsOf(std::span<const double> values, int64_t cols, int threads) {
  if (cols < 1 || values.empty() || values.size() % static_cast<size_t>(cols) != 0)
    Fail("MomentsOf: {} values are no rows of {}; give at least one row, and whole ones", values.size(),
         cols);
  const size_t width = static_cast<size_t>(cols);
  const int64_t rows = static_cast<int64_t>(values.size()) / cols;
  const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
  // Calls body(row, its place among the values) for each row of a chunk.
  const auto for_rows = [&](int64_t chunk, const auto& body) {
    const int64_t end = std::min(rows, (chunk + 1) * kChunkRows);
    for (int64_t r = chunk * kChunkRows; r < end; ++r) {
      const size_t begin = static_cast<size_t>(r) * width;
      body(values.subspan(begin, width), begin);
    }
  };

  std::vector<Sums> sums(static_cast<size_t>(chunks));
  ParallelFor(threads, chunks, [&](int64_t chunk, int) {
    Sums& mine = sums[static_cast<size_t>(chunk)];
    mine.column_squares.resize(width);
    for_rows(chunk, [&](std::span<const double> row, size_t) {
      const double sum = SumOf(row, [](double x) { return x; });
      const double squares = SumOf(row, [](double x) { return x * x; });
      for (size_t c = 0; c < width; ++c) mine.column_squares[c] += row[c] * row[c];
      mine.sum += sum;
      mine.squares += squares;
      if (squares == 0) return;
      mine.shares += (sum * sum) / (static_cast<double>(width) * squares);
      ++mine.rows_with_share;
    });
  });
  Sums total = std::move(sums[0]);
  for (size_t chunk = 1; chunk < sums.size(); ++chunk) total.Add(sums[chunk]);

  const double n = static_cast<double>(values.size()), mean = total.sum / n;
  std::vector<Powers> powers(static_cast<size_t>(chunks));
  ParallelFor(threads, chunks, [&](int64_t chunk, int) {
    Powers& mine = powers[static_cast<size_t>(chunk)];
    for_rows(chunk, [&](std::span<const double> row, size_t begin) {
      mine.Add(PowersOf(row, mean));
      for (size_t c = 0; c < width; ++c) mine.TakeLarger(std::abs(row[c]), begin + c);
    });
  });
  Powers about_mean;
  for (const Powers& of_chunk : powers) about_mean.Add(of_chunk);

  MatrixMoments moments{.rms = std::sqrt(total.squares / n), .max = about_mean.max};
  const double mean_square = total.squares / n, variance = about_mean.second / n;
  // Of equal values nothing but the rounding of their mean is left.
  if (variance > 1e-28 * mean_square && variance * variance > 0)
    moments.kurtosis = about_mean.fourth / n / (variance * variance);
  if (total.rows_with_share > 0)
    moments.mean_share = total.shares / static_cast<double>(total.rows_with_share);
  if (!std::isfinite(total.squares)) return moments;
  const double typical = std::sqrt(MiddleOf(total.column_squares) / static_cast<double>(rows));
  if (!(typical > 0)) return moments;
  moments.outlier_ratio = about_mean.max / typical;
  if (*moments.outlier_ratio >= kOutlierRatio)
    moments.outlier_channel = static_cast<int64_t>(about_mean.place % width);
  return moments;
}

}  // namespace normlab::stats
