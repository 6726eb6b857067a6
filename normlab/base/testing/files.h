#pragma once
// What tests of files and messages share: a folder of one's own, removed at the end, and checks of error
// messages.

#include <stdlib.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/files.h"

namespace normlab::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string name = ::testing::TempDir() + "normlab-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      ADD_FAILURE() << "no temporary folder under " << ::testing::TempDir();
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  // Writes a file here and returns its path.
  std::filesystem::path Write(std::string_view name, std::string_view bytes) const {
    WriteFileAtomic(path_ / name, bytes);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// The message of the Error that f throws; a failed check where it throws none.
template <class Exception = Error, class F>
std::string ErrorOf(F&& f) {
  try {
    f();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

// Holds where `message` contains every one of `parts`.
inline ::testing::AssertionResult Says(const std::string& message, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (message.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
  return ::testing::AssertionSuccess();
}
#define EXPECT_SAYS(message, ...) EXPECT_TRUE(::normlab::testing::Says(message, __VA_ARGS__))

}  // namespace normlab::testing
