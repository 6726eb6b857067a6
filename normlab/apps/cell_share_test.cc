#include "normlab/apps/cell_share.h"

#include <array>

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/testing/files.h"

namespace normlab::apps {
namespace {

TEST(CellShareTest, ThreadsAreDividedEvenly) {
  for (const auto& [threads, jobs, each] :
       {std::array{1, 1, 1}, {2, 1, 2}, {2, 2, 1}, {16, 4, 4}, {7, 2, 3}}) {
    const CellShare share = DivideThreads(threads, jobs);
    EXPECT_EQ(share.jobs, jobs);
    EXPECT_EQ(share.threads, each) << threads << " threads, " << jobs << " jobs";
  }
}

TEST(CellShareTest, ACellWithoutAThreadIsRefused) {
  const std::string message = testing::ErrorOf<UsageError>([] { DivideThreads(2, 3); });
  EXPECT_TRUE(testing::Says(message, {"--jobs 3", "there are 2", "--jobs 2 or fewer", "--threads"}));
}

}  // namespace
}  // namespace normlab::apps
