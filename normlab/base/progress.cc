#include "normlab/base/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "normlab/base/text.h"

namespace normlab {
namespace {

constexpr double kTerminalPeriod_s = 0.2;
constexpr double kPipePeriod_s = 10;
constexpr int kDefaultColumns = 80;

}  // namespace

ProgressOptions ProgressOptionsFor(std::FILE* stream, const char* no_color, const char* term) {
  const int fd = ::fileno(stream);
  ProgressOptions options;
  options.write = [stream](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stream);
    std::fflush(stream);
  };
  options.now_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  options.columns = [fd] {
    struct winsize size {};
    return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? int{size.ws_col} : kDefaultColumns;
  };
  options.terminal = ::isatty(fd) == 1;
  const bool plain =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::string_view(term) == "dumb");
  options.ansi = options.terminal && !plain;
  return options;
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {}

Progress::~Progress() {
  try {
    Finish();
  } catch (...) {  // a progress line is not worth a crash
  }
}

void Progress::Draw(std::string_view line) {
  drawn_ = true;
  if (!options_.terminal) {
    options_.write(fmt::format("{}\n", line));
    return;
  }
  // The last column stays free: some terminals wrap as soon as it is filled.
  const size_t width = static_cast<size_t>(std::max(1, options_.columns() - 1));
  const std::string_view cut = FirstCharacters(line, width);
  const size_t characters = Characters(cut);
  if (options_.ansi) {
    options_.write(fmt::format("\r{}\x1b[K", cut));
  } else {
    const size_t before = std::min(open_width_, width);  // the terminal may have become narrower
    options_.write(fmt::format("\r{}{}", cut, std::string(before - std::min(before, characters), ' ')));
  }
  open_ = true;
  open_width_ = characters;
}

void Progress::Update(std::string_view line) {
  latest_ = Printable(line);
  drawn_ = false;
  const double now = options_.now_s();
  if (now < next_s_) return;
  next_s_ = now + (options_.terminal ? kTerminalPeriod_s : kPipePeriod_s);
  Draw(latest_);
}

void Progress::Message(std::string_view line) {
  if (open_) {
    if (options_.ansi)
      options_.write("\r\x1b[K");
    else
      options_.write(fmt::format("\r{}\r", std::string(open_width_, ' ')));
  }
  options_.write(fmt::format("{}\n", Printable(line)));
  if (open_) {
    open_width_ = 0;
    Draw(latest_);
  }
}

void Progress::Clear() {
  if (open_)
    options_.write(options_.ansi ? "\r\x1b[K" : fmt::format("\r{}\r", std::string(open_width_, ' ')));
  open_ = false;
  open_width_ = 0;
  drawn_ = true;
  latest_.clear();
}

void Progress::Finish() {
  if (!drawn_) Draw(latest_);
  if (open_) options_.write("\n");
  open_ = false;
  open_width_ = 0;
  next_s_ = -1e300;
}

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e12) return "?";
  // Each limit lies where rounding would show the next unit's value.
  if (seconds < 0.995) return fmt::format("{:.2f}s", seconds);
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::floor(seconds + 0.5));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  const int64_t minutes = (whole + 30) / 60;
  if (minutes < 24 * 60) return fmt::format("{}h {:02}m", minutes / 60, minutes % 60);
  const int64_t hours = (whole + 1800) / 3600;
  return fmt::format("{}d {:02}h", hours / 24, hours % 24);
}

std::string FormatCount(int64_t count) {
  const std::string digits = fmt::format("{}", count);
  const size_t first = count < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatBytes(double bytes) {
  if (!(bytes >= 0) || std::isinf(bytes)) return "?";
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes >= (unit == 0 ? 1023.5 : 1023.95)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace normlab
