#include "normlab/study/report/page.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "normlab/base/testing/files.h"
#include "normlab/study/export.h"
#include "normlab/study/report/refresh.h"
#include "normlab/study/study_duel.h"
#include "normlab/study/testing/fake_duel.h"
#include "normlab/study/testing/fake_results.h"

namespace normlab {
namespace {

std::string Page(const StudyResults& results, const PageContext& context = {.folder = "study"}) {
  const std::vector<CellLog> logs(results.cells.size(),
                                  CellLog{.spikes = Json::array(), .heat_maps = Json::array()});
  return ReportPage(results, ResultsJson(results), logs, context);
}

// The text between two marks.
std::string Between(const std::string& text, const std::string& from, const std::string& to) {
  const size_t begin = text.find(from);
  if (begin == std::string::npos) return "";
  return text.substr(begin + from.size(), text.find(to, begin + from.size()) - begin - from.size());
}

Json DataOf(const std::string& page) {
  return ParseJson(Between(page, "<script type=\"application/json\" id=\"data\">", "</script>"), "data");
}

TEST(PageTest, NoNameBecomesMarkup) {
  const std::string nasty = "a,\"b\"\n</script><script>alert(1)</script>",
                    image = "<img src=x onerror=alert(2)>";
  const StudyResults results = FakeResults({"base", nasty, image});
  const std::string page = Page(results);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_NE(page.find("a,&quot;b&quot;\\n&lt;/script&gt;"), std::string::npos);
  EXPECT_EQ(DataOf(page)["variants"][1]["name"], nasty);
  EXPECT_EQ(DataOf(page)["variants"][2]["name"], image);
}

TEST(PageTest, TheDataIsResultsJsonWithTheSeries) {
  const StudyResults results = FakeResults({"base", "other", "none"});
  const Json data = DataOf(Page(results)), expected = ResultsJson(results);
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(data[key], value) << key;
  EXPECT_TRUE(data["series"].is_object());
  EXPECT_TRUE(data["report"]["live"].is_null());
}

TEST(PageTest, EveryNumberOfATableIsOneOfTheResults) {
  const StudyResults results = FakeResults({"base", "other", "none"});
  const std::string page = Page(results), json = DumpJson(ResultsJson(results));
  std::set<double> known;
  const std::regex number(R"(-?[0-9][0-9.e+-]*)");
  for (std::sregex_iterator it(json.begin(), json.end(), number), end; it != end; ++it)
    known.insert(std::stod(it->str()));
  const std::regex value("(?:data value|data-low|data-high)=\"([^\"]*)\"");
  size_t seen = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), value), end; it != end; ++it, ++seen)
    EXPECT_EQ(known.count(std::stod((*it)[1].str())), 1u) << it->str();
  EXPECT_GT(seen, 80u);
}

TEST(PageTest, NothingIsLoadedFromElsewhere) {
  const std::string page = Page(FakeResults({"base", "other"}, true));
  for (const char* reference : {" src=", "<link", "@import", "url(", "fetch(", "XMLHttpRequest"})
    EXPECT_EQ(page.substr(0, page.find("Chart.js, copyright")).find(reference), std::string::npos)
        << reference;
  EXPECT_NE(page.find("Released under the MIT License"), std::string::npos);
  EXPECT_NE(page.find("Permission is hereby granted"), std::string::npos);
}

TEST(PageTest, SectionsSayWhatIsMissing) {
  const std::string page = Page(FakeResults({"base", "other"}, true));
  for (const char* part : {"has no speed duel", "No run of this study kept a profile", "inside.jsonl",
                           "No run has logged a step yet", "Seeds do not vary the text"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("{{"), std::string::npos);
}

TEST(PageTest, ARunningStudySaysHowFarItIsAndLoadsItselfAgain) {
  const StudyResults results = FakeResults({"base", "other", "none"});
  const std::string running =
      Page(results, {.folder = "study",
                     .written_at = "2030-01-01T00:00:00Z",
                     .live = Live{.now = "none, seed 3, step 4 of 10", .remaining_s = 125}});
  for (const char* part : {"8 of 9 runs have ended", "about 2m 05s left", "none, seed 3, step 4 of 10",
                           "http-equiv=\"refresh\" content=\"10\""})
    EXPECT_NE(running.find(part), std::string::npos) << part;
  EXPECT_EQ(DataOf(running)["report"]["live"]["refresh_s"], 10.0);
  const std::string finished = Page(results);
  EXPECT_EQ(finished.find("http-equiv=\"refresh\""), std::string::npos);
  EXPECT_EQ(finished.find("<p class=\"live\""), std::string::npos);
}

// ---- files

class RefreshTest : public ::testing::Test {
 protected:
  void Start(ReportRefresher& page) {
    page.Update(progress_, [&] {
      ++evaluated_;
      return FakeResults({"base", "other"});
    });
  }

  testing::TempFolder folder_;
  double clock_ = 0;
  int evaluated_ = 0;
  StudyProgress progress_{
      .cells = 2, .running = {{.cell = 1, .variant = "base", .seed = 1}}, .remaining_s = 60};
};

TEST_F(RefreshTest, ThePageIsRefreshedAtMostEveryTenSeconds) {
  ReportRefresher page(folder_.path(), [&] { return clock_; });
  Start(page);
  EXPECT_EQ(evaluated_, 1);
  EXPECT_TRUE(std::filesystem::exists(folder_ / kReportFile));
  for (clock_ = 1; clock_ < 10; ++clock_) Start(page);
  EXPECT_EQ(evaluated_, 1);
  Start(page);
  EXPECT_EQ(evaluated_, 2);
}

TEST_F(RefreshTest, AnExpensivePageIsWrittenRarely) {
  ReportRefresher page(folder_.path(), [&] { return clock_; });
  page.Update(progress_, [&] {
    clock_ += 4;  // it takes four seconds: once in 200
    return FakeResults({"base", "other"});
  });
  clock_ += 199;
  Start(page);
  EXPECT_EQ(evaluated_, 0);
  clock_ += 2;
  Start(page);
  EXPECT_EQ(evaluated_, 1);
}

TEST_F(RefreshTest, APageThatCannotBeWrittenStopsNothing) {
  ReportRefresher page(folder_ / "missing", [&] { return clock_; });
  Start(page);
  EXPECT_EQ(evaluated_, 1);
}

TEST_F(RefreshTest, AStudyIsReadWithoutALockAndAsItStands) {
  const StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm", {1, 2}));
  folder_.Write("study.json", DumpJson(ToJson(plan)));
  RunRecord record = FakeRecord(CellConfig(plan.variants[0].variant, 1), 3);
  const auto run = folder_.path() / CellFolder("layernorm", 1),
             other = folder_.path() / CellFolder("rmsnorm", 1);
  CreateDirectories(run);
  CreateDirectories(other);
  WriteFileAtomic(run / "run.json", DumpJson(ToJson(record)));
  record.status = RunStatus::kRunning;
  WriteFileAtomic(other / "run.json", DumpJson(ToJson(record)));
  const FolderLock held(folder_.path(), "normlab compare");
  const StudyResults results = ReadStudy(folder_.path());
  EXPECT_EQ(results.counts.done, 1u);
  EXPECT_EQ(results.counts.missing, 3u);
  for (const Cell& cell : results.cells) {
    if (cell.variant != 1 || cell.seed != 0) continue;
    EXPECT_EQ(cell.reason, "running, or cut off while it ran");
  }
}

// The page is rendered from what the folder holds, the duel too; one that cannot be read is left out.
TEST_F(RefreshTest, TheDuelOfTheFolderIsShown) {
  const StudyPlan plan = MakePlan(FakeRequest("layernorm,rmsnorm", {1, 2}));
  WriteFileAtomic(folder_ / "study.json", DumpJson(ToJson(plan)));
  EXPECT_FALSE(ReadStudy(folder_.path()).duel.has_value());
  WriteDuel(test::FakeDuelOf(plan, {.seconds = {0.02, 0.018}, .noise = 0.01}), folder_.path());
  const StudyResults results = ReadStudy(folder_.path());
  ASSERT_TRUE(results.duel.has_value());
  EXPECT_NE(FolderPage(results, folder_.path()).find("rmsnorm takes less training time than layernorm, by "),
            std::string::npos);
  folder_.Write(kDuelFile, "{}");
  EXPECT_FALSE(ReadStudy(folder_.path()).duel.has_value());
}

}  // namespace
}  // namespace normlab
