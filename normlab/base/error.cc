#include "normlab/base/error.h"

namespace normlab::internal {

void CheckFailed(const char* file, int line, const char* condition, const std::string& values) {
  throw std::logic_error(values.empty()
                             ? fmt::format("{}:{}: check failed: {}", file, line, condition)
                             : fmt::format("{}:{}: check failed: {} ({})", file, line, condition, values));
}

}  // namespace normlab::internal
