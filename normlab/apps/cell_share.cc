#include "normlab/apps/cell_share.h"

#include "normlab/base/error.h"

namespace normlab::apps {

CellShare DivideThreads(int threads, int jobs) {
  NL_CHECK(threads >= 1 && jobs >= 1);
  if (jobs > threads)
    throw UsageError(fmt::format(
        "--jobs {} needs a thread for each cell, and there {} {}; take --jobs {}{}, or give more --threads",
        jobs, threads == 1 ? "is" : "are", threads, threads, threads == 1 ? "" : " or fewer"));
  return {.jobs = jobs, .threads = threads / jobs};
}

}  // namespace normlab::apps
