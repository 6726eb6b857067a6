#pragma once
// How normlab reports what went wrong.
//   Error      a mistake of the user: the message says what was given, what is allowed, what to do.
//   NL_CHECK   a bug of ours: prints the condition and both values; always on, throws std::logic_error.
// The library never prints or exits; the program catches once, in main.

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace normlab {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A command line or key that cannot be understood at all; the program exits 2 instead of 1.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& values);

template <class A, class B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* condition, const A& a, const B& b) {
  CheckFailed(file, line, condition, fmt::format("{} against {}", a, b));
}
}  // namespace internal

#define NL_CHECK(condition)                                                 \
  do {                                                                      \
    if (!(condition)) [[unlikely]]                                          \
      ::normlab::internal::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

#define NL_CHECK_OP(a, op, b)                                                                \
  do {                                                                                       \
    const auto nl_a = (a);                                                                   \
    const auto nl_b = (b);                                                                   \
    if (!(nl_a op nl_b)) [[unlikely]]                                                        \
      ::normlab::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, nl_a, nl_b); \
  } while (false)

#define NL_CHECK_EQ(a, b) NL_CHECK_OP(a, ==, b)
#define NL_CHECK_LE(a, b) NL_CHECK_OP(a, <=, b)

}  // namespace normlab
