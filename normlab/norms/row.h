#pragma once
// The contract between a norm's mathematics and whoever runs it. A Row stands for one row of the input and
// everything that belongs to it; the same body is compiled as float64 oracle, as the plain CPU path, and as a
// CUDA block per row. A Row type offers:
//
//   Scalar              the type of the arithmetic: double or float
//   cols()              width of the row
//   x(c)                input of column c (after a residual was added, if any)
//   gain(c), bias(c)    effective parameters: weight + weight_offset, or 1; the bias, or 0
//   alpha()             the learned scalar, where NormInfo::has_alpha
//   Sum(f)              sum of f(c) over all columns, in an order that depends on cols() alone
//   SumFirst(n, f)      the same over the first n columns
//   ForEach(f)          calls f(c) for every column, in any order, perhaps in parallel
//   Rsqrt(v)            1 / sqrt(v); 0 for 0, so that with eps = 0 an all-zero row gives 0 (or the bias);
//                       NaN for infinity, so that squares which overflowed never turn a row into zeros
//   Tanh(v)             hyperbolic tangent
//   Stored(v)           v rounded to the type in which y is stored (v itself where that is Scalar)
// Forward only:
//   SetY(c, v)
//   Save(slot, v)       a row statistic for Backward, slot < NormInfo::saved_per_row
// Backward only:
//   dy(c), Saved(slot)
//   SetDx(c, v)         dx = or +=: the Row knows
//   AddDgain(c, v), AddDbias(c, v), AddDalpha(v)
//                       += over rows, nothing where the parameter is absent; AddDalpha once a row, outside of
//                       ForEach
//
// A body reads x(c) before it sets y or dx of that column and never after, so in-place use is safe as
// long as one ForEach does both.

#if defined(__CUDACC__)
#define NL_HD __host__ __device__
#define NL_INLINE __forceinline__
#else
#define NL_HD
#define NL_INLINE inline __attribute__((always_inline))
#endif

namespace normlab {

// A normalized value as the gain meets it (NormSpec::cast).
template <class Row, class Numbers>
NL_HD NL_INLINE typename Row::Scalar BeforeGain(const Row& r, const Numbers& numbers,
                                                typename Row::Scalar normalized) {
  return numbers.cast_before_gain ? r.Stored(normalized) : normalized;
}

}  // namespace normlab
