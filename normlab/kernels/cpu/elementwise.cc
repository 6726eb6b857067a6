#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "normlab/kernels/cpu/elementwise.h"
#include "normlab/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;

// Calls f(d, i) for whole vectors, then f(one_lane, i) for the rest of [0, cols).
template <class F>
HWY_INLINE void ForColumns(int64_t cols, const F& f) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= cols; i += lanes) f(d, i);
  for (; i < cols; ++i) f(one, i);
}

HWY_ATTR void AddBias(int64_t rows, int64_t cols, const float* bias, Block c) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = c.data + r * c.stride;
    ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, row + i), hn::LoadU(d, bias + i)), d, row + i);
    });
  }
}

HWY_ATTR void AddBiasGelu(int64_t rows, int64_t cols, const float* bias, Block z, Block gelu) {
  for (int64_t r = 0; r < rows; ++r) {
    float* z_row = z.data + r * z.stride;
    float* out = gelu.data + r * gelu.stride;
    ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR {
      auto v = hn::LoadU(d, z_row + i);
      if (bias != nullptr) {
        v = hn::Add(v, hn::LoadU(d, bias + i));
        hn::StoreU(v, d, z_row + i);
      }
      hn::StoreU(hn::Mul(v, GeluGate(d, v)), d, out + i);
    });
  }
}

HWY_ATTR void MultiplyByGeluGradient(int64_t rows, int64_t cols, ConstBlock z, Block dz) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* z_row = z.data + r * z.stride;
    float* row = dz.data + r * dz.stride;
    ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + i), GeluGradient(d, hn::LoadU(d, z_row + i))), d, row + i);
    });
  }
}

HWY_ATTR void AddTo(int64_t count, const float* from, float* to) {
  ForColumns(count, [=](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  });
}

HWY_ATTR void AddRows(int64_t count, const float* a, const float* b, float* to) {
  ForColumns(count, [=](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  });
}

HWY_ATTR void ColumnSums(int64_t rows, int64_t cols, ConstBlock x, float* sums) {
  ForColumns(cols, [=](auto d, int64_t i) HWY_ATTR { hn::StoreU(hn::Zero(d), d, sums + i); });
  for (int64_t r = 0; r < rows; ++r) AddTo(cols, x.data + r * x.stride, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {

HWY_EXPORT(AddBias);
HWY_EXPORT(AddBiasGelu);
HWY_EXPORT(MultiplyByGeluGradient);
HWY_EXPORT(ColumnSums);
HWY_EXPORT(AddTo);
HWY_EXPORT(AddRows);

void AddBias(int64_t rows, int64_t cols, const float* bias, Block c) {
  HWY_DYNAMIC_DISPATCH(AddBias)(rows, cols, bias, c);
}
void AddBiasGelu(int64_t rows, int64_t cols, const float* bias, Block z, Block gelu) {
  HWY_DYNAMIC_DISPATCH(AddBiasGelu)(rows, cols, bias, z, gelu);
}
void MultiplyByGeluGradient(int64_t rows, int64_t cols, ConstBlock z, Block d) {
  HWY_DYNAMIC_DISPATCH(MultiplyByGeluGradient)(rows, cols, z, d);
}
void ColumnSums(int64_t rows, int64_t cols, ConstBlock x, float* sums) {
  HWY_DYNAMIC_DISPATCH(ColumnSums)(rows, cols, x, sums);
}
void AddTo(int64_t count, const float* from, float* to) { HWY_DYNAMIC_DISPATCH(AddTo)(count, from, to); }
void AddRows(int64_t count, const float* a, const float* b, float* to) {
  HWY_DYNAMIC_DISPATCH(AddRows)(count, a, b, to);
}

}  // namespace normlab::cpu
#endif  // HWY_ONCE
