#pragma once
// Checkpoints: all that a run needs to go on with the bits of one that never stopped. Each is a folder that
// appears whole or not at all (base/files.h):
//
//   RUN/checkpoints/step-00000100               after 100 steps
//   RUN/checkpoints/step-00000100-micro-0003    and 3 micro-batches of the next one
//     model.safetensors, optimizer.safetensors  weights; AdamW's moments, as m.NAME and v.NAME
//     gradients.safetensors                     inside a step only
//     metrics.jsonl, inside.jsonl               the run's lines so far
//     signals.json                              of the last steps (train/run_watch.h)
//     state.json                                where and what the run is, size and hash of the other files
//
// state.json carries its own checksum, and each tensor file the position, so that damage and files of two
// checkpoints are told apart. Batches and initial weights are functions of (seed, step): there is no state of
// a random generator. Functions throw Error; only the owner of the run's folder may call those that write.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/files.h"
#include "normlab/train/run_folder.h"
#include "normlab/train/run_record.h"
#include "normlab/train/trainer.h"

namespace normlab {

struct CheckpointState {
  static constexpr int kSchemaVersion = 1;

  TrainPosition position;
  RunRecord record;  // what run.json would have said
  std::map<std::string, FileStamp> files;
};

std::string CheckpointName(const TrainPosition& position);

// The checkpoints of a run, earliest first. `incomplete` have no state.json: nobody's work here, since a
// checkpoint appears whole.
struct CheckpointList {
  std::vector<std::filesystem::path> complete, incomplete;
};
CheckpointList ListCheckpoints(const std::filesystem::path& run);

// The last complete one, or nothing where there is none. `note` hears of later ones that are passed over as
// incomplete; where there are only such, that is an Error that says what they lack.
std::optional<std::filesystem::path> LatestCheckpoint(
    const std::filesystem::path& run, const std::function<void(const std::string&)>& note = {});

// Writes a checkpoint of the trainer with `more` files, by name, and removes what killed writers left. Where
// it throws, those that were there are still there. Weights that are not finite are refused.
void SaveCheckpoint(const std::filesystem::path& run, const Trainer& trainer, const RunRecord& record,
                    const std::map<std::string, std::string>& more = {});

// Removes what the checkpoint of `latest` makes useless: all but the last `keep`, itself counted, and those
// of later steps (left when a run went on from an earlier one).
void PruneCheckpoints(const std::filesystem::path& run, const TrainPosition& latest, int64_t keep);

// Removes every checkpoint, and the folder that holds them; where that is a link, the link and the
// checkpoints that it leads to.
void RemoveCheckpoints(const std::filesystem::path& run);

// state.json alone, its checksum checked.
CheckpointState ReadCheckpointState(const std::filesystem::path& checkpoint);
void WriteCheckpointState(const std::filesystem::path& checkpoint, const CheckpointState& state);

// Checks size and hash of every file that `state` names. The message tells damage from a mix of two
// checkpoints, and how to go on from the one before.
void VerifyCheckpoint(const std::filesystem::path& checkpoint, const CheckpointState& state);

// Checks that a run as `now` describes it would go on with the same bits: configuration, data, instruction
// set, norm implementation. Throws Error with the key and both values. Returns what may differ and has been
// seen to change bits all the same (processor, build, oneDNN) or speed (wait policy), as notes.
std::vector<std::string> RequireMatch(const std::filesystem::path& checkpoint, const CheckpointState& state,
                                      const RunRecord& now);

// Puts weights, moments, gradients and position into a trainer of the same configuration. Call after WarmUp.
void RestoreCheckpoint(const std::filesystem::path& checkpoint, const CheckpointState& state,
                       Trainer& trainer);

}  // namespace normlab
