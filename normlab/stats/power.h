#pragma once
// What a study of n paired seeds can see, and how many seeds a question needs.
// Powers are integrals over the distribution of s (a chi density) of a normal probability, by Gauss-Legendre
// quadrature. That holds where library noncentral t functions return NaN (large ncp or df), and needs no
// second path.
// Assumes: normal differences with standard deviation sigma.
// Accuracy: 1e-9 against scipy's nct where that is finite.
// Throws Error if n < 2, or a level or a power is outside (0, 1), or sd or margin is not above 0.
// Source: Johnson & Welch 1940, Biometrika 31 (noncentral t); Phillips 1990, J. Pharmacokin. Biopharm. 18(2)
// (power of the two one-sided tests).

#include <cstddef>
#include <optional>

namespace normlab::stats {

// P(|T| > t(1 - alpha/2, n - 1)), T noncentral t with n - 1 degrees of freedom and ncp = effect sqrt(n).
struct PairedTPowerArgs {
  std::size_t n = 0;
  double effect = 0;  // delta / sigma, either sign
  double alpha = 0.05;
};
double PairedTPower(const PairedTPowerArgs& args);

// P(I_E inside (-m, m)) of the two one-sided tests, each at level alpha (equivalence.h).
struct EquivalencePowerArgs {
  std::size_t n = 0;
  double effect = 0;  // delta / sigma
  double margin = 0;  // m / sigma
  double alpha = 0.05;
};
double EquivalencePower(const EquivalencePowerArgs& args);

inline constexpr std::size_t kMaxPlannedSeeds = 1'000'000;

// The least n >= 3 with the power asked for; empty if that is above kMaxPlannedSeeds.
std::optional<int> SeedsForDifference(double margin_over_sd, double alpha, double power = 0.8);
std::optional<int> SeedsForEquivalence(double margin_over_sd, double alpha, double power = 0.8);

// The larger of the n that sees |delta| = m and the n that shows equivalence where delta = 0, both with the
// power asked for. Planned for the margin, never for the difference that was observed.
struct SeedPlanArgs {
  double sd = 0;      // of the differences, estimated
  std::size_t n = 0;  // from so many seeds
  double margin = 0;
  double alpha = 0.05;
  double power = 0.8;
};
// Empty members: more than kMaxPlannedSeeds. low and high: the plan at the ends of the 80% interval of sigma,
// sd sqrt(df / chi2(0.9, df)) and sd sqrt(df / chi2(0.1, df)), chi2 the quantiles of chi-squared.
struct SeedPlan {
  std::optional<int> seeds, low, high;
};
SeedPlan SeedsNeeded(const SeedPlanArgs& args);

// The |delta| that the paired t test sees with the power asked for, in the unit of sd.
double SmallestDetectable(std::size_t n, double sd, double alpha, double power = 0.8);

}  // namespace normlab::stats
