#pragma once
// How cells that run at the same time share the threads of the program.

namespace normlab::apps {

struct CellShare {
  int jobs = 1;     // cells at the same time
  int threads = 1;  // of each: all the same, so that their times may be compared
};

// Divides them evenly; a rest stays unused. Throws UsageError where a cell would have no thread.
CellShare DivideThreads(int threads, int jobs);

}  // namespace normlab::apps
