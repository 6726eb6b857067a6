#pragma once
// Whether other programs use the processors now. Speed measured beside them is wrong, and worse than by their
// share: threads that wait for each other spin, so one that is kept from its core holds up the rest.

#include <istream>
#include <optional>
#include <string>

namespace normlab::apps {

// CPUs that are busy during a moment in which this program sleeps; nothing where /proc/stat does not tell.
std::optional<double> BusyCpus();

// Ticks that all CPUs together spent in user, nice, system, irq and softirq, by the text of /proc/stat
// (proc(5)); nothing where it is another text.
std::optional<double> BusyTicks(std::istream& stat);

// The note for the user, or nothing where the machine is quiet enough (under a quarter of a CPU).
std::optional<std::string> BusyNote(std::optional<double> busy_cpus);

// On a busy machine starts the program again with threads that sleep while they wait: OpenMP reads that
// setting before main. Beside other programs that is several times faster; alone, spinning is up to twice as
// fast. Does nothing where the user has chosen (OMP_WAIT_POLICY or GOMP_SPINCOUNT). Returns what was
// measured.
std::optional<double> AdaptToBusyMachine(char** argv);

// The same for benchmarks of single kernels, whose threads on a quiet machine never sleep: waking them takes
// longer than many a kernel.
std::optional<double> AdaptToKernels(char** argv);

}  // namespace normlab::apps
