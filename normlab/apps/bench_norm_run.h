#pragma once
// Runs the cases of `normlab bench kernels`: memory for them, and each case as a duel of its implementations
// with a stream that reads and writes the same.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "normlab/apps/bench_norm_cases.h"
#include "normlab/base/memory.h"
#include "normlab/kernels/device.h"
#include "normlab/study/duel.h"

namespace normlab::apps {

struct NormBenchSettings {
  double seconds = 0.5;      // of a case, at the most
  double half_width = 0.02;  // asked for, of a share
  size_t batches = stats::kDefaultBatches;
  size_t pilot_rounds = 20;
  size_t cold_bytes = 0;    // over which cold sets rotate
  size_t memory_bytes = 0;  // that all sets together may take
  uint64_t seed = 1;
};

// Seconds of single calls.
struct CallTimes {
  size_t blocks = 0, interrupted = 0;
  double median_s = 0, first_quartile_s = 0, third_quartile_s = 0, least_s = 0;
};

struct NormContender {
  std::string name;  // "fused", "handrolled", ...; "copy"; "stream" or "memcpy": the yardstick
  std::optional<NormImplementation> implementation;
  std::optional<std::string> refusal;  // why there are no times
  CallTimes times;
  double gb_per_s = 0;
  std::optional<double> share, share_low, share_high;  // yardstick's time / its own
  std::optional<double> copy_share;                    // its GB/s / those of the copy, where one runs too
  double call_s = 0;                                   // of the same call on one short row
  std::string limit;
};

struct NormCaseResult {
  NormCase norm_case;
  size_t bytes = 0;  // of a call
  size_t sets = 0;   // of buffers
  size_t set_bytes = 0;
  size_t calls_per_block = 0;
  bool in_cache = false;
  std::vector<NormContender> contenders;  // the yardstick first
  DuelResult duel;
};

struct NormBenchCallbacks {
  std::function<void(const DuelProgress&)> on_progress;
  const std::atomic<bool>* stop = nullptr;
};

class NormBench {
 public:
  // The device outlives the bench.
  NormBench(Device& device, const NormBenchSettings& settings, const std::vector<NormCase>& cases);
  ~NormBench();

  // Bytes over which cold sets rotate: fewer than asked for where memory is short.
  size_t cold_bytes() const;
  size_t pool_bytes() const;

  // An empty parallel region with all threads.
  double fork_s() const;

  NormCaseResult Run(const NormCase& norm_case, const NormBenchCallbacks& callbacks);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace normlab::apps
