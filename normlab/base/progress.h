#pragma once
// One progress line, usually on stderr. On a terminal it is rewritten in place, at most 5 times a second, and
// cut to the width; in a pipe or file it is a plain line at most every 10 seconds. The program makes the
// object and says where it writes; nothing below the program prints. Not thread-safe.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

namespace normlab {

struct ProgressOptions {
  std::function<void(std::string_view)> write;  // the only way out
  std::function<double()> now_s;                // a clock that never goes back
  std::function<int()> columns;                 // width of the terminal, asked at each drawing
  bool terminal = false;                        // rewrite in place
  bool ansi = false;  // escape sequences; without them the line is blanked with spaces
};

// For a stream of this process. `no_color` and `term` are the values of those environment variables (null:
// not set): a non-empty NO_COLOR or TERM=dumb turns escape sequences off (no-color.org).
ProgressOptions ProgressOptionsFor(std::FILE* stream, const char* no_color, const char* term);

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // Finish, without throwing
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(std::string_view line);   // may be dropped; the last one never is
  void Message(std::string_view line);  // a line that stays, above the progress line
  void Clear();                         // forgets the last update: what it told of has ended
  void Finish();                        // shows the last update and ends its line; Update may start a new one

 private:
  void Draw(std::string_view line);

  ProgressOptions options_;
  std::string latest_;      // of Update
  bool drawn_ = true;       // latest_ has been shown
  bool open_ = false;       // an unfinished line stands on the terminal
  size_t open_width_ = 0;   // its columns
  double next_s_ = -1e300;  // no drawing before this time
};

// "0.25s", "4.2s", "42s", "1m 05s", "2h 03m", "3d 04h"; "?" for what is not a time.
std::string FormatDuration(double seconds);

// "1,234,567"
std::string FormatCount(int64_t count);

// "512 B", "1.5 KiB", "2.3 GiB"
std::string FormatBytes(double bytes);

}  // namespace normlab
