#include "normlab/base/config_keys.h"

#include <cmath>

#include <gtest/gtest.h>

#include "normlab/base/testing/files.h"

namespace normlab {
namespace {

using testing::ErrorOf;

struct Oven {
  int64_t trays = 2;
  double heat = 180;
  bool fan = false;
  std::string kind = "gas";
  std::optional<double> grill;
  std::optional<int64_t> timer;
};

const std::vector<ConfigKey<Oven>>& Keys() {
  static const std::vector<ConfigKey<Oven>> keys = {
      IntegerKey<Oven>("trays", "how many", 1, 8, &Oven::trays),
      NumberKey<Oven>(
          "heat", "in degrees", "a number above 0", [](double v) { return v > 0; }, &Oven::heat),
      BoolKey<Oven>("fan", "moves the air", &Oven::fan),
      TextKey<Oven>(
          "kind", "what heats", "gas, wood",
          [](const std::string& text) {
            if (text != "gas" && text != "wood") Fail("no oven burns {}", text);
            return text;
          },
          &Oven::kind),
      OptionalNumberKey<Oven>(
          "grill", "from above", "a number from 0", [](double v) { return v >= 0; }, &Oven::grill,
          [](const Oven& o) { return o.grill.value_or(o.heat + 20); }),
      OptionalIntegerKey<Oven>("timer", "minutes", 1, INT64_MAX, &Oven::timer,
                               [](const Oven& o) { return o.timer.value_or(60); })};
  return keys;
}

Oven Assigned(std::string_view assignment) {
  Oven oven;
  ApplyAssignment<Oven>(Keys(), oven, assignment);
  return oven;
}

TEST(ConfigKeys, AssignmentsSetEveryTypeOfKey) {
  EXPECT_EQ(Assigned("trays=3").trays, 3);
  EXPECT_EQ(Assigned("trays=8.0").trays, 8);
  EXPECT_EQ(Assigned("heat=2e2").heat, 200);
  EXPECT_EQ(Assigned("heat=7").heat, 7);
  EXPECT_TRUE(Assigned("fan=true").fan);
  EXPECT_EQ(Assigned("kind=wood").kind, "wood");
  EXPECT_EQ(Assigned("kind=\"wood\"").kind, "wood");
  EXPECT_EQ(Assigned(" kind = wood ").kind, "wood");
  EXPECT_EQ(Assigned("grill=5").grill, 5.0);
  EXPECT_EQ(Assigned("timer=5").timer, 5);
  Oven oven{.grill = 5.0, .timer = 5};
  ApplyAssignment<Oven>(Keys(), oven, "timer=null");
  ApplyAssignment<Oven>(Keys(), oven, "grill=null");
  EXPECT_EQ(oven.timer, std::nullopt);
  EXPECT_EQ(oven.grill, std::nullopt);
}

TEST(ConfigKeys, RefusalsNameKeyValueAndWhatIsAllowed) {
  EXPECT_EQ(ErrorOf([] { Assigned("trays=9"); }),
            "trays = 9 is not allowed; trays (how many) must be a whole number from 1 to 8");
  EXPECT_SAYS(ErrorOf([] { Assigned("trays=many"); }), {"trays = \"many\" is not allowed"});
  EXPECT_SAYS(ErrorOf([] { Assigned("heat=0"); }), {"heat = 0", "a number above 0"});
  EXPECT_SAYS(ErrorOf([] { Assigned("kind=coal"); }), {"no oven burns coal"});
  for (const char* bad : {"trays=2.5",   "trays=0",    "trays=-1",   "trays=99999999999999999999",
                          "trays=1e300", "trays=true", "trays=null", "heat=nan",
                          "heat=true",   "heat=\"7\"", "fan=1",      "fan=yes",
                          "kind=3",      "kind=true",  "kind=null",  "grill=-1",
                          "timer=0",     "timer=1.5",  "trays=[1]",  "trays={}"})
    EXPECT_THROW(Assigned(bad), Error) << bad;
}

TEST(ConfigKeys, ALongValueIsCutInTheMessage) {
  EXPECT_LT(ErrorOf([] { Assigned("trays=" + std::string(100000, 'x')); }).size(), 200u);
  EXPECT_THROW(Assigned("trays=" + std::string(50000, '[')), Error);
}

TEST(ConfigKeys, AnUnknownKeyProposesTheNearest) {
  EXPECT_SAYS(ErrorOf([] { Assigned("tray=1"); }),
              {"unknown configuration key \"tray\"", "did you mean \"trays\"?"});
}

TEST(ConfigKeys, WhatIsNoAssignmentIsAUsageError) {
  for (const char* bad : {"trays", "", "=3", "trays=", "trays= "})
    EXPECT_THROW(Assigned(bad), UsageError) << bad;
  EXPECT_SAYS(ErrorOf([] { Assigned("trays"); }), {"key=value"});
}

TEST(ConfigKeys, ObjectsAreStrictAndNameTheirSource) {
  Oven oven;
  ApplyJson<Oven>(Keys(), oven, ParseJson(R"({"trays": 4, "fan": true})", "my.json"), "my.json");
  EXPECT_EQ(oven.trays, 4);
  EXPECT_TRUE(oven.fan);
  EXPECT_EQ(oven.heat, 180);
  EXPECT_SAYS(ErrorOf([&] {
                ApplyJson<Oven>(Keys(), oven, {{"haet", 3}}, "my.json");
              }),
              {"my.json: ", "did you mean \"heat\"?"});
  EXPECT_SAYS(ErrorOf([&] {
                ApplyJson<Oven>(Keys(), oven, {{"heat", "hot"}}, "my.json");
              }),
              {"my.json: heat = \"hot\""});
  EXPECT_SAYS(ErrorOf([&] { ApplyJson<Oven>(Keys(), oven, Json::array({1}), "my.json"); }),
              {"my.json", "array"});
}

TEST(ConfigKeys, DumpFillsDefaultsInUnlessAskedForWhatWasGiven) {
  EXPECT_EQ(DumpJson(DumpKeys<Oven>(Keys(), Oven{})),
            R"({"trays":2,"heat":180.0,"fan":false,"kind":"gas","grill":200.0,"timer":60})");
  EXPECT_EQ(DumpJson(DumpKeys<Oven>(Keys(), Oven{}, /*as_given=*/true)),
            R"({"trays":2,"heat":180.0,"fan":false,"kind":"gas","grill":null,"timer":null})");
}

TEST(ConfigKeys, ANestedKeySetsTheInnerConfiguration) {
  struct Kitchen {
    Oven oven;
  };
  const ConfigKey<Kitchen> key = Nested<Kitchen>(Keys()[0], &Kitchen::oven);
  Kitchen kitchen;
  key.set(kitchen, 5);
  EXPECT_EQ(kitchen.oven.trays, 5);
  EXPECT_EQ(key.get(kitchen), 5);
  EXPECT_EQ(key.get_as_given(kitchen), 5);
  EXPECT_EQ(key.name, "trays");
}

}  // namespace
}  // namespace normlab
