#include "normlab/base/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace normlab {
namespace {

int AffinityCount() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// The cgroup v2 quota ("max 100000" or "150000 100000"), else that of v1; nothing where neither limits.
std::optional<double> CgroupQuota(const std::string& root) {
  std::ifstream v2(root + "/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) return std::stod(quota) / period;
  std::ifstream v1_quota(root + "/cpu/cpu.cfs_quota_us"), v1_period(root + "/cpu/cpu.cfs_period_us");
  double micros = 0;
  if (v1_quota >> micros && v1_period >> period && micros > 0 && period > 0) return micros / period;
  return std::nullopt;
}

}  // namespace

int ThreadLimits::threads() const {
  if (!cgroup_quota) return affinity;
  return std::max(1, std::min(affinity, static_cast<int>(std::ceil(*cgroup_quota))));
}

ThreadLimits ReadThreadLimits(const char* cgroup_root) {
  return {.affinity = AffinityCount(), .cgroup_quota = CgroupQuota(cgroup_root)};
}

int DefaultThreads() { return ReadThreadLimits().threads(); }

#if defined(__x86_64__)
FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }  // FTZ | DAZ
FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }
#else
FlushDenormals::FlushDenormals() : saved_(0) {}
FlushDenormals::~FlushDenormals() = default;
#endif

namespace {

// One thread's share of the chunks. Whoever takes a chunk counts `next` up.
struct alignas(64) Share {
  std::atomic<int64_t> next;
  int64_t end;
};

}  // namespace

namespace internal {

void ParallelForImpl(int threads, int64_t chunks, void (*body)(void*, int64_t, int), void* context) {
  if (chunks <= 0) return;
  const int team = static_cast<int>(std::min<int64_t>(threads, chunks));
  if (team <= 1) {
    const FlushDenormals flush;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(context, chunk, 0);
    return;
  }
  const auto shares = std::make_unique<Share[]>(static_cast<size_t>(team));
  for (int64_t i = 0; i < team; ++i) {
    shares[static_cast<size_t>(i)].next = chunks * i / team;
    shares[static_cast<size_t>(i)].end = chunks * (i + 1) / team;
  }
  std::exception_ptr first_error;
  std::mutex mutex;
#pragma omp parallel num_threads(team)
  {
    const FlushDenormals flush;
    const int thread = omp_get_thread_num();
    try {
      // A thread works through its own share, then helps with the others', so that one that the system
      // takes away for a moment (or that never came) holds nobody up.
      for (int i = 0; i < team; ++i) {
        Share& share = shares[static_cast<size_t>((thread + i) % team)];
        for (int64_t chunk; (chunk = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
          body(context, chunk, thread);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
    }
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace internal
}  // namespace normlab
