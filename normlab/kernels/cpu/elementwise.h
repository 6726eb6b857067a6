#pragma once
// Small SIMD passes over blocks of rows, run inside other operations while the block is in cache. Plain
// pointers; rows `stride` elements apart; any width and alignment; the calling thread alone. T is float or
// BFloat16; arithmetic is fp32, each result rounded once.

#include <cstdint>

#include "normlab/base/bfloat16.h"

namespace normlab::cpu {

template <class T>
struct Block {
  T* data;
  int64_t stride;
};

// c[r, i] += bias[i]
void AddBias(int64_t rows, int64_t cols, const float* bias, Block<float> c);

// z[r, i] += bias[i] (bias may be null);  gelu[r, i] = GELU(z[r, i] as it is stored)
template <class T>
void AddBiasGelu(int64_t rows, int64_t cols, const float* bias, Block<T> z, Block<T> gelu);

// d[r, i] *= GELU'(z[r, i])
template <class T>
void MultiplyByGeluGradient(int64_t rows, int64_t cols, Block<const T> z, Block<T> d);

// sums[i] = sum over rows of x[r, i], rows added in order
template <class T>
void ColumnSums(int64_t rows, int64_t cols, Block<const T> x, float* sums);

// to[i] += from[i]
template <class T>
void AddTo(int64_t count, const T* from, float* to);

// to[i] = a[i] + b[i]
template <class T>
void AddRows(int64_t count, const float* a, const float* b, T* to);

// to[r, i] = from[r, i]
void Widen(int64_t rows, int64_t cols, Block<const BFloat16> from, Block<float> to);
void Narrow(int64_t rows, int64_t cols, Block<const float> from, Block<BFloat16> to);

}  // namespace normlab::cpu
