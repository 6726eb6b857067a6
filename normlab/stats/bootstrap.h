#pragma once
// BCa bootstrap interval (bias-corrected and accelerated) for a mean.
//   z0 = Phi^-1(share of resampled means below the observed one, ties half)
//   a  = sum(u^3) / (6 (sum u^2)^1.5),  u_i = mean of the jackknife means - jackknife mean i
//   end points: quantiles (type 7) of the resampled means at Phi(z0 + (z0 + z) / (1 - a (z0 + z))),
//   z = Phi^-1(alpha/2) and Phi^-1(1 - alpha/2)
// Assumes: independent values. Covers far too little for few of them (72/83/87/94% instead of 95% at n =
// 3/5/8/20), so a comparison shows it from n = kMinBootstrapSize on only; the function takes any n >= 2.
// Empty if the values are all equal or the correction is undefined.
// Deterministic for a given seed: a 64-bit Mersenne twister, drawn from by our own arithmetic, which gives
// the same resamples with every standard library.
// Throws Error on fewer than 2 or non-finite values, alpha outside (0, 1), resamples < 100.
// Source: Efron 1987, JASA 82(397).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "normlab/stats/interval.h"

namespace normlab::stats {

inline constexpr std::size_t kMinBootstrapSize = 20;

struct BootstrapOptions {
  double alpha = 0.05;
  std::size_t resamples = 9'999;
  std::uint64_t seed = 1;  // of a stream of its own
};

std::optional<Interval> BcaInterval(std::span<const double> values, const BootstrapOptions& options = {});

}  // namespace normlab::stats
