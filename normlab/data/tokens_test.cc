#include "normlab/data/tokens.h"

#include <sys/stat.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;
using testing::TempFolder;

std::vector<int32_t> All(const TokenSource& tokens) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
  tokens.Copy(0, ids);
  return ids;
}

TokensInfo InfoOf(int64_t vocab_size) {
  return {.tokenizer = "test", .tokenizer_hash = {}, .vocab_size = vocab_size, .data_hash = {}, .files = {}};
}

TEST(ReadByteTokens, JoinsFilesInTheOrderGiven) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> paths = {folder.Write("s_2", "ab\xff"),
                                                    folder.Write("s_10", "\ncd")};
  const auto tokens = ReadByteTokens(paths);
  EXPECT_EQ(All(*tokens), (std::vector<int32_t>{97, 98, 255, 10, 99, 100}));
  EXPECT_EQ(tokens->info().tokenizer, "bytes");
  EXPECT_EQ(tokens->info().vocab_size, 256);
  ASSERT_EQ(tokens->info().files.size(), 2u);
  EXPECT_EQ(tokens->info().files[1].first_token, 3);
  EXPECT_EQ(tokens->info().files[1].bytes, 3);
}

TEST(ReadByteTokens, HashesTheTextNotTheFiles) {
  const TempFolder folder;
  const auto a = folder.Write("a", "one"), b = folder.Write("b", "two"), ab = folder.Write("ab", "onetwo");
  const auto hash = [](std::vector<std::filesystem::path> paths) {
    return ReadByteTokens(paths)->info().data_hash;
  };
  EXPECT_EQ(hash({a, b}), hash({ab}));
  EXPECT_NE(hash({a, b}), hash({b, a}));
  EXPECT_NE(hash({a}), hash({b}));
}

TEST(ReadByteTokens, RefusesWhatIsNoText) {
  const TempFolder folder;
  const auto read = [&](std::vector<std::filesystem::path> paths) {
    return ErrorOf([&] { ReadByteTokens(paths); });
  };
  EXPECT_SAYS(read({}), {"no data", "at least one"});
  EXPECT_SAYS(read({folder / "absent"}), {"absent", "check the path"});
  EXPECT_SAYS(read({folder.path()}), {"is a folder"});
  EXPECT_SAYS(read({folder.Write("empty", "")}), {"empty\" is empty"});
}

TEST(ReadByteTokens, RefusesDevicesAndPipesWithoutOpeningThem) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);  // without a writer: opening it would wait forever
  for (const std::filesystem::path& path : {folder / "pipe", std::filesystem::path("/dev/zero")})
    EXPECT_SAYS(ErrorOf([&] { ReadByteTokens(std::vector{path}); }), {path.string(), "device or a pipe"});
}

TEST(ReadByteTokens, RefusesWhatDoesNotFitBeforeItReads) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> one = {folder.Write("a", std::string(1000, 'a'))};
  const std::vector<std::filesystem::path> two = {one[0], folder.Write("b", std::string(500, 'b'))};
  EXPECT_EQ(ReadByteTokens(one, 1000)->size(), 1000);
  EXPECT_SAYS(ErrorOf([&] { ReadByteTokens(one, 999); }), {"1000 B", "999 B", "part of it"});
  EXPECT_EQ(ReadByteTokens(two, 2500)->size(), 1500);  // both, and the larger once more
  EXPECT_SAYS(ErrorOf([&] { ReadByteTokens(two, 2499); }), {"does not fit"});
  // A file that is larger than any memory, though it takes no disk.
  const std::filesystem::path huge = folder.Write("huge", "x");
  std::filesystem::resize_file(huge, uintmax_t{1} << 42);
  EXPECT_SAYS(ErrorOf([&] { ReadByteTokens(std::vector{huge}, uint64_t{1} << 40); }), {"4.0 TiB", "1.0 TiB"});
}

TEST(ReadByteTokens, BytesAbove127AreIdsAbove127) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> path = {folder.Write("bytes", "\x7f\x80\xff")};
  std::vector<int32_t> ids(3);
  ReadByteTokens(path)->Copy(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{127, 128, 255}));
}

TEST(ReadByteTokens, RefusesATextGivenTwice) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> same = {folder.Write("a", "text"), folder.Write("b", "other"),
                                                   folder.Write("copy", "text")};
  EXPECT_SAYS(ErrorOf([&] { ReadByteTokens(same); }), {"copy\"", "same text as", "a\""});
}

TEST(TokensFromIds, KeepsIdsBeyondSixteenBits) {
  for (const int32_t vocab : {65535, 65536, 65537, 119547}) {
    std::vector<int32_t> ids;
    for (const int32_t id : {0, 40000, 65534, 65535, 65536, 119546})
      if (id < vocab) ids.push_back(id);
    EXPECT_EQ(All(*TokensFromIds(ids, InfoOf(vocab))), ids);
  }
}

TEST(TokensFromIds, NamesTheIdOutsideTheVocabularyAndItsPlace) {
  TokensInfo info = InfoOf(100);
  info.files = {{"first.bin", 0, 0}, {"second.bin", 0, 3}};
  EXPECT_SAYS(ErrorOf([&] {
                TokensFromIds({1, 2, 3, 4, 100}, info);
              }),
              {"\"second.bin\", token 1", "id 100", "vocabulary of 100 ids"});
  EXPECT_SAYS(ErrorOf([&] { TokensFromIds({1, -1}, info); }), {"\"first.bin\", token 1", "id -1"});
}

TEST(TokensFromIds, HasTheHashOfTheSameIdsReadAsBytes) {
  const TempFolder folder;
  const std::vector<std::filesystem::path> paths = {folder.Write("a", "abc")};
  EXPECT_EQ(TokensFromIds({97, 98, 99}, InfoOf(256))->info().data_hash,
            ReadByteTokens(paths)->info().data_hash);
}

TEST(CheckVocabulary, FindsTheFirstIdThatTheModelLacks) {
  const TempFolder folder;
  std::string text(100000, 'a');
  text[70000] = '\xc3';
  const std::vector<std::filesystem::path> paths = {folder.Write("book.txt", text)};
  const auto tokens = ReadByteTokens(paths);
  EXPECT_SAYS(ErrorOf([&] { CheckVocabulary(*tokens, 128); }),
              {"book.txt\", token 70000", "id 195", "128 ids", "set vocab_size to at least 256"});
  EXPECT_NO_THROW(CheckVocabulary(*tokens, 196));
  EXPECT_NO_THROW(CheckVocabulary(*tokens, 50257));
  EXPECT_THROW(CheckVocabulary(*tokens, 195), Error);
}

TEST(TokenSource, CopyStaysInside) {
  const auto tokens = TokensFromIds({1, 2, 3}, InfoOf(10));
  std::vector<int32_t> out(2);
  tokens->Copy(1, out);
  EXPECT_EQ(out, (std::vector<int32_t>{2, 3}));
  EXPECT_THROW(tokens->Copy(2, out), std::logic_error);
  EXPECT_THROW(tokens->Copy(-1, out), std::logic_error);
}

}  // namespace
}  // namespace normlab
