#pragma once
// Tensors on disk: the safetensors format (github.com/huggingface/safetensors, "Format"): 8 bytes of little-
// endian header length, a JSON header, then the data, row-major and little-endian, without holes. Read: F64,
// F32, F16, BF16, I32, of any rank; a file may also hold tensors of other types as long as nobody reads
// those. Written: F64, F32, BF16, F16, I32; each tensor starts at a multiple of its element size. Reading
// checks everything before it allocates: lengths, offsets, overlaps, holes, duplicates, sizes. Two kinds of
// error: BrokenFileError (the file breaks the format: damaged or cut) and UnsupportedFileError (a sound file
// that holds something normlab cannot use).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/dtype.h"
#include "normlab/base/error.h"
#include "normlab/base/files.h"

namespace normlab {

class BrokenFileError : public Error {
 public:
  using Error::Error;
};
class UnsupportedFileError : public Error {
 public:
  using Error::Error;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// A tensor with its own memory. Rank 0 is one value.
struct TensorData {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t elements() const;
  std::vector<double> Values() const;  // every supported type converts exactly
  static TensorData FromDoubles(DType dtype, std::vector<int64_t> shape, std::span<const double> values);
};

struct SafetensorsFile {
  std::map<std::string, TensorData> tensors;
  SafetensorsMetadata metadata;

  // Throws Error with the nearest name where there is none.
  const TensorData& Get(std::string_view name) const;
  std::vector<double> Values(std::string_view name) const { return Get(name).Values(); }
};

// Opens and checks a file; data is read tensor by tensor into the caller's memory, so that a checkpoint never
// exists twice in memory.
class SafetensorsReader {
 public:
  struct Entry {
    std::optional<DType> dtype;  // nothing where the type is not supported
    std::string dtype_name;      // as in the file: "F32"
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;  // bytes, from the start of the data
  };

  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }

  const Entry& Find(std::string_view name) const;  // throws Error with the nearest name
  // `out` has exactly the tensor's bytes. Throws UnsupportedFileError for a type that is not supported.
  void Read(std::string_view name, std::span<std::byte> out) const;
  TensorData Read(std::string_view name) const;
  // The tensor's bytes from `first` on, as many as fit into `out`; they must exist.
  void ReadPart(std::string_view name, uint64_t first, std::span<std::byte> out) const;

 private:
  const Entry& FindSupported(std::string_view name) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t data_start_ = 0;
  std::map<std::string, Entry> entries_;
  SafetensorsMetadata metadata_;
};

SafetensorsFile ReadSafetensors(const std::filesystem::path& path);

// A tensor to write: `bytes`, whose memory stays the caller's, or, where it lies elsewhere, what `produce`
// hands to its argument piece by piece when the tensor's turn comes.
struct TensorToWrite {
  using Sink = std::function<void(std::span<const std::byte>)>;

  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::function<void(const Sink&)> produce;
};

// Writes atomically (base/files.h), straight from the given memory. The order in the file is by element size,
// largest first, then as given; equal input gives equal bytes. Returns what was written. Throws Error for a
// name given twice or empty, or "__metadata__".
FileStamp WriteSafetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                           const SafetensorsMetadata& metadata = {});
FileStamp WriteSafetensors(const std::filesystem::path& path, const SafetensorsFile& file);

}  // namespace normlab
