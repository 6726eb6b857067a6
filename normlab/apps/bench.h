#pragma once
// What the two kinds of `normlab bench` share.

#include <optional>
#include <string>

#include "normlab/apps/command.h"
#include "normlab/base/json.h"
#include "normlab/kernels/device.h"

namespace normlab::apps {

Command AddBenchKernels(CLI::App& bench);
Command AddBenchStep(CLI::App& bench);

// The settings of the thread runtime in use, as they stand in the environment: "OMP_WAIT_POLICY=active".
// Those that are not set are left out.
Json ThreadSettings();
std::string ThreadSettingsText();

// Refuses a --json FILE that cannot be written, before anything is measured: it is created empty. "-": the
// standard output, in place of the table.
void StartJson(const std::optional<std::string>& file);
// Writes the report; returns whether it went to standard output.
bool WriteJson(const std::optional<std::string>& file, const Json& json);

}  // namespace normlab::apps
