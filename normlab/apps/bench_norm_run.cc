#include "normlab/apps/bench_norm_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/interference.h"
#include "normlab/base/random.h"
#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/random_fill.h"
#include "normlab/norms/norm_list.h"
#include "normlab/stats/descriptive.h"

namespace normlab::apps {
namespace {

constexpr size_t kLine = 64;
constexpr double kBlockSeconds = 1e-4;  // at least: the clock and the calls around a block must not show
constexpr double kMostCalls = 4096;
constexpr int64_t kShortRow = 16;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

size_t Padded(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

NormSpec SpecOf(NormKind kind, NormImplementation implementation) {
  return {.kind = kind, .implementation = implementation, .eps = InfoOf(kind).default_eps};
}

bool IsBackward(NormOp op) { return op == NormOp::kBackward || op == NormOp::kBackwardAccumulate; }

// One set of buffers: offsets from its start. Backward keeps what each implementation saved for it; forward
// writes it, so that one place serves all.
struct SetLayout {
  std::vector<size_t> matrices;  // as MatricesOf
  std::vector<std::pair<NormImplementation, size_t>> saved;
  size_t bytes = 0;

  SetLayout(const Device& device, const NormCase& c, const std::vector<NormImplementation>& implementations) {
    const int64_t rows = c.shape.rows, cols = c.shape.cols;
    for (const NormMatrix& matrix : MatricesOf(c.types, c.op)) {
      matrices.push_back(bytes);
      bytes += Padded(static_cast<size_t>(rows * cols) * SizeOf(matrix.dtype));
    }
    const size_t start = bytes;
    for (const NormImplementation implementation : implementations) {
      const size_t here = IsBackward(c.op) ? bytes : start;
      saved.emplace_back(implementation, here);
      const auto count = device.NormSavedElements(SpecOf(c.norm.kind, implementation), rows, cols);
      bytes = std::max(bytes, here + Padded(static_cast<size_t>(count) * sizeof(float)));
    }
  }
};

// Implementations that take this norm and width, and those that do not, each with its reason.
std::vector<NormImplementationStatus> Candidates(const Device& device, const NormCase& c) {
  std::vector<NormImplementationStatus> candidates;
  for (NormImplementationStatus& status :
       device.NormImplementations(SpecOf(c.norm.kind, NormImplementation::kFastest), c.shape.cols)) {
    if (c.norm.implementation != NormImplementation::kFastest &&
        c.norm.implementation != status.implementation)
      continue;
    candidates.push_back(std::move(status));
  }
  if (candidates.empty())
    candidates.push_back({.implementation = c.norm.implementation,
                          .name = std::string(Name(c.norm.implementation)),
                          .refusal = "this build does not have it"});
  return candidates;
}

std::vector<NormImplementation> Accepting(const std::vector<NormImplementationStatus>& candidates) {
  std::vector<NormImplementation> accepting;
  for (const NormImplementationStatus& status : candidates)
    if (!status.refusal) accepting.push_back(status.implementation);
  return accepting;
}

// Fills the rows of a matrix; rows as the kernels cut them.
View At(char* set, size_t offset, DType dtype, const NormShape& shape) {
  return View::Dense(set + offset, dtype, {shape.rows, shape.cols});
}

// Learned parameters and their gradients, fp32, the same for every call: in training they are warm too.
struct Parameters {
  View weight, bias, alpha, dweight, dbias, dalpha;

  Parameters(Device& device, NormKind kind, int64_t cols, char* memory) {
    const NormInfo& info = InfoOf(kind);
    const auto take = [&](int64_t count, double value) {
      const View view = View::Dense(memory, DType::kF32, {count});
      memory += Padded(view.bytes());
      device.Fill(view, value);
      return view;
    };
    if (info.has_gain) weight = take(cols, 1.1), dweight = take(cols, 0);
    if (info.has_bias) bias = take(cols, 0.1), dbias = take(cols, 0);
    if (info.has_alpha) alpha = take(1, 0.5), dalpha = take(1, 0);
  }
  static size_t Bytes(int64_t cols) {
    return 4 * Padded(static_cast<size_t>(cols) * sizeof(float)) + 2 * kLine;
  }
};

// The call of one implementation: arguments made once, addresses moved to a set.
class NormCall {
 public:
  NormCall(Device& device, const NormCase& c, NormImplementation implementation, const SetLayout& layout,
           const Parameters& parameters)
      : device_(device), layout_(layout), op_(c.op) {
    for (const auto& [of, offset] : layout.saved)
      if (of == implementation) saved_ = offset;
    const NormSpec spec = SpecOf(c.norm.kind, implementation);
    const auto matrices = MatricesOf(c.types, c.op);
    const auto view = [&](size_t i) { return At(nullptr, 0, matrices[i].dtype, c.shape); };
    const View saved =
        View::Dense(nullptr, DType::kF32, {device.NormSavedElements(spec, c.shape.rows, c.shape.cols)});
    forward_ = {
        .spec = spec, .weight = parameters.weight, .bias = parameters.bias, .alpha = parameters.alpha};
    forward_.saved = saved;
    if (op_ == NormOp::kForward) {
      forward_.x = view(0), forward_.y = view(1);
    } else if (op_ == NormOp::kResidualForward) {
      forward_.residual = view(0), forward_.x = view(1), forward_.sum = view(2), forward_.y = view(3);
    } else {
      // What Backward needs is saved by a forward pass whose result lies where dx will be.
      forward_.x = view(0);
      forward_.y = At(nullptr, 0, MatricesOf(c.types, NormOp::kForward)[1].dtype, c.shape);
      backward_ = {.spec = spec,
                   .x = view(0),
                   .dy = view(1),
                   .weight = parameters.weight,
                   .alpha = parameters.alpha,
                   .saved = saved,
                   .dx = view(2),
                   .dweight = parameters.dweight,
                   .dbias = parameters.dbias,
                   .dalpha = parameters.dalpha,
                   .accumulate_dx = op_ == NormOp::kBackwardAccumulate};
    }
  }

  // Makes a set ready for Run: for backward, what forward saves.
  void Prepare(char* set) {
    if (!IsBackward(op_)) return;
    forward_.x.data = set + layout_.matrices[0];
    forward_.y.data = set + layout_.matrices[2];
    forward_.saved.data = set + saved_;
    device_.NormForward(forward_);
  }

  void Run(char* set) {
    const std::vector<size_t>& at = layout_.matrices;
    switch (op_) {
      case NormOp::kForward:
        forward_.x.data = set + at[0], forward_.y.data = set + at[1];
        break;
      case NormOp::kResidualForward:
        forward_.residual.data = set + at[0], forward_.x.data = set + at[1];
        forward_.sum.data = set + at[2], forward_.y.data = set + at[3];
        break;
      case NormOp::kBackward:
      case NormOp::kBackwardAccumulate:
        backward_.x.data = set + at[0], backward_.dy.data = set + at[1], backward_.dx.data = set + at[2];
        backward_.saved.data = set + saved_;
        device_.NormBackward(backward_);
        return;
    }
    forward_.saved.data = set + saved_;
    device_.NormForward(forward_);
  }

 private:
  Device& device_;
  const SetLayout& layout_;
  NormOp op_;
  size_t saved_ = 0;
  NormForwardArgs forward_;
  NormBackwardArgs backward_;
};

CallTimes Summarize(const DuelTimes& times, size_t calls) {
  if (times.seconds.empty()) return {};
  std::vector<double> seconds = times.seconds;
  for (double& value : seconds) value /= static_cast<double>(calls);
  return {.blocks = seconds.size(),
          .interrupted = static_cast<size_t>(std::ranges::count(times.interrupted, true)),
          .median_s = stats::Median(seconds),
          .first_quartile_s = stats::Quantile(seconds, 0.25),
          .third_quartile_s = stats::Quantile(seconds, 0.75),
          .least_s = std::ranges::min(seconds)};
}

// The least of some blocks: an overhead is a floor.
double LeastSeconds(int blocks, int calls, const std::function<void()>& call) {
  double least = 1e300;
  for (int block = 0; block < blocks; ++block) {
    const double start = Now();
    for (int i = 0; i < calls; ++i) call();
    least = std::min(least, (Now() - start) / calls);
  }
  return least;
}

}  // namespace

struct NormBench::State {
  Device& device;
  NormBenchSettings settings;
  size_t cold_bytes = 0;
  double fork_s = 0;
  AlignedMemory pool;

  // Sets of buffers that a case takes: for cold memory as many as fill it, else one for each batch.
  size_t Sets(const NormCase& c, size_t set_bytes) const {
    const size_t fewest = settings.batches + 1;  // and one for the pilot
    const size_t most = std::max<size_t>(1, settings.memory_bytes / set_bytes);
    if (!c.cold) return std::min(fewest, most);
    const size_t footprint = BytesOf({.norm = c.norm, .types = c.types, .shape = c.shape, .op = c.op});
    return std::min(most, std::max<size_t>(2, (cold_bytes + footprint - 1) / footprint));
  }

  size_t Bytes(const NormCase& c) const {
    const SetLayout layout(device, c, Accepting(Candidates(device, c)));
    return Sets(c, layout.bytes) * layout.bytes + Parameters::Bytes(c.shape.cols);
  }

  // Seconds of a call on one row of 16 elements: checks, dispatch, and next to no arithmetic.
  double CallSeconds(const NormCase& c, NormImplementation implementation) {
    NormCase short_row = c;
    short_row.shape = {1, kShortRow};
    const SetLayout layout(device, short_row, {implementation});
    std::vector<char> memory(layout.bytes + Parameters::Bytes(kShortRow) + kLine);
    char* const start = reinterpret_cast<char*>(Padded(reinterpret_cast<size_t>(memory.data())));
    FillSet(short_row, layout, start, 1);
    const Parameters parameters(device, c.norm.kind, kShortRow, start + layout.bytes);
    NormCall call(device, short_row, implementation, layout, parameters);
    call.Prepare(start);
    return LeastSeconds(5, 200, [&] { call.Run(start); });
  }

  void FillSet(const NormCase& c, const SetLayout& layout, char* set, uint64_t number) const {
    const auto matrices = MatricesOf(c.types, c.op);
    for (size_t i = 0; i < matrices.size(); ++i)
      FillNormal(device.threads(), 4 * number + i + settings.seed,
                 At(set, layout.matrices[i], matrices[i].dtype, c.shape));
  }
};

NormBench::NormBench(Device& device, const NormBenchSettings& settings, const std::vector<NormCase>& cases)
    : state_(std::make_unique<State>(State{.device = device, .settings = settings})) {
  const int threads = device.threads();
  state_->cold_bytes = std::min(settings.cold_bytes, settings.memory_bytes);
  state_->fork_s = LeastSeconds(5, 200, [&] { ParallelFor(threads, threads, [](int64_t, int) {}); });
  size_t bytes = 0;
  for (const NormCase& norm_case : cases) {
    const size_t needed = state_->Bytes(norm_case);
    if (norm_case.cold) {
      const size_t set = SetLayout(device, norm_case, Accepting(Candidates(device, norm_case))).bytes;
      const size_t sets = state_->Sets(norm_case, set);
      state_->cold_bytes = std::min(state_->cold_bytes, sets * BytesOf(norm_case));
    }
    if (needed > settings.memory_bytes)
      Fail(
          "{} {} of {} needs {:.0f} MiB of memory for one set of buffers, and {:.0f} MiB are there; take a "
          "smaller "
          "--shapes, or free some memory",
          Name(norm_case.norm), Name(norm_case.op), Name(norm_case.shape),
          static_cast<double>(needed) / (1 << 20), static_cast<double>(settings.memory_bytes) / (1 << 20));
    bytes = std::max(bytes, needed);
  }
  state_->pool = AlignedMemory(bytes);
}

NormBench::~NormBench() = default;
size_t NormBench::cold_bytes() const { return state_->cold_bytes; }
size_t NormBench::pool_bytes() const { return state_->pool.bytes(); }
double NormBench::fork_s() const { return state_->fork_s; }

NormCaseResult NormBench::Run(const NormCase& c, const NormBenchCallbacks& callbacks) {
  State& state = *state_;
  Device& device = state.device;
  const int threads = device.threads();
  const auto candidates = Candidates(device, c);
  const SetLayout layout(device, c, Accepting(candidates));
  const size_t sets = state.Sets(c, layout.bytes);
  char* const start = static_cast<char*>(state.pool.data());
  const auto set_at = [&](size_t set) { return start + set * layout.bytes; };

  NormCaseResult result{.norm_case = c,
                        .bytes = BytesOf(c),
                        .sets = sets,
                        .set_bytes = layout.bytes,
                        .in_cache = (c.cold ? sets : 1) * layout.bytes <= LastLevelCacheBytes().value_or(0)};
  state.FillSet(c, layout, set_at(0), 0);
  const Parameters parameters(device, c.norm.kind, c.shape.cols, start + sets * layout.bytes);

  // The yardstick: a stream over the same matrices; for one row a memcpy of it.
  const auto matrices = MatricesOf(c.types, c.op);
  StreamArgs stream{.mix = MixOf(c.op)};
  std::vector<View*> stream_views;
  for (const NormMatrix& matrix : matrices) {
    View& view = matrix.stream == 'a'   ? stream.a
                 : matrix.stream == 'b' ? stream.b
                 : matrix.stream == 'c' ? stream.c
                                        : stream.d;
    view = At(nullptr, 0, matrix.dtype, c.shape);
    stream_views.push_back(&view);
  }
  const size_t row_bytes = std::min(stream.a.bytes(), stream.c.bytes());
  std::vector<std::function<void(char*)>> runs;
  if (c.decode()) {
    result.contenders.push_back({.name = "memcpy"});
    runs.emplace_back([&, from = layout.matrices[0],
                       to = layout.matrices[stream.mix == StreamMix::kCopy ? 1 : 2]](char* set) {
      std::memcpy(set + to, set + from, row_bytes);
    });
  } else {
    result.contenders.push_back({.name = "stream " + std::string(Name(stream.mix))});
    runs.emplace_back([&](char* set) {
      for (size_t i = 0; i < stream_views.size(); ++i) stream_views[i]->data = set + layout.matrices[i];
      RunStream(threads, stream);
    });
  }

  // Beside it, where it is another stream, the copy that everybody knows the speed of.
  const StreamArgs copy{.mix = StreamMix::kCopy, .a = stream.a, .c = stream.c};
  const bool copies = !c.decode() && stream.mix != StreamMix::kCopy;
  if (copies) {
    result.contenders.push_back({.name = "copy 1r1w"});
    runs.emplace_back([&, call = copy](char* set) mutable {
      call.a.data = set + layout.matrices[0], call.c.data = set + layout.matrices[2];
      RunStream(threads, call);
    });
  }

  std::vector<std::unique_ptr<NormCall>> calls;
  std::vector<NormContender> refused;
  for (const NormImplementationStatus& status : candidates) {
    NormContender contender{
        .name = status.name, .implementation = status.implementation, .refusal = status.refusal};
    if (!contender.refusal) {
      auto call = std::make_unique<NormCall>(device, c, status.implementation, layout, parameters);
      try {  // whether the device takes these types, it tells when it is asked to run
        call->Prepare(set_at(0));
        call->Run(set_at(0));
        contender.call_s = state.CallSeconds(c, status.implementation);
        runs.emplace_back([&run = *call](char* set) { run.Run(set); });
        calls.push_back(std::move(call));
      } catch (const std::exception& error) {
        contender.refusal = error.what();
      }
    }
    (contender.refusal ? refused : result.contenders).push_back(std::move(contender));
  }
  if (!calls.empty()) {
    for (size_t set = 1; set < sets; ++set) {
      state.FillSet(c, layout, set_at(set), set);
      for (const auto& call : calls) call->Prepare(set_at(set));
    }
    // The forward passes of Prepare have written where dx is added to.
    if (c.op == NormOp::kBackwardAccumulate)
      for (size_t set = 0; set < sets; ++set)
        FillNormal(threads, set, At(set_at(set), layout.matrices[2], matrices[2].dtype, c.shape));

    // Cold: every call another set, in an order drawn for each batch. Warm: every batch another set.
    std::vector<size_t> order(sets);
    std::iota(order.begin(), order.end(), size_t{0});
    const RandomStream random(state.settings.seed, "order of sets");
    uint64_t drawn = 0;
    size_t at = 0;
    const auto next = [&] { return set_at(order[c.cold ? at++ % sets : at]); };

    const double once_s = LeastSeconds(3, 4, [&] { runs[0](next()); });
    const size_t per_block =
        static_cast<size_t>(std::clamp(std::ceil(kBlockSeconds / std::max(once_s, 1e-9)), 1.0, kMostCalls));
    result.calls_per_block = per_block;
    const DuelSettings duel{.contenders = runs.size(),
                            .batches = state.settings.batches,
                            .pilot_rounds = state.settings.pilot_rounds,
                            .half_width = state.settings.half_width,
                            .seconds = state.settings.seconds,
                            .seed = state.settings.seed};
    const DuelCallbacks duel_callbacks{
        .place =
            [&](size_t batch, std::span<const size_t>) {
              if (c.cold)
                for (size_t i = sets; i > 1; --i) std::swap(order[i - 1], order[random.Below(drawn++, i)]);
              at = c.cold ? 0 : batch % sets;
            },
        .prepare =
            [&](size_t contender) {
              if (!c.cold) runs[contender](next());  // its own code and data are then as warm as they get
            },
        .block =
            [&](size_t contender) {
              for (size_t i = 0; i < per_block; ++i) runs[contender](next());
            },
        .now_s = Now,
        .interruptions = InvoluntarySwitches,
        .keep_going =
            [&](const DuelProgress& progress) {
              if (callbacks.on_progress) callbacks.on_progress(progress);
              return callbacks.stop == nullptr || !*callbacks.stop;
            }};
    result.duel = RunDuel(duel, duel_callbacks);
    for (size_t i = 0; i < result.contenders.size(); ++i) {
      NormContender& contender = result.contenders[i];
      contender.times = Summarize(result.duel.times[i], per_block);
      if (contender.times.blocks == 0) continue;
      const bool is_copy = copies && i == 1;
      const size_t bytes = c.decode() && i == 0 ? 2 * row_bytes : is_copy ? StreamBytes(copy) : result.bytes;
      contender.gb_per_s = static_cast<double>(bytes) / contender.times.median_s / 1e9;
      if (i == 0) continue;
      if (const auto& ratio = result.duel.ratios[i]) {
        contender.share = 1 / ratio->ratio;
        if (ratio->interval)
          contender.share_low = 1 / ratio->interval->high, contender.share_high = 1 / ratio->interval->low;
      }
      if (is_copy) {
        contender.share.reset(), contender.share_low.reset(), contender.share_high.reset();
        continue;
      }
      if (copies && result.contenders[1].gb_per_s > 0)
        contender.copy_share = contender.gb_per_s / result.contenders[1].gb_per_s;
      const bool forks = threads > 1 && c.shape.rows > 1;
      contender.limit = LimitOf({.seconds = contender.times.median_s,
                                 .overhead_s = contender.call_s + (forks ? state.fork_s : 0),
                                 .share = contender.share,
                                 .in_cache = result.in_cache,
                                 .implementation = *contender.implementation});
    }
  }
  for (NormContender& contender : refused) result.contenders.push_back(std::move(contender));
  return result;
}

}  // namespace normlab::apps
