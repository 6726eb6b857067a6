#include "normlab/stats/power.h"

#include <algorithm>
#include <array>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/quadrature/gauss.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <numbers>

#include "normlab/base/error.h"
#include "normlab/stats/arguments.h"
#include "normlab/stats/paired_t.h"

namespace normlab::stats {
namespace {

double Phi(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

// E[g(u)], u = s / sigma with df degrees of freedom: u sqrt(df) is chi-distributed. g may bend sharply near
// `bend` within `width` of it, and is 0 above `end`.
template <class G>
double ExpectOverSd(double df, double bend, double width, double end, const G& g) {
  const double log_scale = std::numbers::ln2 + 0.5 * df * std::log(0.5 * df) - boost::math::lgamma(0.5 * df);
  const auto integrand = [&](double u) {
    if (!(u > 0)) return 0.0;
    return std::exp(log_scale + (df - 1) * std::log(u) - 0.5 * df * u * u) * g(u);
  };
  // u has standard deviation of about 1 / sqrt(2 df); less than 1e-13 lies beyond 9 of them, for df = 1 too.
  const double reach = 9 / std::sqrt(2 * df);
  const double low = std::max(0.0, 1 - reach);
  const double high = std::min(end, 1 + reach);
  if (!(high > low)) return 0;

  // Panels of a few standard deviations, cut where g bends, so that 20 nodes resolve each.
  std::array<double, 8> cuts = {
      low,  low + (high - low) / 4, low + (high - low) / 2, high - (high - low) / 4, high, bend - 6 * width,
      bend, bend + 6 * width};
  for (double& cut : cuts) cut = std::clamp(cut, low, high);
  std::sort(cuts.begin(), cuts.end());
  double sum = 0;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const double middle = 0.5 * (cuts[i] + cuts[i + 1]);
    if (!(cuts[i + 1] > cuts[i])) continue;
    using Rule = boost::math::quadrature::gauss<double, 20>;
    sum += Rule::integrate(integrand, cuts[i], middle) + Rule::integrate(integrand, middle, cuts[i + 1]);
  }
  return sum;
}

// The least n in [3, kMaxPlannedSeeds] with power(n) >= target, for a power that grows with n.
template <class Power>
std::optional<int> LeastSeeds(double guess, double target, const Power& power) {
  if (!(guess < 2.0 * static_cast<double>(kMaxPlannedSeeds))) return std::nullopt;
  std::size_t enough = std::max<std::size_t>(3, static_cast<std::size_t>(guess));
  std::size_t step = 1 + enough / 64;
  std::size_t too_few = 2;  // below the smallest plan
  if (power(enough) >= target) {
    while (enough > 3) {
      const std::size_t next = enough > 3 + step ? enough - step : 3;
      if (!(power(next) >= target)) {
        too_few = next;
        break;
      }
      enough = next;
      step *= 2;
    }
  } else {
    do {
      too_few = enough;
      enough += step;
      step *= 2;
      if (enough > 2 * kMaxPlannedSeeds) return std::nullopt;
    } while (!(power(enough) >= target));
  }
  while (enough - too_few > 1) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    (power(middle) >= target ? enough : too_few) = middle;
  }
  if (enough > kMaxPlannedSeeds) return std::nullopt;
  return static_cast<int>(enough);
}

double NormalQuantile(double p) { return boost::math::quantile(boost::math::normal(), p); }

std::optional<int> LargerPlan(double margin_over_sd, double alpha, double power) {
  const std::optional<int> difference = SeedsForDifference(margin_over_sd, alpha, power);
  const std::optional<int> equivalence = SeedsForEquivalence(margin_over_sd, alpha, power);
  if (!difference || !equivalence) return std::nullopt;
  return std::max(*difference, *equivalence);
}

}  // namespace

double PairedTPower(const PairedTPowerArgs& args) {
  if (args.n < 2) Fail("PairedTPower: n is {}; it must be at least 2", args.n);
  RequireFraction("PairedTPower", "alpha", args.alpha);
  if (!std::isfinite(args.effect)) Fail("PairedTPower: effect is {}; it must be finite", args.effect);
  const double df = static_cast<double>(args.n - 1);
  const double critical = StudentCritical(args.alpha / 2, df);
  const double ncp = std::abs(args.effect) * std::sqrt(static_cast<double>(args.n));

  // The test rejects when |mean| sqrt(n) / sigma > critical u; its mean there is ncp.
  const double power = ExpectOverSd(df, ncp / critical, 1 / critical, HUGE_VAL, [&](double u) {
    return Phi(ncp - critical * u) + Phi(-ncp - critical * u);
  });
  return std::min(power, 1.0);
}

double EquivalencePower(const EquivalencePowerArgs& args) {
  if (args.n < 2) Fail("EquivalencePower: n is {}; it must be at least 2", args.n);
  RequirePositive("EquivalencePower", "margin", args.margin);
  if (!(args.alpha > 0 && args.alpha < 0.5)) {
    Fail("EquivalencePower: alpha is {}; it must lie between 0 and 0.5", args.alpha);
  }
  if (!std::isfinite(args.effect)) Fail("EquivalencePower: effect is {}; it must be finite", args.effect);
  const double root_n = std::sqrt(static_cast<double>(args.n));
  const double df = static_cast<double>(args.n - 1);
  const double critical = StudentCritical(args.alpha, df);
  const double margin = args.margin * root_n;
  const double ncp = std::abs(args.effect) * root_n;

  // mean sqrt(n) / sigma must lie within margin - critical u of 0; no room is left above u = margin /
  // critical.
  const double end = margin / critical;
  const double power =
      ExpectOverSd(df, std::max(0.0, margin - ncp) / critical, 1 / critical, end, [&](double u) {
        const double room = margin - critical * u;
        return room > 0 ? Phi(room - ncp) - Phi(-room - ncp) : 0.0;
      });
  return std::clamp(power, 0.0, 1.0);
}

std::optional<int> SeedsForDifference(double margin_over_sd, double alpha, double power) {
  RequirePositive("SeedsForDifference", "margin / sd", margin_over_sd);
  RequireFraction("SeedsForDifference", "alpha", alpha);
  RequireFraction("SeedsForDifference", "power", power);
  const double z = NormalQuantile(1 - alpha / 2) + NormalQuantile(power);
  return LeastSeeds(z * z / (margin_over_sd * margin_over_sd), power, [&](std::size_t n) {
    return PairedTPower({.n = n, .effect = margin_over_sd, .alpha = alpha});
  });
}

std::optional<int> SeedsForEquivalence(double margin_over_sd, double alpha, double power) {
  RequirePositive("SeedsForEquivalence", "margin / sd", margin_over_sd);
  RequireFraction("SeedsForEquivalence", "power", power);
  RequireFraction("SeedsForEquivalence", "alpha", 2 * alpha);
  const double z = NormalQuantile(1 - alpha) + NormalQuantile((1 + power) / 2);
  return LeastSeeds(z * z / (margin_over_sd * margin_over_sd), power, [&](std::size_t n) {
    return EquivalencePower({.n = n, .effect = 0, .margin = margin_over_sd, .alpha = alpha});
  });
}

SeedPlan SeedsNeeded(const SeedPlanArgs& args) {
  if (args.n < 2) Fail("SeedsNeeded: n is {}; it must be at least 2", args.n);
  RequirePositive("SeedsNeeded", "sd", args.sd);
  RequirePositive("SeedsNeeded", "margin", args.margin);
  const double df = static_cast<double>(args.n - 1);
  const boost::math::chi_squared chi2(df);
  const double sd_low = args.sd * std::sqrt(df / boost::math::quantile(chi2, 0.9));
  const double sd_high = args.sd * std::sqrt(df / boost::math::quantile(chi2, 0.1));
  return {.seeds = LargerPlan(args.margin / args.sd, args.alpha, args.power),
          .low = LargerPlan(args.margin / sd_low, args.alpha, args.power),
          .high = LargerPlan(args.margin / sd_high, args.alpha, args.power)};
}

double SmallestDetectable(std::size_t n, double sd, double alpha, double power) {
  if (n < 2) Fail("SmallestDetectable: n is {}; it must be at least 2", n);
  RequirePositive("SmallestDetectable", "sd", sd);
  RequireFraction("SmallestDetectable", "power", power);
  if (!(power > alpha)) Fail("SmallestDetectable: power {} is not above alpha {}", power, alpha);
  const auto power_at = [&](double effect) {
    return PairedTPower({.n = n, .effect = effect, .alpha = alpha});
  };

  // Power grows with the effect: bracket, then halve down to 1e-7 of it.
  double low = 0;
  double high = 1;
  while (!(power_at(high) >= power)) {
    low = high;
    high *= 2;
    NL_CHECK(high < 1e9);
  }
  while (high - low > 1e-7 * high) {
    const double middle = 0.5 * (low + high);
    (power_at(middle) >= power ? high : low) = middle;
  }
  return high * sd;
}

}  // namespace normlab::stats
