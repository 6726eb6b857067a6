#include "normlab/base/safetensors.h"

#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <ctime>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "normlab/base/files.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;
using testing::TempFolder;

std::string LengthBytes(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

// A file with this header and data, its length right.
std::string FileText(const std::string& header, const std::string& data) {
  return LengthBytes(header.size()) + header + data;
}

std::string ReadError(const std::string& bytes) {
  const TempFolder folder;
  const auto path = folder.Write("bad.safetensors", bytes);
  return ErrorOf<BrokenFileError>([&] { ReadSafetensors(path); });
}

// A file whose only tensor has these data_offsets; its data has 8 bytes.
std::string WithOffsets(const std::string& offsets) {
  return FileText(R"({"w":{"dtype":"F32","shape":[2],)" + offsets + "}}", std::string(8, 'x'));
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape, int begin,
                   int end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin,
                     end);
}

TEST(Safetensors, ReadsAFileWrittenByHand) {
  const TempFolder folder;
  const float values[] = {1.5f, -2.0f};
  const std::string data(reinterpret_cast<const char*>(values), sizeof(values));
  const auto path =
      folder.Write("a", FileText(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],)"
                                 R"("data_offsets":[0,8]}}   )",
                                 data));
  const SafetensorsFile file = ReadSafetensors(path);
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_EQ(file.Get("w").shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(file.Values("w"), (std::vector<double>{1.5, -2.0}));
}

TEST(Safetensors, WritesTheVeryBytesOfTheFormat) {
  const TempFolder folder;
  SafetensorsFile file;
  file.metadata["step"] = "7";
  file.tensors["b"] = TensorData::FromDoubles(DType::kBF16, {1}, std::vector<double>{1.0});
  file.tensors["c"] = TensorData::FromDoubles(DType::kF32, {1}, std::vector<double>{1.0});
  WriteSafetensors(folder / "a", file);
  std::string header = R"({"__metadata__":{"step":"7"},"c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(ReadFile(folder / "a"), FileText(header, std::string("\0\0\x80\x3f\x80\x3f", 6)));
}

TEST(Safetensors, EmptyFilesTensorsAndScalarsAreFine) {
  const TempFolder folder;
  WriteSafetensors(folder / "none", SafetensorsFile{});
  EXPECT_TRUE(ReadSafetensors(folder / "none").tensors.empty());
  EXPECT_TRUE(ReadSafetensors(folder.Write("shortest", FileText("{}", ""))).tensors.empty());

  SafetensorsFile file;
  file.tensors["scalar"] = TensorData::FromDoubles(DType::kF64, {}, std::vector<double>{3.25});
  file.tensors["empty"] = TensorData::FromDoubles(DType::kF32, {3, 0, 2}, {});
  file.tensors["deep"] =
      TensorData::FromDoubles(DType::kF32, {1, 1, 1, 1, 1, 1, 1, 1, 2}, std::vector<double>{1, 2});
  WriteSafetensors(folder / "some", file);
  const SafetensorsFile back = ReadSafetensors(folder / "some");
  EXPECT_EQ(back.Values("scalar"), std::vector<double>{3.25});
  EXPECT_EQ(back.Values("empty"), std::vector<double>{});
  EXPECT_EQ(back.Get("empty").shape, (std::vector<int64_t>{3, 0, 2}));
  EXPECT_EQ(back.Get("deep").shape.size(), 9u);
}

RC_GTEST_PROP(Safetensors, WhatIsWrittenIsRead, ()) {
  static const DType types[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI32};
  const TempFolder folder;
  SafetensorsFile file;
  const auto names = *rc::gen::arbitrary<std::vector<std::string>>();
  for (const std::string& raw : names) {
    // Quotes, backslashes and control characters belong to names; bytes that are not UTF-8 do not.
    std::string name = "t";
    for (const char c : raw) name += static_cast<char>(c & 0x7f);
    TensorData tensor;
    tensor.dtype = types[*rc::gen::inRange<size_t>(0, 5)];
    tensor.shape =
        *rc::gen::container<std::vector<int64_t>>(*rc::gen::inRange<size_t>(0, 4), rc::gen::inRange(0, 5));
    const size_t bytes = static_cast<size_t>(tensor.elements()) * SizeOf(tensor.dtype);
    for (const uint8_t byte : *rc::gen::container<std::vector<uint8_t>>(bytes, rc::gen::arbitrary<uint8_t>()))
      tensor.bytes.push_back(static_cast<std::byte>(byte));
    file.tensors[name] = tensor;
    file.metadata[name] = name;
  }
  WriteSafetensors(folder / "file", file);
  const SafetensorsFile back = ReadSafetensors(folder / "file");
  RC_ASSERT(back.metadata == file.metadata);
  RC_ASSERT(back.tensors.size() == file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const TensorData& read = back.Get(name);
    RC_ASSERT(read.dtype == tensor.dtype);
    RC_ASSERT(read.shape == tensor.shape);
    RC_ASSERT(read.bytes == tensor.bytes);
  }
  // Every tensor is aligned in the file to its element, and equal input gives equal bytes.
  const SafetensorsReader reader(folder / "file");
  uint64_t header = 0;
  const std::string bytes = ReadFile(folder / "file");
  std::memcpy(&header, bytes.data(), 8);
  for (const auto& [name, entry] : reader.entries())
    RC_ASSERT((8 + header + entry.begin) % SizeOf(*entry.dtype) == 0u);
  WriteSafetensors(folder / "again", file);
  RC_ASSERT(ReadFile(folder / "again") == bytes);
}

RC_GTEST_PROP(Safetensors, ADamagedFileIsAnErrorOrReadableButNeverACrash, ()) {
  const TempFolder folder;
  SafetensorsFile file;
  file.metadata["k"] = "v";
  file.tensors["a.weight"] = TensorData::FromDoubles(DType::kF32, {2, 2}, std::vector<double>{1, 2, 3, 4});
  file.tensors["b"] = TensorData::FromDoubles(DType::kBF16, {3}, std::vector<double>{1, 2, 3});
  WriteSafetensors(folder / "file", file);
  std::string bytes = ReadFile(folder / "file");
  const auto flips = *rc::gen::inRange(0, 4);
  for (int i = 0; i < flips; ++i)
    bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = static_cast<char>(*rc::gen::inRange(0, 256));
  const bool cut = *rc::gen::arbitrary<bool>();
  if (cut) bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size()));
  folder.Write("file", bytes);
  try {
    const SafetensorsFile read = ReadSafetensors(folder / "file");
    RC_ASSERT(!cut);  // nothing may be missing
    for (const auto& [name, tensor] : read.tensors)
      RC_ASSERT(tensor.Values().size() == static_cast<size_t>(tensor.elements()));
  } catch (const Error&) {
    RC_SUCCEED("refused");
  }
}

// C-01
TEST(Safetensors, HeaderLengthsThatLieAreRefusedAtOnceWithoutMemory) {
  const TempFolder folder;
  const std::string rest = std::string("{}") + std::string(100, ' ');
  const std::vector<std::string> files = {std::string(8, '\xff') + rest,
                                          LengthBytes(0x8000000000000000u) + rest,
                                          LengthBytes(uint64_t{1} << 40) + rest,
                                          LengthBytes(8 + rest.size() + 1) + rest,
                                          LengthBytes(rest.size() + 1) + rest,
                                          LengthBytes(100'000'001) + rest,
                                          LengthBytes(0) + rest,
                                          LengthBytes(1) + rest,
                                          "",
                                          std::string(7, '\0'),
                                          std::string(8, '\0')};
  for (size_t i = 0; i < files.size(); ++i) {
    const auto path = folder.Write("file", files[i]);
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    const std::clock_t start = std::clock();  // of the processor: others may keep this process waiting
    EXPECT_SAYS(ErrorOf<BrokenFileError>([&] { SafetensorsReader reader(path); }),
                {"file\" is a broken safetensors file", "bytes"})
        << i;
    const double took_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(took_s, 0.05) << i;
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 4096) << i;  // KiB
  }
  EXPECT_SAYS(ReadError(LengthBytes(uint64_t{1} << 40) + rest), {"1099511627776", "110 bytes"});
}

TEST(Safetensors, AHeaderBeyondTheLimitIsRefusedEvenIfTheFileIsThatLong) {
  const TempFolder folder;
  const auto path = folder.Write("file", LengthBytes(100'000'001) + "{}");
  std::filesystem::resize_file(path, 8 + 100'000'001);  // sparse
  EXPECT_SAYS(ErrorOf<BrokenFileError>([&] { SafetensorsReader reader(path); }), {"limit of 100000000"});
}

// C-02
TEST(Safetensors, OffsetsMustBeTwoWholeNumbersInsideTheData) {
  for (const char* offsets :
       {R"("data_offsets":[8,4])", R"("data_offsets":[-4,0])", R"("data_offsets":[0,4,8])",
        R"("data_offsets":[0])", R"("data_offsets":"0")", R"("data_offsets":[0,1e30])",
        R"("data_offsets":[0.5,4])", R"("data_offsets":[0,9223372036854775808])",
        R"("data_offsets":[0,18446744073709551616])", R"("x":1)", R"("data_offsets":[0,9])",
        R"("data_offsets":[0,4])", R"("data_offsets":[true,false])", R"("data_offsets":null)"})
    EXPECT_SAYS(ReadError(WithOffsets(offsets)), {"tensor \"w\""}) << offsets;
  const TempFolder folder;
  EXPECT_NO_THROW(ReadSafetensors(folder.Write("good", WithOffsets(R"("data_offsets":[0,8])"))));
}

TEST(Safetensors, ShapesMustBeWholeNumbersThatFitTheData) {
  for (const char* shape :
       {"[3]", "[]", "[-2]", "[2.0]", "\"2\"", "[[2]]", "2", "[1e30]", "[18446744073709551615]",
        "[4294967296,4294967296,2]", "[0]", "null", "[4611686018427387906]"})
    EXPECT_SAYS(
        ReadError(FileText(std::string("{") + Tensor("w", "F32", shape, 0, 8) + "}", std::string(8, 'x'))),
        {"tensor \"w\""})
        << shape;
}

// C-02
TEST(Safetensors, HeadersThatAreNoTableOfTensorsAreRefused) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  for (const std::string& header :
       {std::string("[1,2]"), std::string("\"text\""), std::string("12"), std::string("null"),
        std::string(" {}"), std::string("{\"w\": \"\xff\"}"), std::string("{} x"), std::string("{}{}"),
        std::string("{"), deep, std::string("\xef\xbb\xbf{}"), std::string("{}\0x", 4), std::string("{/**/}"),
        std::string("{\"w\":1}"), std::string("{\"w\":[]}"), std::string("{\"__metadata__\":1}"),
        std::string("{\"__metadata__\":{\"a\":1}}"),
        std::string("{\"w\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,0]}}")})
    EXPECT_SAYS(ReadError(FileText(header, "")), {"broken safetensors file"}) << header.substr(0, 50);
}

// C-05: bytes that belong to no tensor, trailing ones too. There is one reader, so one verdict in all
// commands.
TEST(Safetensors, TensorsMustCoverTheDataExactly) {
  const auto error = [](const std::string& tensors, size_t data) {
    return ReadError(FileText(std::string("{") + tensors + "}", std::string(data, 'x')));
  };
  EXPECT_SAYS(error(Tensor("a", "F32", "[1]", 0, 4) + "," + Tensor("b", "F32", "[1]", 8, 12), 12),
              {"bytes 4 to 8"});
  EXPECT_SAYS(error(Tensor("a", "F32", "[1]", 4, 8), 8), {"bytes 0 to 4"});
  EXPECT_SAYS(error(Tensor("a", "F32", "[2]", 0, 8) + "," + Tensor("b", "F32", "[2]", 4, 12), 12),
              {"\"a\" and \"b\" overlap"});
  EXPECT_SAYS(error(Tensor("a", "F32", "[1]", 0, 4) + "," + Tensor("b", "F32", "[1]", 0, 4), 4), {"overlap"});
  EXPECT_SAYS(error(Tensor("a", "F32", "[1]", 0, 4), 5), {"end at byte 4", "has 5 bytes"});
  EXPECT_SAYS(error("", 1), {"has 1 bytes"});
  EXPECT_SAYS(error(Tensor("a", "F32", "[1]", 0, 4) + "," + Tensor("a", "F32", "[1]", 4, 8), 8),
              {"\"a\" is given twice"});
  EXPECT_SAYS(error(Tensor("a", "F32", "[1]", 0, 4) + "," + Tensor("\\u0061", "F32", "[1]", 4, 8), 8),
              {"given twice"});
  // A tensor without elements takes no room, wherever it stands.
  const TempFolder folder;
  EXPECT_NO_THROW(ReadSafetensors(folder.Write(
      "good",
      FileText(std::string("{") + Tensor("a", "F32", "[1]", 0, 4) + "," + Tensor("b", "F32", "[0]", 4, 4) +
                   "," + Tensor("c", "F32", "[0]", 0, 0) + "," + Tensor("d", "F32", "[1]", 4, 8) + "}",
               std::string(8, 'x')))));
}

// C-12
TEST(Safetensors, ATypeOfNoUseIsUnsupportedNotBroken) {
  const TempFolder folder;
  const std::pair<const char*, int> types[] = {
      {"F8_E4M3", 1}, {"I64", 8}, {"BOOL", 1}, {"C64", 8}, {"BF17", 2}};
  for (const auto& [type, bytes] : types) {
    const auto path =
        folder.Write("file", FileText(std::string("{") + Tensor("mask", type, "[1]", 0, bytes) + "," +
                                          Tensor("w", "F32", "[1]", bytes, bytes + 4) + "}",
                                      std::string(static_cast<size_t>(bytes) + 4, '\0')));
    EXPECT_SAYS(ErrorOf<UnsupportedFileError>([&] { ReadSafetensors(path); }),
                {std::string("the type ") + type, "\"mask\"", "not supported", "convert"});
    const SafetensorsReader reader(path);  // the rest of the file can be read
    EXPECT_EQ(reader.Read("w").Values(), std::vector<double>{0});
    EXPECT_FALSE(reader.Find("mask").dtype.has_value());
    EXPECT_EQ(reader.Find("mask").dtype_name, type);
  }
  EXPECT_SAYS(
      ReadError(FileText(std::string("{") + Tensor("m", "I64", "[2]", 0, 8) + "}", std::string(8, 'x'))),
      {"needs 16 bytes"});
}

TEST(Safetensors, AByteSwappedFileIsBroken) {
  EXPECT_SAYS(ReadError(std::string("\0\0\0\0\0\0\0\x2{}", 10)), {"144115188075855872"});
}

// C-13
TEST(Safetensors, AnyStartOfTheDataGivesTheSameValues) {
  const TempFolder folder;
  const std::vector<double> values = {1.5, -0.0, 1e300, 3};
  TensorData tensors[] = {TensorData::FromDoubles(DType::kF64, {4}, values),
                          TensorData::FromDoubles(DType::kF32, {4}, std::vector<double>{1, 2, -3.5, 4}),
                          TensorData::FromDoubles(DType::kBF16, {4}, std::vector<double>{1, 2, -3.5, 4})};
  for (const TensorData& tensor : tensors) {
    const char* name = tensor.dtype == DType::kF64 ? "F64" : tensor.dtype == DType::kF32 ? "F32" : "BF16";
    const std::string header =
        std::string("{") + Tensor("w", name, "[4]", 0, static_cast<int>(tensor.bytes.size())) + "}";
    ASSERT_LE(header.size(), 57u);
    const std::string data(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    for (size_t length = 57; length <= 64; ++length) {
      const auto path = folder.Write("f", FileText(header + std::string(length - header.size(), ' '), data));
      EXPECT_EQ(ReadSafetensors(path).Values("w"), tensor.Values()) << length;
    }
  }
}

TEST(TensorData, EveryHalfPrecisionValueConvertsBothWays) {
  TensorData all{DType::kF16, {65536}, std::vector<std::byte>(2 * 65536)};
  for (uint32_t bits = 0; bits < 65536; ++bits) std::memcpy(&all.bytes[2 * bits], &bits, 2);
  const std::vector<double> values = all.Values();
  EXPECT_EQ(values[0x3c00], 1.0);
  EXPECT_EQ(values[0x0001], 0x1p-24);
  EXPECT_EQ(values[0x03ff], 1023 * 0x1p-24);
  EXPECT_EQ(values[0x0400], 0x1p-14);
  EXPECT_EQ(values[0x7bff], 65504.0);
  EXPECT_EQ(values[0xfc00], -HUGE_VAL);
  EXPECT_TRUE(std::isnan(values[0x7e01]));
  const TensorData back = TensorData::FromDoubles(DType::kF16, {65536}, values);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    uint16_t found = 0;
    std::memcpy(&found, &back.bytes[2 * bits], 2);
    if (std::isnan(values[bits]))
      EXPECT_TRUE((found & 0x7c00) == 0x7c00 && (found & 0x3ff) != 0) << bits;
    else
      EXPECT_EQ(found, bits);
  }
}

// The 16-bit value of one double.
uint16_t Narrow(DType dtype, double value) {
  uint16_t bits = 0;
  std::memcpy(&bits, TensorData::FromDoubles(dtype, {}, std::span(&value, 1)).bytes.data(), 2);
  return bits;
}

TEST(TensorData, HalfPrecisionRoundsOnceToNearestEven) {
  EXPECT_EQ(Narrow(DType::kF16, 1 + 0x1p-11), 0x3c00);  // a tie
  EXPECT_EQ(Narrow(DType::kF16, 1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(Narrow(DType::kF16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);  // in float this would be the tie
  EXPECT_EQ(Narrow(DType::kF16, 2 - 0x1p-12), 0x4000);            // carries into the exponent
  EXPECT_EQ(Narrow(DType::kF16, 65519.99), 0x7bff);
  EXPECT_EQ(Narrow(DType::kF16, 65520), 0x7c00);
  EXPECT_EQ(Narrow(DType::kF16, 0x1p-25), 0x0000);
  EXPECT_EQ(Narrow(DType::kF16, 0x1.8p-25), 0x0001);
  EXPECT_EQ(Narrow(DType::kF16, -0.0), 0x8000);
  EXPECT_EQ(Narrow(DType::kBF16, 1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(Narrow(DType::kBF16, 1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(Narrow(DType::kBF16, 1 + 3 * 0x1p-8 - 0x1p-40), 0x3f81);
  EXPECT_EQ(Narrow(DType::kBF16, -1e300), 0xff80);
  EXPECT_EQ(Narrow(DType::kBF16, 1e-300), 0x0000);
}

TEST(TensorData, IntegersKeepTheirValues) {
  const std::vector<double> values = {0, -1, 2147483647, -2147483648.0};
  EXPECT_EQ(TensorData::FromDoubles(DType::kI32, {4}, values).Values(), values);
  EXPECT_THROW(TensorData::FromDoubles(DType::kI32, {1}, std::vector<double>{0.5}), std::logic_error);
  EXPECT_THROW(TensorData::FromDoubles(DType::kI32, {2}, std::vector<double>{1}), std::logic_error);
}

TEST(SafetensorsFile, ProposesTheNearestName) {
  SafetensorsFile file;
  file.tensors["tok_emb.weight"] = TensorData::FromDoubles(DType::kF32, {}, std::vector<double>{1});
  EXPECT_SAYS(ErrorOf([&] { file.Get("tok_emb.wieght"); }),
              {"tok_emb.wieght", "did you mean \"tok_emb.weight\""});
}

TEST(SafetensorsReader, ReadsStraightIntoTheCallersMemory) {
  const TempFolder folder;
  SafetensorsFile file;
  file.tensors["w"] = TensorData::FromDoubles(DType::kF64, {2}, std::vector<double>{4, 5});
  WriteSafetensors(folder / "f", file);
  const SafetensorsReader reader(folder / "f");
  double out[2] = {};
  reader.Read("w", std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out[1], 5);
  EXPECT_THROW(reader.Read("w", std::as_writable_bytes(std::span(out, 1))), std::logic_error);
  reader.ReadPart("w", 8, std::as_writable_bytes(std::span(out, 1)));
  EXPECT_EQ(out[0], 5);
  EXPECT_THROW(reader.ReadPart("w", 9, std::as_writable_bytes(std::span(out, 1))), std::logic_error);
  EXPECT_THROW(reader.ReadPart("w", 8, std::as_writable_bytes(std::span(out))), std::logic_error);
  EXPECT_SAYS(ErrorOf([&] { reader.Read("v"); }), {"no tensor \"v\"", (folder / "f").string()});
}

TEST(SafetensorsReader, SaysWhenTheFileShrinksUnderIt) {
  const TempFolder folder;
  SafetensorsFile file;
  file.tensors["w"] = TensorData::FromDoubles(DType::kF64, {2}, std::vector<double>{4, 5});
  WriteSafetensors(folder / "f", file);
  const SafetensorsReader reader(folder / "f");
  std::filesystem::resize_file(folder / "f", std::filesystem::file_size(folder / "f") - 4);
  EXPECT_SAYS(ErrorOf<BrokenFileError>([&] { reader.Read("w"); }), {"ended"});
}

TEST(SafetensorsReader, NamesAMissingFileAndAFolder) {
  const TempFolder folder;
  EXPECT_SAYS(ErrorOf([&] { ReadSafetensors(folder / "absent"); }), {"absent", "check the path"});
  EXPECT_SAYS(ErrorOf([&] { ReadSafetensors(folder.path()); }), {"is a folder"});
}

TEST(WriteSafetensors, ProducedPiecesGiveTheSameFileAndItsStamp) {
  const TempFolder folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  const TensorToWrite whole[] = {{"w", DType::kF32, {2, 3}, bytes}};
  const TensorToWrite pieces[] = {
      {.name = "w", .dtype = DType::kF32, .shape = {2, 3}, .produce = [&](auto& write) {
         write(bytes.first(4));
         write(bytes.subspan(4));
       }}};
  const TensorToWrite short_of_one[] = {
      {.name = "w", .dtype = DType::kF32, .shape = {2, 3}, .produce = [&](auto& write) {
         write(bytes.first(20));
       }}};
  const FileStamp stamp = WriteSafetensors(folder / "whole", whole, {{"key", "value"}});
  EXPECT_EQ(WriteSafetensors(folder / "pieces", pieces, {{"key", "value"}}), stamp);
  EXPECT_EQ(ReadFile(folder / "pieces"), ReadFile(folder / "whole"));
  EXPECT_EQ(stamp.bytes, std::filesystem::file_size(folder / "whole"));
  EXPECT_EQ(stamp.hash, FileHash(folder / "whole"));
  EXPECT_THROW(WriteSafetensors(folder / "short", short_of_one), std::logic_error);
  EXPECT_FALSE(std::filesystem::exists(folder / "short"));
}

TEST(WriteSafetensors, RefusesNamesThatCannotBe) {
  const TempFolder folder;
  const auto write = [&](std::vector<std::string> names) {
    std::vector<TensorToWrite> tensors;
    for (const std::string& name : names) tensors.push_back({name, DType::kF32, {0}, {}});
    WriteSafetensors(folder / "f", tensors);
  };
  EXPECT_SAYS(ErrorOf([&] { write({"w", "w"}); }), {"two tensors are named \"w\""});
  EXPECT_THROW(write({"__metadata__"}), Error);
  EXPECT_THROW(write({""}), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

}  // namespace
}  // namespace normlab
