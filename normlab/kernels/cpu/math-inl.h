// Vector functions shared by the kernels, per instruction set.
// Exp: x = n ln2 + r, |r| <= ln2/2, a degree-6 polynomial for e^r, then scaling by 2^n through the exponent
// bits. Relative error below 2e-7 for x in [-87, 88]; 0 below -87; 3.4e38 above 88.7; NaN stays NaN, since
// Max and Min return their second argument where it is NaN.

#if defined(NORMLAB_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMLAB_KERNELS_CPU_MATH_INL_H_
#undef NORMLAB_KERNELS_CPU_MATH_INL_H_
#else
#define NORMLAB_KERNELS_CPU_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^r for x = n ln2 + r, by the polynomial.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfRest(D d, V x, V n) {
  // ln2 in two parts, so that n * ln2 is exact in the first.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.0f / 720);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return p;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V FastExp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V low = hn::Set(d, -87.0f), high = hn::Set(d, 88.72283f);
  const auto too_low = hn::Lt(x, low);
  const V clamped = hn::Min(high, hn::Max(low, x));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  const V p = ExpOfRest(d, clamped, n);
  // n <= 128: split the scaling so that 2^128 is not formed.
  const auto ni = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(ni);
  const auto bias = hn::Set(di, 127);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(ni, half), bias)));
  const V e = hn::Mul(hn::Mul(p, scale1), scale2);
  return hn::IfThenElse(too_low, hn::Zero(d), e);
}

// e^x for x <= 0, or above it by no more than rounding: the same polynomial without the cases of large x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FastExpNonPositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V low = hn::Set(d, -87.0f);
  const auto too_low = hn::Lt(x, low);
  const V clamped = hn::Max(low, x);
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  const V p = ExpOfRest(d, clamped, n);
  // n >= -126: 2^n is a normal number, and p times it too but for the last step above e^-87.
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
  return hn::IfThenElse(too_low, hn::Zero(d), hn::Mul(p, scale));
}

// e^x where the result goes into a number of 16 bits: a degree-4 polynomial, x n ln2 in one part. For
// |x| <= 87 the relative error is below 6e-5 (5e-5 of the polynomial at |r| = ln2 / 2, 6e-8 * 87 of the
// rest), beside the 4e-3 of a rounding to bf16. Below it is e^-87, above 88.37 2.4e38, whose reciprocal is
// flushed to 0. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V CoarseExp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V clamped = hn::Min(hn::Set(d, 88.37f), hn::Max(hn::Set(d, -87.0f), x));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.69314718056f), clamped);
  V p = hn::Set(d, 1.0f / 24);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
  return hn::Mul(p, scale);
}

// 1 / x to a few units in the last place, for x from 1 to the largest float: an estimate and one step of
// Newton's method.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FastReciprocal(D d, V x) {
  const V estimate = hn::ApproximateReciprocal(x);
  return hn::Mul(estimate, hn::NegMulAdd(x, estimate, hn::Set(d, 2.0f)));
}

// 1 / (1 + e^-2u) with u = sqrt(2/pi) (z + 0.044715 z^3), so that GELU(z) = z * GeluGate(z):
// 0.5 (1 + tanh u) = 1 / (1 + e^-2u) without the cancellation of 1 + tanh. Hendrycks and Gimpel 2016,
// arXiv:1606.08415 (the tanh form, as GPT-2 has it).
constexpr float kGeluTwoRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.044715f;

// How exactly: as fp32 can, or as a result of 16 bits needs it, in half the time.
enum class Precision { kF32, k16Bits };

template <Precision kPrecision = Precision::kF32, class D, class V = hn::Vec<D>>
HWY_INLINE V GeluGate(D d, V z) {
  const V z2 = hn::Mul(z, z);
  const V two_u =
      hn::Mul(hn::Mul(z, hn::Set(d, kGeluTwoRoot)), hn::MulAdd(z2, hn::Set(d, kGeluCubic), hn::Set(d, 1.0f)));
  const V one = hn::Set(d, 1.0f);
  if constexpr (kPrecision == Precision::k16Bits)
    return FastReciprocal(d, hn::Add(one, CoarseExp(d, hn::Neg(two_u))));
  else
    return hn::Div(one, hn::Add(one, FastExp(d, hn::Neg(two_u))));
}

// d GELU / dz = s + z s (1 - s) d(2u)/dz
template <Precision kPrecision = Precision::kF32, class D, class V = hn::Vec<D>>
HWY_INLINE V GeluGradient(D d, V z) {
  const V s = GeluGate<kPrecision>(d, z);
  const V z2 = hn::Mul(z, z);
  const V slope =
      hn::Mul(hn::Set(d, kGeluTwoRoot), hn::MulAdd(z2, hn::Set(d, 3 * kGeluCubic), hn::Set(d, 1.0f)));
  const V curve = hn::Mul(hn::Mul(hn::Mul(z, s), hn::Sub(hn::Set(d, 1.0f), s)), slope);
  // Where z is large s (1 - s) is 0 and slope may be infinite: the limit of the product is 0.
  return hn::IfThenElse(hn::Gt(hn::Abs(z), hn::Set(d, 40.0f)), s, hn::Add(s, curve));
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#endif  // NORMLAB_KERNELS_CPU_MATH_INL_H_
