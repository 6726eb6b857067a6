#include "normlab/train/tensor_file.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/text.h"

namespace normlab {
namespace {

constexpr int64_t kPiece = int64_t{1} << 18;  // elements: 2 MiB of doubles, within a core's cache

// Calls act(piece) for views that follow each other and make up the tensor.
template <class Act>
void ForPieces(const View& tensor, const Act& act) {
  const View flat = tensor.Reshaped({tensor.elements()});
  for (int64_t begin = 0; begin < flat.elements(); begin += kPiece)
    act(begin, flat.Slice(begin, std::min(begin + kPiece, flat.elements())));
}

void CheckFinite(std::span<const double> values, const std::filesystem::path& path, const std::string& name) {
  for (const double value : values)
    if (!std::isfinite(value))
      Fail("\"{}\": tensor \"{}\" holds {}; weights that are not finite are neither saved nor taken",
           path.string(), name, NonFiniteText(value));
}

bool IsMask(const std::string& name) { return name.ends_with(".att.mask"); }

void CheckTensors(const SafetensorsReader& reader, const std::filesystem::path& path,
                  const ParameterList& parameters, std::span<const FlatTensors> tensors,
                  std::optional<DType> dtype) {
  std::set<std::string> wanted;
  for (const FlatTensors& group : tensors) {
    for (const Parameter& parameter : parameters.all()) {
      const std::string name = group.prefix + parameter.name;
      wanted.insert(name);
      const auto found = reader.entries().find(name);
      if (found == reader.entries().end())
        Fail("\"{}\" has no tensor \"{}\"; the model needs it, of shape {}", path.string(), name,
             ShapeText(parameter.shape));
      const SafetensorsReader::Entry& entry = found->second;
      if (entry.shape != parameter.shape)
        Fail("\"{}\": tensor \"{}\" has the shape {}, and the model needs {}", path.string(), name,
             ShapeText(entry.shape), ShapeText(parameter.shape));
      const bool known = entry.dtype && *entry.dtype != DType::kI32;
      if (dtype ? entry.dtype != dtype : !known)
        Fail("\"{}\": tensor \"{}\" has the type {}, which cannot be taken here; {}", path.string(), name,
             entry.dtype_name,
             dtype ? "a run goes on in the type in which it was saved"
                   : "weights are F32, F64, F16 or BF16: convert it");
    }
  }
  for (const auto& item : reader.entries())
    if (!wanted.contains(item.first) && !IsMask(item.first))
      Fail("\"{}\" has a tensor \"{}\" of shape {}, and the model has none of that name", path.string(),
           item.first, ShapeText(item.second.shape));
}

}  // namespace

FileStamp WriteTensorFile(const std::filesystem::path& path, Device& device, const ParameterList& parameters,
                          std::span<const FlatTensors> tensors, DType dtype, NonFinite non_finite,
                          const SafetensorsMetadata& metadata) {
  std::vector<TensorToWrite> to_write;
  std::vector<double> values;
  for (const FlatTensors& group : tensors) {
    for (const Parameter& parameter : parameters.all()) {
      const std::string name = group.prefix + parameter.name;
      const View tensor = parameters.Of(parameter.name, group.flat);
      to_write.push_back({.name = name,
                          .dtype = dtype,
                          .shape = parameter.shape,
                          .produce = [&, name, tensor](const TensorToWrite::Sink& write) {
                            ForPieces(tensor, [&](int64_t, const View& piece) {
                              values.resize(static_cast<size_t>(piece.elements()));
                              device.ReadBack(piece, values);
                              if (non_finite == NonFinite::kRefused) CheckFinite(values, path, name);
                              write(TensorData::FromDoubles(dtype, {piece.elements()}, values).bytes);
                            });
                          }});
    }
  }
  return WriteSafetensors(path, to_write, metadata);
}

void ReadTensorFile(const std::filesystem::path& path, Device& device, const ParameterList& parameters,
                    std::span<const FlatTensors> tensors, std::optional<DType> dtype, NonFinite non_finite) {
  const SafetensorsReader reader(path);
  CheckTensors(reader, path, parameters, tensors, dtype);
  for (const FlatTensors& group : tensors) {
    for (const Parameter& parameter : parameters.all()) {
      const std::string name = group.prefix + parameter.name;
      const DType from = *reader.Find(name).dtype;
      ForPieces(parameters.Of(parameter.name, group.flat), [&](int64_t begin, const View& piece) {
        TensorData part{from, {piece.elements()}, {}};
        part.bytes.resize(static_cast<size_t>(piece.elements()) * SizeOf(from));
        reader.ReadPart(name, static_cast<uint64_t>(begin) * SizeOf(from), part.bytes);
        const std::vector<double> values = part.Values();
        if (non_finite == NonFinite::kRefused) CheckFinite(values, path, name);
        device.Upload(values, piece);
      });
    }
  }
}

}  // namespace normlab
