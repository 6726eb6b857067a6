#include "normlab/apps/interrupt.h"

#include <unistd.h>
#include <csignal>
#include <cstddef>

namespace normlab::apps {
namespace {

// Signal handlers reach nothing but globals.
std::atomic<bool> stop_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

void OnSignal(int) {
  stop_asked = true;
  constexpr char kText[] = "\nnormlab: stopping after the current step; once more to stop at once\n";
  [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  stop_asked = false;
  for (const int signal : kSignals) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup, or a job in the background of a script
    action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : kSignals) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == OnSignal) std::signal(signal, SIG_DFL);
  }
}

const std::atomic<bool>* InterruptGuard::stop() const { return &stop_asked; }

}  // namespace normlab::apps
