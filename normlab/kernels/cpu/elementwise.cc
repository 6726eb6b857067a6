#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "normlab/kernels/cpu/elementwise.h"
#include "normlab/kernels/cpu/math-inl.h"
#include "normlab/kernels/cpu/storage-inl.h"

#ifndef NORMLAB_KERNELS_CPU_ELEMENTWISE_PASSES_
#define NORMLAB_KERNELS_CPU_ELEMENTWISE_PASSES_
namespace normlab::cpu {
namespace {

// One instruction set's passes over rows of T.
template <class T>
struct Passes {
  void (*bias_gelu)(int64_t rows, int64_t cols, const float* bias, Block<T> z, Block<T> gelu);
  void (*gelu_gradient)(int64_t rows, int64_t cols, Block<const T> z, Block<T> dz);
  void (*sum_columns)(int64_t rows, int64_t cols, Block<const T> x, float* sums);
  void (*add_to)(int64_t count, const T* from, float* to);
  void (*add_rows)(int64_t count, const float* a, const float* b, T* to);
};

}  // namespace
}  // namespace normlab::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr Precision PrecisionOf() {
  return sizeof(T) == sizeof(float) ? Precision::kF32 : Precision::k16Bits;
}

HWY_ATTR void AddBiasRows(int64_t rows, int64_t cols, const float* bias, Block<float> c) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = c.data + r * c.stride;
    ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, row + i), hn::LoadU(d, bias + i)), d, row + i);
    });
  }
}

template <class T>
HWY_ATTR void BiasGeluRows(int64_t rows, int64_t cols, const float* bias, Block<T> z, Block<T> gelu) {
  for (int64_t r = 0; r < rows; ++r) {
    T* z_row = z.data + r * z.stride;
    T* out = gelu.data + r * gelu.stride;
    ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR {
      if (bias != nullptr)
        StoreFloats(hn::Add(LoadFloats(d, z_row + i), hn::LoadU(d, bias + i)), d, z_row + i);
      const auto v = LoadFloats(d, z_row + i);
      StoreFloats(hn::Mul(v, GeluGate<PrecisionOf<T>()>(d, v)), d, out + i);
    });
  }
}

template <class T>
HWY_ATTR void GeluGradientRows(int64_t rows, int64_t cols, Block<const T> z, Block<T> dz) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* z_row = z.data + r * z.stride;
    T* row = dz.data + r * dz.stride;
    ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR {
      StoreFloats(
          hn::Mul(LoadFloats(d, row + i), GeluGradient<PrecisionOf<T>()>(d, LoadFloats(d, z_row + i))), d,
          row + i);
    });
  }
}

template <class T>
HWY_ATTR void AddToRow(int64_t count, const T* from, float* to) {
  ForColumns(count, [=](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), LoadFloats(d, from + i)), d, to + i);
  });
}

template <class T>
HWY_ATTR void AddTwoRows(int64_t count, const float* a, const float* b, T* to) {
  ForColumns(count, [=](auto d, int64_t i) HWY_ATTR {
    StoreFloats(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  });
}

template <class T>
HWY_ATTR void SumColumns(int64_t rows, int64_t cols, Block<const T> x, float* sums) {
  ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR { hn::StoreU(hn::Zero(d), d, sums + i); });
  for (int64_t r = 0; r < rows; ++r) AddToRow(cols, x.data + r * x.stride, sums);
}

template <class From, class To>
HWY_ATTR void ConvertRows(int64_t rows, int64_t cols, Block<const From> from, Block<To> to) {
  for (int64_t r = 0; r < rows; ++r) {
    const From* source = from.data + r * from.stride;
    To* row = to.data + r * to.stride;
    ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR { StoreFloats(LoadFloats(d, source + i), d, row + i); });
  }
}

HWY_ATTR void WidenRows(int64_t rows, int64_t cols, Block<const BFloat16> from, Block<float> to) {
  ConvertRows(rows, cols, from, to);
}
HWY_ATTR void NarrowRows(int64_t rows, int64_t cols, Block<const float> from, Block<BFloat16> to) {
  ConvertRows(rows, cols, from, to);
}

template <class T>
Passes<T> PassesOf() {
  return {.bias_gelu = BiasGeluRows<T>,
          .gelu_gradient = GeluGradientRows<T>,
          .sum_columns = SumColumns<T>,
          .add_to = AddToRow<T>,
          .add_rows = AddTwoRows<T>};
}
Passes<float> PassesF32() { return PassesOf<float>(); }
Passes<BFloat16> PassesBf16() { return PassesOf<BFloat16>(); }

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {

HWY_EXPORT(AddBiasRows);
HWY_EXPORT(WidenRows);
HWY_EXPORT(NarrowRows);
HWY_EXPORT(PassesF32);
HWY_EXPORT(PassesBf16);

namespace {

template <class T>
Passes<T> Here();
template <>
Passes<float> Here() {
  return HWY_DYNAMIC_DISPATCH(PassesF32)();
}
template <>
Passes<BFloat16> Here() {
  return HWY_DYNAMIC_DISPATCH(PassesBf16)();
}

}  // namespace

void AddBias(int64_t rows, int64_t cols, const float* bias, Block<float> c) {
  HWY_DYNAMIC_DISPATCH(AddBiasRows)(rows, cols, bias, c);
}
void Widen(int64_t rows, int64_t cols, Block<const BFloat16> from, Block<float> to) {
  HWY_DYNAMIC_DISPATCH(WidenRows)(rows, cols, from, to);
}
void Narrow(int64_t rows, int64_t cols, Block<const float> from, Block<BFloat16> to) {
  HWY_DYNAMIC_DISPATCH(NarrowRows)(rows, cols, from, to);
}

template <class T>
void AddBiasGelu(int64_t rows, int64_t cols, const float* bias, Block<T> z, Block<T> gelu) {
  Here<T>().bias_gelu(rows, cols, bias, z, gelu);
}
template <class T>
void MultiplyByGeluGradient(int64_t rows, int64_t cols, Block<const T> z, Block<T> d) {
  Here<T>().gelu_gradient(rows, cols, z, d);
}
template <class T>
void ColumnSums(int64_t rows, int64_t cols, Block<const T> x, float* sums) {
  Here<T>().sum_columns(rows, cols, x, sums);
}
template <class T>
void AddTo(int64_t count, const T* from, float* to) {
  Here<T>().add_to(count, from, to);
}
template <class T>
void AddRows(int64_t count, const float* a, const float* b, T* to) {
  Here<T>().add_rows(count, a, b, to);
}

template void AddBiasGelu(int64_t, int64_t, const float*, Block<float>, Block<float>);
template void AddBiasGelu(int64_t, int64_t, const float*, Block<BFloat16>, Block<BFloat16>);
template void MultiplyByGeluGradient(int64_t, int64_t, Block<const float>, Block<float>);
template void MultiplyByGeluGradient(int64_t, int64_t, Block<const BFloat16>, Block<BFloat16>);
template void ColumnSums(int64_t, int64_t, Block<const float>, float*);
template void ColumnSums(int64_t, int64_t, Block<const BFloat16>, float*);
template void AddTo(int64_t, const float*, float*);
template void AddTo(int64_t, const BFloat16*, float*);
template void AddRows(int64_t, const float*, const float*, float*);
template void AddRows(int64_t, const float*, const float*, BFloat16*);

}  // namespace normlab::cpu
#endif  // HWY_ONCE
