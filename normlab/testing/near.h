#pragma once
// How tests compare numbers. Every comparison divides the error by a tolerance that a formula derived; the
// largest quotient is kept with its place, printed, and fails above 1. A NaN, a missing element or an
// infinite error fails whatever the tolerance. A quotient that stays below 0.01 everywhere says that the
// tolerance is too loose.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace normlab::test {

inline constexpr double kUnitF32 = 0x1p-24;  // half the distance from 1 to the next float
inline constexpr double kUnitF64 = 0x1p-53;

// |got - want| / tolerance, 0 where they are equal, infinite where either is NaN or the tolerance does not
// allow any error.
inline double ErrorShare(double got, double want, double tolerance) {
  if (got == want) return 0;
  const double share = std::abs(got - want) / tolerance;
  return share >= 0 ? share : std::numeric_limits<double>::infinity();  // NaN compares false
}

// The worst of many compared elements.
class Comparison {
 public:
  explicit Comparison(std::string what = "") : what_(std::move(what)) {}

  void Add(double got, double want, double tolerance, int64_t index) {
    const double share = ErrorShare(got, want, tolerance);
    ++count_;
    nonzero_ += want != 0;
    largest_ = std::max(largest_, std::abs(want));
    if (share > worst_ || (count_ == 1)) {
      worst_ = share;
      got_ = got, want_ = want, tolerance_ = tolerance, index_ = index;
    }
  }
  // Spans of one length; another length fails.
  void AddAll(std::span<const double> got, std::span<const double> want, std::span<const double> tolerance) {
    if (got.size() != want.size() || tolerance.size() != want.size()) {
      Add(std::numeric_limits<double>::quiet_NaN(), static_cast<double>(want.size()), 0, -1);
      return;
    }
    for (size_t i = 0; i < want.size(); ++i) Add(got[i], want[i], tolerance[i], static_cast<int64_t>(i));
  }

  // Joins the elements of another comparison.
  void Add(const Comparison& other) {
    const Comparison& worse = other.worst_ > worst_ || count_ == 0 ? other : *this;
    worst_ = worse.worst_, got_ = worse.got_, want_ = worse.want_, tolerance_ = worse.tolerance_,
    index_ = worse.index_;
    largest_ = std::max(largest_, other.largest_);
    count_ += other.count_;
    nonzero_ += other.nonzero_;
  }

  double worst() const { return worst_; }
  int64_t count() const { return count_; }
  int64_t nonzero() const { return nonzero_; }  // expected values that are not zero
  double largest() const { return largest_; }   // expected value, absolute
  const std::string& what() const { return what_; }
  std::string ToString() const {
    return fmt::format(
        "{}: worst error/tolerance {:.3g} of {} values, at {}: got {:.9g}, want {:.9g}, tolerance {:.3g}",
        what_, worst_, count_, index_, got_, want_, tolerance_);
  }

 private:
  std::string what_;
  double worst_ = 0, got_ = 0, want_ = 0, tolerance_ = 0, largest_ = 0;
  int64_t count_ = 0, nonzero_ = 0, index_ = -1;
};

// EXPECT_TRUE(Within(comparison, repro)): nothing compared is a failure too.
inline ::testing::AssertionResult Within(const Comparison& comparison, const std::string& repro) {
  if (comparison.count() > 0 && comparison.worst() <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << comparison.ToString() << "\n  repro: " << repro;
}

// Equal bits; a NaN equals a NaN.
inline ::testing::AssertionResult SameBits(std::span<const double> a, std::span<const double> b,
                                           const char* what) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << what << ": " << a.size() << " values against " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same =
        (a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i])) || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same)
      return ::testing::AssertionFailure()
             << fmt::format("{}: element {} is {:.17g} against {:.17g}", what, i, a[i], b[i]);
  }
  return ::testing::AssertionSuccess();
}

// The seed of random tests; NORMLAB_TEST_SEED changes it.
inline uint64_t Seed() {
  const char* text = std::getenv("NORMLAB_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

// The command that runs the current test on the same numbers.
inline std::string Repro(const std::string& case_text) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return fmt::format("NORMLAB_TEST_SEED={} --gtest_filter={}.{}   case: {}", Seed(),
                     info ? info->test_suite_name() : "?", info ? info->name() : "?", case_text);
}

// One line of the log: the worst quotient, and a warning where the tolerance never came near to mattering.
inline void LogWorst(const Comparison& comparison, bool exact = false) {
  std::printf(
      "[  worst   ] %s%s\n", comparison.ToString().c_str(),
      !exact && comparison.worst() < 0.01 ? "   WARNING: below 0.01, the tolerance is too loose" : "");
}

}  // namespace normlab::test
