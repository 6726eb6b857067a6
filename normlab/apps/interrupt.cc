#include "normlab/apps/interrupt.h"

#include <unistd.h>

#include <ctime>
#include <string_view>
#include <system_error>

#include "normlab/base/error.h"

namespace normlab::apps {

InterruptGuard::InterruptGuard() {
  sigemptyset(&taken_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    // Ignored: nohup, or a job in the background of a script.
    if (action.sa_handler != SIG_IGN) sigaddset(&taken_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &taken_, &before_);
  try {
    waiter_ = std::thread([this] { Wait(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    Fail(
        "the system starts no thread to wait for Ctrl-C: {}; raise `ulimit -u` or `ulimit -v`, or the "
        "cgroup's limits",
        error.code().message());
  }
}

InterruptGuard::~InterruptGuard() {
  ending_ = true;
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void InterruptGuard::Wait() {
  constexpr timespec kPatience{.tv_sec = 0, .tv_nsec = 50'000'000};  // between looks at ending_
  while (!ending_) {
    const int signal = sigtimedwait(&taken_, nullptr, &kPatience);
    if (signal < 0) continue;
    if (stop_) {  // the second: die of it, as the shell expects
      sigset_t one{};
      sigemptyset(&one);
      sigaddset(&one, signal);
      pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
      ::raise(signal);
    }
    stop_ = true;
    constexpr std::string_view kText =
        "\nnormlab: stopping, and keeping what is done; once more to stop at once\n";
    [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, kText.data(), kText.size());
  }
}

}  // namespace normlab::apps
