#pragma once
// Whether other programs use the processors now. Speed measured beside them is wrong, and worse than by their
// share: threads wait for each other, so one that is kept from its core holds up the rest.

#include <optional>
#include <string>

namespace normlab::apps {

// CPUs that are busy during a quarter of a second in which this program sleeps; nothing where /proc/stat does
// not tell.
std::optional<double> BusyCpus();

// The note for the user, or nothing where the machine is quiet enough (under a quarter of a CPU).
std::optional<std::string> BusyNote(std::optional<double> busy_cpus);

}  // namespace normlab::apps
