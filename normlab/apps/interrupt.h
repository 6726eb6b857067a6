#pragma once
// Ctrl-C and its like. The first signal asks for a good end: work stops after the current micro-batch,
// with a checkpoint. The second one kills at once.
//
// Signals are blocked in every thread and taken by one thread of their own that waits for them. A handler
// would not do: oneDNN 2.6's JIT products use the stack pointer for other things, and the frame of a handler
// that interrupts one is written over the heap.

#include <atomic>
#include <csignal>
#include <thread>

namespace normlab::apps {

// Takes SIGINT, SIGTERM and SIGHUP for the lifetime of the object, but for those that were ignored before.
// Make it before the first operation of a device: threads inherit what is blocked when they start. One at a
// time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>* stop() const { return &stop_; }

 private:
  void Wait();

  std::atomic<bool> stop_{false};
  std::atomic<bool> ending_{false};
  sigset_t taken_{}, before_{};
  std::thread waiter_;
};

}  // namespace normlab::apps
