#pragma once
// How a row of tokens is cut for training and testing. The last part is held out; training never reads it,
// not even as a target. A window of T tokens needs T + 1 ids (the last input's target), and neighbours share
// one id, so n ids hold floor((n - 1) / T) windows.
//
// Training goes through epochs. Each epoch visits each of the W = floor((n - 1) / T) training windows once,
// in an order shuffled by (seed, epoch). Epoch 0 cuts windows at 0, T, 2T, ...; epoch e > 0 shifts all cuts
// by a phase in [0, T) drawn from (seed, epoch), so that the model meets other windows; one pushed over the
// end is moved back to the end. Sequence b of step s is number s * batch + b in this row of epochs: a pure
// function of the seed and the numbers, so every variant of a study sees the same data, and a resumed run
// what an uninterrupted one sees, however the batch is cut into micro-batches.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "normlab/base/random.h"
#include "normlab/data/tokens.h"

namespace normlab {

struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

// Windows that a range holds: floor((size - 1) / window), 0 for an empty one.
int64_t WindowsIn(const TokenRange& range, int64_t window);

struct SplitRequest {
  int64_t window = 0;
  int64_t batch = 0;  // one step's windows must exist
  double held_out_fraction = 0.1;
  int64_t held_out_windows = 256;  // at most
};

struct Split {
  TokenRange train, held_out;
  int64_t window = 0;
  std::vector<int64_t> held_out_starts;  // first ids of the test windows: evenly spaced, without overlap
  int64_t held_out_windows_asked = 0;    // more than held_out_starts.size() where the text is too short

  int64_t train_windows() const { return WindowsIn(train, window); }
};

// Throws Error with the numbers where the text is too short for one batch or one held-out window.
Split SplitTokens(const TokenSource& tokens, const SplitRequest& request);

class BatchSampler {
 public:
  BatchSampler(std::shared_ptr<const TokenSource> tokens, const Split& split, int64_t batch, uint64_t seed);

  int64_t batch() const { return batch_; }
  int64_t window() const { return window_; }

  // First id of sequence `b` of step `step`. Not const: remembers the order of the epoch last asked for.
  int64_t Start(int64_t step, int64_t b);

  // Sequences first .. first + count - 1 of the step's batch; inputs and targets hold [count, window] ids,
  // row by row. target[t] = the id after input[t]. Allocates nothing.
  void Fill(int64_t step, int64_t first, int64_t count, std::span<int32_t> inputs,
            std::span<int32_t> targets);
  void Fill(int64_t step, std::span<int32_t> inputs, std::span<int32_t> targets) {
    Fill(step, 0, batch_, inputs, targets);
  }

 private:
  void Shuffle(int64_t epoch);

  std::shared_ptr<const TokenSource> tokens_;
  TokenRange range_;
  int64_t window_, batch_, windows_;
  RandomStream random_;
  int64_t epoch_ = -1;  // whose order order_ holds
  int64_t phase_ = 0;
  std::vector<uint32_t> order_;  // window visited at each place of the epoch
};

// The windows of the test loss, in order: inputs and targets hold [count, window] ids.
void FillHeldOut(const TokenSource& tokens, const Split& split, int64_t first, int64_t count,
                 std::span<int32_t> inputs, std::span<int32_t> targets);

// What a run does with its data, for the header of a run and its record.
struct DataSummary {
  int64_t bytes = 0;
  int64_t tokens = 0;
  int64_t vocab_size = 0;  // of the tokenizer
  int64_t window = 0;      // tokens in a sequence
  int64_t train_tokens = 0;
  int64_t train_windows = 0;
  int64_t train_tokens_unused = 0;  // in epoch 0: the windows do not reach them
  int64_t held_out_tokens = 0;
  int64_t held_out_windows = 0;
  int64_t held_out_windows_asked = 0;
  int64_t steps = 0;
  int64_t batch = 0;
  double epochs = 0;  // steps * batch / train_windows

  // A few lines in plain words, without a newline at the end.
  std::string ToString() const;
};
DataSummary Summarize(const TokenSource& tokens, const Split& split, int64_t batch, int64_t steps);

}  // namespace normlab
