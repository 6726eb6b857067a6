#pragma once
// What the system does to a program while it is timed: takes a processor away for another program, or for
// another machine on the same hardware, and changes the clock of the processors. Nothing here is subtracted
// from anything; whoever times something marks it.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace normlab {

// How often a thread of this process was taken off its processor though it could have gone on (getrusage(2));
// never falls.
int64_t InvoluntarySwitches();

// Seconds that the hypervisor gave to others while processors of this machine had work, all processors
// together, since it started (proc(5), "steal"); never falls, in steps of a clock tick, mostly 10 ms. Nothing
// where the system does not tell. `proc` is for tests.
std::optional<double> StolenSeconds(const std::filesystem::path& proc = "/proc");

// MHz of the processors now, their mean: from cpufreq, else from /proc/cpuinfo, which on many virtual
// machines is a constant. Nothing where neither tells.
std::optional<double> ProcessorMhz(const std::filesystem::path& system = "/sys/devices/system/cpu",
                                   const std::filesystem::path& proc = "/proc");

}  // namespace normlab
