#pragma once
// Small SIMD passes over blocks of rows, run inside other operations while the block is in cache. Plain
// pointers; rows `stride` elements apart; any width and alignment; the calling thread alone.

#include <cstdint>

namespace normlab::cpu {

struct Block {
  float* data;
  int64_t stride;
};
struct ConstBlock {
  const float* data;
  int64_t stride;
};

// c[r, i] += bias[i]
void AddBias(int64_t rows, int64_t cols, const float* bias, Block c);

// z[r, i] += bias[i] (bias may be null);  gelu[r, i] = GELU(z[r, i])
void AddBiasGelu(int64_t rows, int64_t cols, const float* bias, Block z, Block gelu);

// d[r, i] *= GELU'(z[r, i])
void MultiplyByGeluGradient(int64_t rows, int64_t cols, ConstBlock z, Block d);

// sums[i] = sum over rows of x[r, i], rows added in order
void ColumnSums(int64_t rows, int64_t cols, ConstBlock x, float* sums);

// to[i] += from[i]
void AddTo(int64_t count, const float* from, float* to);

// to[i] = a[i] + b[i]
void AddRows(int64_t count, const float* a, const float* b, float* to);

}  // namespace normlab::cpu
