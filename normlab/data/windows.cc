#include "normlab/data/windows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/text.h"

namespace normlab {
namespace {

void CopyWindow(const TokenSource& tokens, int64_t start, int64_t window, int64_t row,
                std::span<int32_t> inputs, std::span<int32_t> targets) {
  const auto offset = static_cast<size_t>(row * window), length = static_cast<size_t>(window);
  tokens.Copy(start, inputs.subspan(offset, length));
  tokens.Copy(start + 1, targets.subspan(offset, length));
}

}  // namespace

int64_t WindowsIn(const TokenRange& range, int64_t window) {
  return range.size() > 1 ? (range.size() - 1) / window : 0;
}

Split SplitTokens(const TokenSource& tokens, const SplitRequest& request) {
  NL_CHECK(request.window > 0 && request.batch > 0 && request.held_out_windows > 0);
  NL_CHECK(request.held_out_fraction > 0 && request.held_out_fraction < 1);
  const int64_t n = tokens.size(), window = request.window;
  const auto held_out = static_cast<int64_t>(std::floor(static_cast<double>(n) * request.held_out_fraction));

  Split split;
  split.train = {0, n - held_out};
  split.held_out = {n - held_out, n};
  split.window = window;
  split.held_out_windows_asked = request.held_out_windows;
  if (split.train_windows() < request.batch)
    Fail(
        "the text is too short for one batch: its training part of {} holds {} of {}, and a batch needs {} "
        "({}); give "
        "more text, or set a smaller batch or window",
        Counted(split.train.size(), "token"), Counted(split.train_windows(), "window"),
        Counted(window, "token"), FormatCount(request.batch), Counted(request.batch * window + 1, "token"));

  const int64_t available = WindowsIn(split.held_out, window);
  if (available == 0)
    Fail(
        "the text is too short for a test: its held-out part of {} holds no window of {} ({} needed); give "
        "more text, or "
        "set a smaller window or a larger held_out_fraction",
        Counted(held_out, "token"), Counted(window, "token"), FormatCount(window + 1));

  // The first starts where the part starts, the last ends where it ends; as count <= available, the spacing
  // is at least a window.
  const int64_t count = std::min(request.held_out_windows, available);
  const int64_t last = held_out - 1 - window;
  for (int64_t i = 0; i < count; ++i)
    split.held_out_starts.push_back(split.held_out.begin + (count > 1 ? i * last / (count - 1) : 0));
  return split;
}

BatchSampler::BatchSampler(std::shared_ptr<const TokenSource> tokens, const Split& split, int64_t batch,
                           uint64_t seed)
    : tokens_(std::move(tokens)),
      range_(split.train),
      window_(split.window),
      batch_(batch),
      windows_(split.train_windows()),
      random_(seed, "batches") {
  NL_CHECK(batch_ > 0 && windows_ > 0);
  NL_CHECK_LE(windows_, int64_t{UINT32_MAX});
  order_.resize(static_cast<size_t>(windows_));
}

void BatchSampler::Shuffle(int64_t epoch) {
  // Epoch e draws numbers e * W .. e * W + W - 1 of the stream: the first for the phase, the others for the
  // shuffle of Fisher and Yates.
  const auto first = static_cast<uint64_t>(epoch) * static_cast<uint64_t>(windows_);
  phase_ = epoch == 0 ? 0 : static_cast<int64_t>(random_.Below(first, static_cast<uint64_t>(window_)));
  std::iota(order_.begin(), order_.end(), 0u);
  for (size_t i = order_.size() - 1; i > 0; --i)
    std::swap(order_[i], order_[random_.Below(first + i, i + 1)]);
  epoch_ = epoch;
}

int64_t BatchSampler::Start(int64_t step, int64_t b) {
  NL_CHECK(step >= 0 && b >= 0 && b < batch_);
  const int64_t number = step * batch_ + b;
  if (number / windows_ != epoch_) Shuffle(number / windows_);
  const int64_t cut = phase_ + int64_t{order_[static_cast<size_t>(number % windows_)]} * window_;
  return range_.begin + std::min(cut, range_.size() - 1 - window_);
}

void BatchSampler::Fill(int64_t step, int64_t first, int64_t count, std::span<int32_t> inputs,
                        std::span<int32_t> targets) {
  NL_CHECK(first >= 0 && count >= 0 && first + count <= batch_);
  NL_CHECK_EQ(inputs.size(), static_cast<size_t>(count * window_));
  NL_CHECK_EQ(targets.size(), static_cast<size_t>(count * window_));
  for (int64_t row = 0; row < count; ++row)
    CopyWindow(*tokens_, Start(step, first + row), window_, row, inputs, targets);
}

void FillHeldOut(const TokenSource& tokens, const Split& split, int64_t first, int64_t count,
                 std::span<int32_t> inputs, std::span<int32_t> targets) {
  NL_CHECK(first >= 0 && count >= 0 && first + count <= static_cast<int64_t>(split.held_out_starts.size()));
  NL_CHECK_EQ(inputs.size(), static_cast<size_t>(count * split.window));
  NL_CHECK_EQ(targets.size(), static_cast<size_t>(count * split.window));
  for (int64_t row = 0; row < count; ++row)
    CopyWindow(tokens, split.held_out_starts[static_cast<size_t>(first + row)], split.window, row, inputs,
               targets);
}

DataSummary Summarize(const TokenSource& tokens, const Split& split, int64_t batch, int64_t steps) {
  DataSummary summary;
  for (const TokenFile& file : tokens.info().files) summary.bytes += file.bytes;
  summary.tokens = tokens.size();
  summary.vocab_size = tokens.info().vocab_size;
  summary.window = split.window;
  summary.train_tokens = split.train.size();
  summary.train_windows = split.train_windows();
  summary.train_tokens_unused = split.train.size() - (summary.train_windows * split.window + 1);
  summary.held_out_tokens = split.held_out.size();
  summary.held_out_windows = static_cast<int64_t>(split.held_out_starts.size());
  summary.held_out_windows_asked = split.held_out_windows_asked;
  summary.steps = steps;
  summary.batch = batch;
  summary.epochs = static_cast<double>(steps * batch) / static_cast<double>(summary.train_windows);
  return summary;
}

std::string DataSummary::ToString() const {
  std::string text = fmt::format("data      {}, {} (vocabulary {})\n", Counted(bytes, "byte"),
                                 Counted(tokens, "token"), FormatCount(vocab_size));
  text += fmt::format("training  {}: {} of {}, {} unused\n", Counted(train_tokens, "token"),
                      Counted(train_windows, "window"), FormatCount(window),
                      Counted(train_tokens_unused, "token"));
  text += fmt::format("held out  {}: {} for the test loss", Counted(held_out_tokens, "token"),
                      Counted(held_out_windows, "window"));
  if (held_out_windows < held_out_windows_asked)
    text += fmt::format(" (the text is too short for {})", FormatCount(held_out_windows_asked));
  text +=
      fmt::format("\nsteps     {} of {} x {} tokens = {}, {:.3g} epochs", FormatCount(steps),
                  FormatCount(batch), FormatCount(window), Counted(steps * batch * window, "token"), epochs);
  return text;
}

}  // namespace normlab
