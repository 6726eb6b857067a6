#pragma once
// Ctrl-C and its like. The first signal asks for a good end: work stops after the current step and what is
// finished is kept. The second one kills at once.

#include <atomic>

namespace normlab::apps {

// Catches SIGINT, SIGTERM and SIGHUP from now on, for the lifetime of the object. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>* stop() const;
};

}  // namespace normlab::apps
