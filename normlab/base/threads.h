#pragma once
// The one way in which kernels and models share work among threads. OpenMP is the pool; beside ParallelFor
// only the files that talk to oneDNN use it, whose products run on the same pool. Work is cut into chunks by
// its shape alone, and a chunk's result never depends on who computes it, so every thread count gives the
// same bits. Inside ParallelFor, every thread flushes denormals to zero (the caller's setting is restored):
// models without a norm produce denormals, and arithmetic on them is so slow that speed would measure that
// instead.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "normlab/base/cgroup.h"

namespace normlab {

// Threads that this process may use: the smallest of its CPU affinity and its cgroup's CPU quota, at least 1.
int DefaultThreads();

// What limits DefaultThreads(), for the run header and for tests: affinity count and quota if there is one.
struct ThreadLimits {
  int affinity = 1;
  std::optional<double> cgroup_quota;  // in CPUs
  int threads() const;
};
ThreadLimits ReadThreadLimits(const CgroupPlace& cgroup = {});

// How many threads besides this one the system lets the process have at once, up to `wanted`: they are
// started for a moment and ended. OpenMP ends the whole program where it cannot start one, so ask before it
// does.
int StartableThreads(int wanted);

// Address space that each thread's stack takes; memory only as far as it is touched.
uint64_t ThreadStackBytes();

// The OpenMP runtime that runs our threads: "OpenMP libgomp.so.1".
std::string ThreadRuntime();

// What threads of that pool do while they wait, as the environment told the runtime when it was loaded:
// "passive" (they sleep) or "active" (they spin) of OMP_WAIT_POLICY, "spin 1000" of GOMP_SPINCOUNT, "default"
// (they spin for a while). Speed depends on it by factors.
std::string ThreadWaitPolicy();

// The OpenMP runtimes that are loaded, by the names of their files. Two in one process would each start a
// thread per core.
std::vector<std::string> LoadedThreadRuntimes();

// Flush-to-zero and denormals-are-zero for the current thread, for the lifetime of the object.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t saved_;
};

// Calls body(chunk, thread) for chunk = 0 .. chunks-1, each once, on at most `threads` threads;
// thread < threads names the caller's slot, for scratch memory. Each thread starts on a contiguous run of
// chunks, the same in every call of this shape, so that data stays in its core's cache; one that is done
// early helps the others. Runs in the calling thread alone where one thread is asked for or one chunk exists.
// The first exception of a body is thrown again in the caller after all have ended.
namespace internal {
void ParallelForImpl(int threads, int64_t chunks, void (*body)(void*, int64_t, int), void* context);
}
template <class Body>
void ParallelFor(int threads, int64_t chunks, Body&& body) {
  internal::ParallelForImpl(
      threads, chunks,
      [](void* context, int64_t chunk, int thread) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(chunk, thread);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace normlab
