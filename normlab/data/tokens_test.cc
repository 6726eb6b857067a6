#include "normlab/data/tokens.h"

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
