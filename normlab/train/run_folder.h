#pragma once
// The names of what a run leaves in its folder. docs/formats.md says what each holds.

#include <filesystem>

namespace normlab {

inline constexpr const char* kRecordFile = "run.json";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kInsideFile = "inside.jsonl";
inline constexpr const char* kModelFile = "model.safetensors";

inline std::filesystem::path CheckpointsOf(const std::filesystem::path& run) { return run / "checkpoints"; }

}  // namespace normlab
