#pragma once
// Memory of a device that is laid out as a model's weights, as a safetensors file: one tensor for each
// parameter. Values pass in pieces: a file never exists twice in memory. Nothing reaches device memory before
// names, shapes and types of the whole file are known to be right.

#include <filesystem>
#include <span>
#include <string>

#include "normlab/base/safetensors.h"
#include "normlab/kernels/device.h"
#include "normlab/model/parameters.h"

namespace normlab {

struct FlatTensors {
  std::string prefix;  // of the names in the file: "m." gives "m.tok_emb.weight"
  View flat;           // as ParameterList lays it out
};

enum class NonFinite { kAllowed, kRefused };

// Writes values as `dtype`. With kRefused a value that is nan or inf is an Error that names its tensor, and
// no file is written.
FileStamp WriteTensorFile(const std::filesystem::path& path, Device& device, const ParameterList& parameters,
                          std::span<const FlatTensors> tensors, DType dtype, NonFinite non_finite,
                          const SafetensorsMetadata& metadata);

// Throws Error that names the tensor and both shapes (or types) where the file does not hold exactly these
// tensors. `dtype`: the only type that is taken; nothing: every floating-point type, converted. Attention
// masks, which the article's code saves with its weights, are passed over.
void ReadTensorFile(const std::filesystem::path& path, Device& device, const ParameterList& parameters,
                    std::span<const FlatTensors> tensors, std::optional<DType> dtype, NonFinite non_finite);

}  // namespace normlab
