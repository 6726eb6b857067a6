#pragma once
// For tests: a locale that writes 0.5 as "0,5", for as long as an object lives. One of the system's if it has
// any, else one that localedef compiles into a folder of the test (a few seconds; it needs the sources of
// locales, on Debian from the package `locales`). Not for tests that run threads: a locale is the process's.

#include <clocale>
#include <cstdlib>
#include <optional>
#include <string>

#include "normlab/base/testing/files.h"

namespace normlab::testing {

class CommaLocale {
 public:
  CommaLocale() {
    for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "fr_FR.utf8"})
      if (Set(name)) return;
    folder_.emplace();
    const std::string target = (folder_->path() / "de_DE.UTF-8").string();
    // Exits 1 for warnings too; what counts is whether the locale can be set.
    [[maybe_unused]] const int status =
        std::system(("localedef -i de_DE -f UTF-8 '" + target + "' > /dev/null 2>&1").c_str());
    ::setenv("LOCPATH", folder_->path().c_str(), 1);
    Set("de_DE.UTF-8");
  }
  ~CommaLocale() {
    std::setlocale(LC_ALL, "C");
    if (folder_) ::unsetenv("LOCPATH");
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

  // False where this machine has no such locale and cannot make one: the test should skip.
  explicit operator bool() const { return set_; }

 private:
  bool Set(const char* name) {
    set_ = std::setlocale(LC_ALL, name) != nullptr && std::string(std::localeconv()->decimal_point) == ",";
    return set_;
  }

  std::optional<TempFolder> folder_;
  bool set_ = false;
};

}  // namespace normlab::testing
