#include "normlab/base/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "normlab/base/bfloat16.h"
#include "normlab/base/hash.h"
#include "normlab/base/json.h"
#include "normlab/base/nearest.h"
#include "normlab/base/text.h"

namespace normlab {
namespace {

static_assert(std::endian::native == std::endian::little, "the data of safetensors is little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderLimit = 100'000'000;  // as in the format's own implementation
constexpr std::string_view kMetadataKey = "__metadata__";

// Every element type of the format with its size, so that a file with types of no use here can still be
// checked.
struct FileType {
  std::string_view name;
  uint64_t bytes;
  std::optional<DType> dtype;
};
constexpr FileType kFileTypes[] = {
    {"F64", 8, DType::kF64},      {"F32", 4, DType::kF32},     {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},    {"I32", 4, DType::kI32},     {"I64", 8, std::nullopt},
    {"U64", 8, std::nullopt},     {"C64", 8, std::nullopt},    {"U32", 4, std::nullopt},
    {"I16", 2, std::nullopt},     {"U16", 2, std::nullopt},    {"I8", 1, std::nullopt},
    {"U8", 1, std::nullopt},      {"BOOL", 1, std::nullopt},   {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt}, {"F8_E8M0", 1, std::nullopt}};

const FileType* FindType(std::string_view name) {
  for (const FileType& type : kFileTypes)
    if (type.name == name) return &type;
  return nullptr;
}

std::string_view FileTypeName(DType dtype) {
  for (const FileType& type : kFileTypes)
    if (type.dtype == dtype) return type.name;
  return "?";
}

// Element count, or nothing where it exceeds 64 bits.
std::optional<uint64_t> Count(std::span<const int64_t> shape) {
  uint64_t count = 1;
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(extent), &count)) return std::nullopt;
  return count;
}

template <class... Args>
[[noreturn]] void Broken(const std::filesystem::path& path, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw BrokenFileError(fmt::format("\"{}\" is a broken safetensors file: {}; copy or save it again",
                                    path.string(), fmt::format(format, std::forward<Args>(args)...)));
}

// Exact: every half-precision value is a float.
float FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -magnitude : magnitude;
}

// To nearest, ties to even. The double is scaled so that one unit is one step of the result; such scaling is
// exact.
uint16_t ToF16(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000u : 0u);
  if (std::isnan(value)) return sign | 0x7e00u;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520) return sign | 0x7c00u;  // half way between the largest finite one and the next
  const int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : -14, -14);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // steps counts from 0 at the exponent's zero; a carry runs into the exponent by itself.
  return static_cast<uint16_t>(sign | (steps + (static_cast<uint32_t>(exponent + 14) << 10)));
}

// double to bf16 without rounding twice: the float is rounded to odd first, which keeps what ties need.
uint16_t ToBF16(double value) {
  float single = static_cast<float>(value);
  if (static_cast<double>(single) != value && std::isfinite(single)) {
    if (std::fabs(static_cast<double>(single)) > std::fabs(value)) single = std::nextafter(single, 0.0f);
    single = std::bit_cast<float>(std::bit_cast<uint32_t>(single) | 1u);
  }
  return BFloat16::FromFloat(single).bits;
}

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

uint64_t Unsigned(const nlohmann::json& value, const std::filesystem::path& path, std::string_view tensor,
                  std::string_view what) {
  if (!value.is_number_unsigned())
    Broken(path, "tensor \"{}\": {} holds {}, which is no whole number from 0", tensor, what,
           value.is_number() ? value.dump() : value.type_name());
  return value.get<uint64_t>();
}

SafetensorsReader::Entry ParseEntry(const std::string& name, const nlohmann::json& json, uint64_t data_bytes,
                                    const std::filesystem::path& path) {
  if (!json.is_object())
    Broken(path, "tensor \"{}\" is described by {}, not by an object", name, json.type_name());
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!json.contains(key)) Broken(path, "tensor \"{}\" has no {}", name, key);

  SafetensorsReader::Entry entry;
  const nlohmann::json& dtype = json["dtype"];
  if (!dtype.is_string()) Broken(path, "tensor \"{}\": dtype is {}, not a name", name, dtype.type_name());
  entry.dtype_name = dtype.get<std::string>();
  const FileType* type = FindType(entry.dtype_name);
  if (type != nullptr) entry.dtype = type->dtype;

  const nlohmann::json& shape = json["shape"];
  if (!shape.is_array()) Broken(path, "tensor \"{}\": shape is {}, not a list", name, shape.type_name());
  for (const nlohmann::json& extent : shape) {
    const uint64_t value = Unsigned(extent, path, name, "shape");
    if (value > static_cast<uint64_t>(INT64_MAX))
      Broken(path, "tensor \"{}\": extent {} is too large", name, value);
    entry.shape.push_back(static_cast<int64_t>(value));
  }

  const nlohmann::json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    Broken(path, "tensor \"{}\": data_offsets must be two numbers, begin and end", name);
  entry.begin = Unsigned(offsets[0], path, name, "data_offsets");
  entry.end = Unsigned(offsets[1], path, name, "data_offsets");
  if (entry.begin > entry.end)
    Broken(path, "tensor \"{}\" begins at byte {} and ends before, at {}", name, entry.begin, entry.end);
  if (entry.end > data_bytes)
    Broken(path, "tensor \"{}\" ends at byte {}, but the data has {} bytes", name, entry.end, data_bytes);

  if (type != nullptr) {
    const std::optional<uint64_t> count = Count(entry.shape);
    uint64_t bytes = 0;
    if (!count || __builtin_mul_overflow(*count, type->bytes, &bytes))
      Broken(path, "tensor \"{}\": shape {} is larger than any memory", name, ShapeText(entry.shape));
    if (bytes != entry.end - entry.begin)
      Broken(path, "tensor \"{}\": {} {} needs {} bytes, but its data has {}", name, entry.dtype_name,
             ShapeText(entry.shape), bytes, entry.end - entry.begin);
  }
  return entry;
}

// The tensors must cover the data exactly, one after the other.
void CheckCoverage(const std::map<std::string, SafetensorsReader::Entry>& entries, uint64_t data_bytes,
                   const std::filesystem::path& path) {
  std::vector<const std::pair<const std::string, SafetensorsReader::Entry>*> order;
  for (const auto& item : entries) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  const std::string* previous = nullptr;
  for (const auto* item : order) {
    if (item->second.begin < covered)
      Broken(path, "tensors \"{}\" and \"{}\" overlap at byte {}", *previous, item->first,
             item->second.begin);
    if (item->second.begin > covered)
      Broken(path, "bytes {} to {} of the data belong to no tensor", covered, item->second.begin);
    covered = item->second.end;
    previous = &item->first;
  }
  if (covered != data_bytes)
    Broken(path, "the tensors end at byte {}, but the data has {} bytes", covered, data_bytes);
}

void ReadAt(int fd, uint64_t offset, std::span<std::byte> out, const std::filesystem::path& path) {
  while (!out.empty()) {
    constexpr size_t kPiece = size_t{1} << 30;  // below the most that one call moves
    const ssize_t got = ::pread(fd, out.data(), std::min(out.size(), kPiece), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Fail("cannot read \"{}\": {}", path.string(), std::strerror(errno));
    if (got == 0) Broken(path, "it ended at byte {} while it was read", offset);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

}  // namespace

int64_t TensorData::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<double> TensorData::Values() const {
  std::vector<double> values(static_cast<size_t>(elements()));
  NL_CHECK_EQ(bytes.size(), values.size() * SizeOf(dtype));
  const std::byte* from = bytes.data();
  for (double& value : values) {
    switch (dtype) {
      case DType::kF64:
        value = Load<double>(from);
        break;
      case DType::kF32:
        value = static_cast<double>(Load<float>(from));
        break;
      case DType::kF16:
        value = static_cast<double>(FromF16(Load<uint16_t>(from)));
        break;
      case DType::kBF16:
        value = static_cast<double>(BFloat16{Load<uint16_t>(from)}.ToFloat());
        break;
      case DType::kI32:
        value = Load<int32_t>(from);
        break;
    }
    from += SizeOf(dtype);
  }
  return values;
}

TensorData TensorData::FromDoubles(DType dtype, std::vector<int64_t> shape, std::span<const double> values) {
  TensorData tensor{dtype, std::move(shape), {}};
  NL_CHECK_EQ(static_cast<size_t>(tensor.elements()), values.size());
  tensor.bytes.resize(values.size() * SizeOf(dtype));
  std::byte* to = tensor.bytes.data();
  for (const double value : values) {
    switch (dtype) {
      case DType::kF64:
        Store(value, to);
        break;
      case DType::kF32:
        Store(static_cast<float>(value), to);
        break;
      case DType::kF16:
        Store(ToF16(value), to);
        break;
      case DType::kBF16:
        Store(ToBF16(value), to);
        break;
      case DType::kI32:
        NL_CHECK(value >= INT32_MIN && value <= INT32_MAX && value == std::floor(value));
        Store(static_cast<int32_t>(value), to);
        break;
    }
    to += SizeOf(dtype);
  }
  return tensor;
}

namespace {

template <class Map>
const typename Map::mapped_type& FindTensor(const Map& tensors, std::string_view name,
                                            std::string_view where) {
  const auto found = tensors.find(std::string(name));
  if (found != tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& item : tensors) names.push_back(item.first);
  const auto nearest = Nearest(name, names);
  Fail("no tensor \"{}\"{}{}; it holds {} tensors", name, where,
       nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "", names.size());
}

}  // namespace

const TensorData& SafetensorsFile::Get(std::string_view name) const {
  return FindTensor(tensors, name, " in this file");
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) Fail("cannot read \"{}\": {}; check the path", path.string(), std::strerror(errno));
  try {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0)
      Fail("cannot read \"{}\": {}", path.string(), std::strerror(errno));
    if (!S_ISREG(status.st_mode))
      Fail("cannot read \"{}\": it is a folder, device or pipe; name a safetensors file", path.string());
    const auto file_bytes = static_cast<uint64_t>(status.st_size);
    if (file_bytes < kLengthBytes)
      Broken(path, "it has {} bytes, too few for the length of a header", file_bytes);

    uint64_t header_bytes = 0;
    ReadAt(descriptor_, 0, std::as_writable_bytes(std::span(&header_bytes, 1)), path);
    if (header_bytes > kHeaderLimit)
      Broken(
          path,
          "its first 8 bytes promise a header of {} bytes, more than the limit of {} (the file has {} bytes)",
          header_bytes, kHeaderLimit, file_bytes);
    if (header_bytes > file_bytes - kLengthBytes)
      Broken(path, "its first 8 bytes promise a header of {} bytes, but the file has {} bytes", header_bytes,
             file_bytes);
    if (header_bytes < 2) Broken(path, "its header has {} bytes; the shortest is {{}}", header_bytes);

    std::string header(static_cast<size_t>(header_bytes), '\0');
    ReadAt(descriptor_, kLengthBytes, std::as_writable_bytes(std::span(header)), path);
    if (header[0] != '{') Broken(path, "its header does not begin with \"{{\"");
    data_start_ = kLengthBytes + header_bytes;
    const uint64_t data_bytes = file_bytes - data_start_;

    nlohmann::json json;
    try {
      json = ParseJson<nlohmann::json>(header, "header", JsonComments::kRefuse);
    } catch (const Error& error) {
      Broken(path, "{}", error.what());
    }
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadataKey) {
        if (!value.is_object()) Broken(path, "{} is {}, not an object", kMetadataKey, value.type_name());
        for (const auto& [key, text] : value.items()) {
          if (!text.is_string())
            Broken(path, "{}: \"{}\" is {}, not text", kMetadataKey, key, text.type_name());
          metadata_[key] = text.get<std::string>();
        }
      } else {
        entries_.emplace(name, ParseEntry(name, value, data_bytes, path));
      }
    }
    CheckCoverage(entries_, data_bytes, path);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() { ::close(descriptor_); }

const SafetensorsReader::Entry& SafetensorsReader::Find(std::string_view name) const {
  return FindTensor(entries_, name, fmt::format(" in \"{}\"", path_.string()));
}

const SafetensorsReader::Entry& SafetensorsReader::FindSupported(std::string_view name) const {
  const Entry& entry = Find(name);
  if (!entry.dtype)
    throw UnsupportedFileError(
        fmt::format("\"{}\": tensor \"{}\" has the type {}, which is not supported; convert it to F32 "
                    "(normlab reads F64, "
                    "F32, F16, BF16, I32)",
                    path_.string(), name, entry.dtype_name));
  return entry;
}

void SafetensorsReader::Read(std::string_view name, std::span<std::byte> out) const {
  const Entry& entry = FindSupported(name);
  NL_CHECK_EQ(out.size(), entry.end - entry.begin);
  ReadAt(descriptor_, data_start_ + entry.begin, out, path_);
}

void SafetensorsReader::ReadPart(std::string_view name, uint64_t first, std::span<std::byte> out) const {
  const Entry& entry = FindSupported(name);
  NL_CHECK_LE(first + out.size(), entry.end - entry.begin);
  ReadAt(descriptor_, data_start_ + entry.begin + first, out, path_);
}

TensorData SafetensorsReader::Read(std::string_view name) const {
  const Entry& entry = Find(name);
  TensorData tensor{entry.dtype.value_or(DType::kF32), entry.shape, {}};
  if (entry.dtype) tensor.bytes.resize(static_cast<size_t>(entry.end - entry.begin));
  Read(name, tensor.bytes);
  return tensor;
}

SafetensorsFile ReadSafetensors(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  SafetensorsFile file;
  file.metadata = reader.metadata();
  for (const auto& item : reader.entries()) file.tensors.emplace(item.first, reader.Read(item.first));
  return file;
}

FileStamp WriteSafetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                           const SafetensorsMetadata& metadata) {
  std::vector<const TensorToWrite*> order;
  std::set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == kMetadataKey)
      Fail("cannot write \"{}\": \"{}\" cannot be the name of a tensor", path.string(), tensor.name);
    if (!names.insert(tensor.name).second)
      Fail("cannot write \"{}\": two tensors are named \"{}\"", path.string(), tensor.name);
    for (const int64_t extent : tensor.shape) NL_CHECK(extent >= 0);
    const std::optional<uint64_t> count = Count(tensor.shape);
    NL_CHECK(count.has_value());
    if (!tensor.produce) NL_CHECK_EQ(tensor.bytes.size(), *count * SizeOf(tensor.dtype));
    order.push_back(&tensor);
  }
  // Larger elements first: then every tensor starts at a multiple of its element size.
  std::stable_sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return SizeOf(a->dtype) > SizeOf(b->dtype);
  });

  // Written by hand piece by piece: an ordered object would search all keys for each new one.
  std::string header = "{";
  const auto text = [](const std::string& value) { return DumpJson(Json(value)); };
  if (!metadata.empty()) {
    Json object = Json::object();
    for (const auto& [key, value] : metadata) object[key] = value;
    header += fmt::format("\"{}\":{}", kMetadataKey, DumpJson(object));
  }
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : order) {
    const uint64_t bytes = *Count(tensor->shape) * SizeOf(tensor->dtype);
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", text(tensor->name), FileTypeName(tensor->dtype),
                          fmt::join(tensor->shape, ","), offset, offset + bytes);
    offset += bytes;
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > kHeaderLimit)
    Fail("cannot write \"{}\": its header would have {} bytes, more than the {} that the format allows",
         path.string(), header.size(), kHeaderLimit);

  AtomicFile file(path);
  Hasher hasher;
  uint64_t written = 0;
  const TensorToWrite::Sink write = [&](std::span<const std::byte> bytes) {
    const std::string_view piece(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    file.Write(piece);
    hasher.Update(piece);
    written += piece.size();
  };
  const uint64_t header_bytes = header.size();
  write(std::as_bytes(std::span(&header_bytes, 1)));
  write(std::as_bytes(std::span(header)));
  for (const TensorToWrite* tensor : order) {
    const uint64_t end = written + *Count(tensor->shape) * SizeOf(tensor->dtype);
    tensor->produce ? tensor->produce(write) : write(tensor->bytes);
    NL_CHECK_EQ(written, end);
  }
  file.Commit();
  return {.bytes = written, .hash = hasher.Hex()};
}

FileStamp WriteSafetensors(const std::filesystem::path& path, const SafetensorsFile& file) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : file.tensors)
    tensors.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  return WriteSafetensors(path, tensors, file.metadata);
}

}  // namespace normlab
