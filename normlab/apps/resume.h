#pragma once
// What `train --resume` goes on with, and what of it the command line may say again.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "normlab/apps/run_options.h"
#include "normlab/train/run_record.h"

namespace normlab::apps {

struct Resumption {
  RunRecord record;                                 // what the checkpoint says, else what run.json says
  std::optional<std::filesystem::path> checkpoint;  // none: the run ended, or was cut off before its first
};

// `checkpoint` is the folder of one, or empty: the latest of the run in `folder`. Nothing where a run was cut
// off before it had written its record. Throws Error that names what is missing and what to do. Writes
// nothing.
std::optional<Resumption> FindResumption(const std::filesystem::path& folder, const std::string& checkpoint,
                                         const std::function<void(const std::string&)>& note);

// The configuration of the run. What the command line gives must agree with it; Error names the key and both
// values. `from_preset`: --preset or --config was given.
TrainConfig ResumedConfig(const RunArguments& arguments, const std::vector<Assignment>& assignments,
                          bool from_preset, const RunRecord& record);

// The text of the run: --data, or the files of its record. Throws Error where it is another one.
std::shared_ptr<const TokenSource> ResumedData(RunArguments arguments, const RunRecord& record);

// The weights that a run began with, where it must start again; Error where the file has changed.
std::optional<std::filesystem::path> ResumedWeights(const RunRecord& record);

}  // namespace normlab::apps
