#include "normlab/base/json.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "normlab/base/error.h"
#include "normlab/base/testing/comma_locale.h"
#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;

TEST(ParseJson, KeepsTheOrderOfKeysAndTakesComments) {
  const Json json = ParseJson("// first\n{\"b\": 1, /* inside */ \"a\": [true, null]}", "test");
  EXPECT_EQ(json.dump(), R"({"b":1,"a":[true,null]})");
}

TEST(ParseJson, RefusesCommentsWhereAsked) {
  EXPECT_THROW(ParseJson("{} // x", "test", JsonComments::kRefuse), Error);
  EXPECT_NO_THROW(ParseJson("{}  ", "test", JsonComments::kRefuse));
}

TEST(ParseJson, NamesSourceLineAndColumn) {
  EXPECT_SAYS(ErrorOf([] { ParseJson("{\n  \"steps\": 3O0\n}", "my.json"); }),
              {"my.json, line 2, column 13: "});
  EXPECT_SAYS(ErrorOf([] { ParseJson("", "my.json"); }), {"my.json, line 1, column 1"});
  EXPECT_SAYS(ErrorOf([] { ParseJson("{\"a\": 1,}", "my.json"); }), {"line 1, column 9"});
}

TEST(ParseJson, RefusesAKeyGivenTwiceInOneObjectOnly) {
  EXPECT_SAYS(ErrorOf([] { ParseJson(R"({"a": 1, "b": 2, "a": 3})", "my.json"); }),
              {"my.json", "\"a\" is given twice"});
  EXPECT_THROW(ParseJson(R"([{"x": {"a": 1, "a": 1}}])", "test"), Error);
  EXPECT_NO_THROW(ParseJson(R"([{"a": 1}, {"a": {"a": 2}}])", "test"));
  EXPECT_THROW(ParseJson(R"({"a": 1, "\u0061": 1})", "test"), Error);
}

TEST(ParseJson, RefusesBrokenText) {
  EXPECT_THROW(ParseJson("{\"a\": \"\xff\"}", "test"), Error);
  EXPECT_THROW(ParseJson("{\"a\": \"\xc0\x80\"}", "test"), Error);
  EXPECT_THROW(ParseJson("{} {}", "test"), Error);
  EXPECT_THROW(ParseJson("{\"a\": nan}", "test"), Error);
  EXPECT_THROW(ParseJson("{\"a\": 1e999}", "test"), Error);
  EXPECT_SAYS(ErrorOf([] { ParseJson(std::string_view("{}\0junk", 7), "test"); }), {"zero byte"});
}

TEST(ParseJson, AMessageIsOneShortLineOfText) {
  const std::string bytes = ErrorOf([] { ParseJson("{\"a\": \"\xed\xff\"}", "test"); });
  EXPECT_EQ(bytes.find_first_of("\xed\xff\n"), std::string::npos) << bytes;
  const std::string endless = ErrorOf([] { ParseJson("{\"a\": \"" + std::string(1'000'000, 'x'), "test"); });
  EXPECT_LT(endless.size(), 500u);
}

TEST(ParseJson, RefusesDeepNestingWithoutACrash) {
  EXPECT_SAYS(ErrorOf([] { ParseJson(std::string(100000, '['), "test"); }), {"nested deeper"});
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_SAYS(ErrorOf([&] { ParseJson<nlohmann::json>(objects, "test"); }), {"nested deeper"});
  EXPECT_NO_THROW(ParseJson(std::string(90, '[') + std::string(90, ']'), "test"));
}

TEST(ToJson, WritesWhatJsonLacksAsStringsAndNoValueAsNull) {
  EXPECT_EQ(DumpJson(ToJson(std::numeric_limits<double>::quiet_NaN())), "\"nan\"");
  EXPECT_EQ(DumpJson(ToJson(HUGE_VAL)), "\"inf\"");
  EXPECT_EQ(DumpJson(ToJson(-HUGE_VAL)), "\"-inf\"");
  EXPECT_EQ(DumpJson(ToJson(std::optional<double>())), "null");
  EXPECT_EQ(DumpJson(ToJson(std::optional<double>(2.5))), "2.5");
}

RC_GTEST_PROP(ToJson, EveryDoubleComesBackBitForBit, (uint64_t bits)) {
  const double value = std::bit_cast<double>(bits);
  const Json json = ToJson(value);
  const double back = NumberFromJson(ParseJson(DumpJson(json), "test"), "value");
  RC_ASSERT((std::isnan(value) ? std::isnan(back) : std::bit_cast<uint64_t>(back) == bits));
  int digits = 0;
  const std::string text = DumpJson(json);
  for (const char c : text.substr(0, text.find('e')))  // leading zeros do not count
    digits += c >= '0' && c <= '9' && (digits > 0 || c != '0') ? 1 : 0;
  RC_ASSERT((std::isnan(value) || digits <= 17));
}

TEST(NumberFromJson, SaysWhatItFoundInstead) {
  EXPECT_TRUE(std::isnan(NumberFromJson("nan", "loss")));
  EXPECT_EQ(NumberFromJson(Json(3), "loss"), 3.0);
  EXPECT_SAYS(ErrorOf([] { NumberFromJson(Json("many"), "loss"); }), {"loss is \"many\""});
  EXPECT_THROW(NumberFromJson(Json(), "loss"), Error);
  EXPECT_THROW(NumberFromJson(Json(true), "loss"), Error);
  EXPECT_EQ(OptionalNumberFromJson(Json(), "loss"), std::nullopt);
  EXPECT_EQ(OptionalNumberFromJson(Json(0.0), "loss"), 0.0);
}

TEST(DumpJson, ReplacesBytesThatAreNotUtf8) {
  const Json json = {{"path", "name-\xff.txt"}};
  EXPECT_EQ(DumpJson(json), "{\"path\":\"name-\xef\xbf\xbd.txt\"}");
}

TEST(DumpJson, IgnoresTheLocalesDecimalComma) {
  const testing::CommaLocale comma;
  if (!comma) GTEST_SKIP() << "no locale with a decimal comma here (Debian: apt install locales)";
  EXPECT_EQ(DumpJson(ToJson(0.5)), "0.5");
  EXPECT_EQ(ParseJson("0.5", "test").get<double>(), 0.5);
}

}  // namespace
}  // namespace normlab
