#include "normlab/base/threads.h"

#include <dlfcn.h>
#include <link.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

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

}  // namespace

int ThreadLimits::threads() const {
  if (!cgroup_quota) return affinity;
  return std::max(1, std::min(affinity, static_cast<int>(std::ceil(*cgroup_quota))));
}

ThreadLimits ReadThreadLimits(const CgroupPlace& cgroup) {
  return {.affinity = AffinityCount(), .cgroup_quota = CgroupCpuQuota(cgroup)};
}

int DefaultThreads() { return ReadThreadLimits().threads(); }

int StartableThreads(int wanted) {
  std::mutex mutex;
  std::condition_variable end;
  bool ended = false;
  std::vector<std::thread> threads;
  try {
    for (int i = 0; i < wanted; ++i)
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        end.wait(lock, [&] { return ended; });
      });
  } catch (const std::system_error&) {  // no more of them, or
  } catch (const std::bad_alloc&) {     // no memory for one
  }
  {
    const std::lock_guard lock(mutex);
    ended = true;
  }
  end.notify_all();
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

uint64_t ThreadStackBytes() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (::pthread_attr_init(&attributes) != 0) return 0;
  ::pthread_attr_getstacksize(&attributes, &bytes);
  ::pthread_attr_destroy(&attributes);
  return bytes;
}

namespace {

std::string_view FileName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool IsThreadRuntime(std::string_view file) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"libgomp", "libomp", "libiomp5"};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return file.starts_with(prefix); });
}

}  // namespace

std::string ThreadRuntime() {
  // Whose function a call reaches, as the loader decided.
  Dl_info info{};
  void* const symbol = ::dlsym(RTLD_DEFAULT, "omp_get_max_threads");
  if (symbol == nullptr || ::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "OpenMP";
  return "OpenMP " + std::string(FileName(info.dli_fname));
}

std::string ThreadWaitPolicy() {
  const auto setting = [](const char* name) {
    const char* value = std::getenv(name);
    std::string text = value == nullptr ? "" : value;
    std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  if (const std::string count = setting("GOMP_SPINCOUNT"); !count.empty()) return "spin " + count;
  const std::string policy = setting("OMP_WAIT_POLICY");
  return policy == "active" || policy == "passive" ? policy : "default";
}

std::vector<std::string> LoadedThreadRuntimes() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        const std::string_view file = FileName(info->dlpi_name == nullptr ? "" : info->dlpi_name);
        if (IsThreadRuntime(file)) static_cast<std::vector<std::string>*>(context)->emplace_back(file);
        return 0;
      },
      &names);
  return names;
}

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
