#include "normlab/study/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>

#include "normlab/base/testing/files.h"
#include "normlab/study/testing/fake_study.h"
#include "normlab/train/checkpoint.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

using Losses = std::map<std::string, std::vector<double>>;

const Losses kLosses = {{"layernorm", {3.1, 3.2, 3.3, 3.4, 3.5}},
                        {"rmsnorm", {3.0, 3.15, 3.1, 3.3, 3.45}},
                        {"no_norm", {4.0, 4.1, 4.3, 4.2, 4.4}}};

class RunnerTest : public ::testing::Test {
 protected:
  fs::path Out() const { return folder_.path() / "study"; }

  // Starts (or continues) the study and runs it.
  StudyResults Start(const StudyRequest& request, const StudyCallbacks& callbacks = {}) {
    Study study(Out(), request);
    study.Run(cells_.Runner(), callbacks);
    return study.Results();
  }

  std::string Refusal(const StudyRequest& request) {
    try {
      Study study(Out(), request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Json Read(const fs::path& file) const {
    return ParseJson(ReadFile(Out() / file), file.string(), JsonComments::kRefuse);
  }

  testing::TempFolder folder_;
  FakeCells cells_{kLosses};
};

void ExpectContains(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST_F(RunnerTest, RunsEveryCellOnceAndLeavesTheFolderOfTheContract) {
  const StudyResults results = Start(FakeRequest("layernorm,rmsnorm,no_norm", {1, 2}));
  EXPECT_EQ(results.counts.done, 6u);
  EXPECT_EQ(std::set<std::string>(cells_.ran.begin(), cells_.ran.end()).size(), 6u);
  for (const char* file : {"study.json", "results.json", "results.csv", "runs/rmsnorm/seed-2/run.json"})
    EXPECT_TRUE(fs::exists(Out() / file)) << file;
}

TEST_F(RunnerTest, RunsSeedBySeedInTheOrderThatStudyJsonSays) {
  Start(FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3}));
  std::vector<std::string> declared;
  const Json study = Read("study.json");
  for (const Json& cell : study["order"])
    declared.push_back(fmt::format("{}:{}", cell["variant"].get<std::string>(), cell["seed"].get<int>()));
  EXPECT_EQ(cells_.ran, declared);
  std::set<std::string> first_of_each_seed = {declared[0], declared[3], declared[6]};
  EXPECT_EQ(first_of_each_seed, (std::set<std::string>{"layernorm:1", "rmsnorm:2", "no_norm:3"}));
}

TEST_F(RunnerTest, ASecondStartOfAFinishedStudyRunsNothing) {
  Start(FakeRequest("layernorm,rmsnorm", {1, 2}));
  cells_.ran.clear();
  const StudyResults again = Start(FakeRequest("layernorm,rmsnorm", {1, 2}));
  EXPECT_TRUE(cells_.ran.empty());
  EXPECT_EQ(again.counts.done, 4u);
}

TEST_F(RunnerTest, AFailedCellDoesNotStopTheOthersAndRunsAgain) {
  cells_.before = [](const CellRun& run) {
    if (run.config.seed == 2 && run.config.model.norm_type == "rmsnorm") throw Error("the disk is full");
  };
  const StudyResults first = Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
  EXPECT_EQ(cells_.ran.size(), 6u);
  EXPECT_EQ(first.counts.planned, 6u);
  EXPECT_EQ(first.counts.done, 5u);
  EXPECT_EQ(first.counts.failed, 1u);
  EXPECT_FALSE(first.counts.complete());
  const auto failed = std::ranges::find(first.cells, CellStatus::kFailed, &Cell::status);
  ASSERT_NE(failed, first.cells.end());
  EXPECT_EQ(failed->reason, "the disk is full");

  cells_.ran.clear();
  cells_.before = nullptr;
  const StudyResults second = Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
  EXPECT_EQ(cells_.ran, std::vector<std::string>{"rmsnorm:2"});
  EXPECT_TRUE(second.counts.complete());
}

TEST_F(RunnerTest, MissingRunningAndInterruptedCellsRunAgainDivergedOnesStay) {
  Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
  const auto rewrite = [&](const char* cell, RunStatus status) {
    RunRecord record = *ReadRunRecord(Out() / cell);
    record.status = status;
    WriteFileAtomic(Out() / cell / "run.json", DumpJson(ToJson(record)));
  };
  rewrite("runs/layernorm/seed-1", RunStatus::kRunning);    // killed
  rewrite("runs/rmsnorm/seed-1", RunStatus::kInterrupted);  // Ctrl-C
  rewrite("runs/rmsnorm/seed-2", RunStatus::kDiverged);
  fs::remove_all(Out() / "runs/layernorm/seed-3");
  cells_.ran.clear();
  const StudyResults results = Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
  std::sort(cells_.ran.begin(), cells_.ran.end());
  EXPECT_EQ(cells_.ran, (std::vector<std::string>{"layernorm:1", "layernorm:3", "rmsnorm:1"}));
  EXPECT_EQ(results.counts.diverged, 1u);
  EXPECT_EQ(results.counts.done, 5u);
}

TEST_F(RunnerTest, WhatAnUnfinishedAttemptLeftIsCleared) {
  const fs::path cell = Out() / CellFolder("layernorm", 1);
  cells_.before = [&](const CellRun& run) {
    WriteFileAtomic(run.folder / "metrics.jsonl", "{}\n");
    throw Error("broken");
  };
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  EXPECT_TRUE(fs::exists(cell / "metrics.jsonl"));
  cells_.before = [&](const CellRun& run) { EXPECT_FALSE(fs::exists(run.folder / "metrics.jsonl")); };
  EXPECT_TRUE(Start(FakeRequest("layernorm,rmsnorm", {1})).counts.complete());
}

// Leaves what a cell leaves that is cut off behind its first checkpoint.
void CutOff(const CellRun& run) {
  RunRecord record = FakeRecord(run.config, 3);
  record.status = RunStatus::kRunning;
  Leave(run, record);
  WriteFileAtomic(run.folder / "metrics.jsonl", "{}\n");
  const fs::path checkpoint = CheckpointsOf(run.folder) / CheckpointName({.step = 5});
  CreateDirectories(checkpoint);
  WriteCheckpointState(checkpoint, {.position = {.step = 5}, .record = record});
}

TEST_F(RunnerTest, WhatACutOffCellGoesOnWithStays) {
  const fs::path cell = Out() / CellFolder("layernorm", 1);
  cells_.before = [&](const CellRun& run) {
    if (run.folder != cell) return;
    CutOff(run);
    throw Error("cut off");
  };
  EXPECT_EQ(Start(FakeRequest("layernorm,rmsnorm", {1})).counts.failed, 1u);
  int seen = 0;
  cells_.before = [&](const CellRun& run) {
    seen += fs::exists(run.folder / "metrics.jsonl") && run.resume_from &&
            run.resume_from == LatestCheckpoint(run.folder);
  };
  EXPECT_TRUE(Start(FakeRequest("layernorm,rmsnorm", {1})).counts.complete());
  EXPECT_EQ(seen, 1);
}

TEST_F(RunnerTest, ACheckpointThatIsPassedOverIsTold) {
  cells_.before = [&](const CellRun& run) {
    CutOff(run);
    CreateDirectories(CheckpointsOf(run.folder) / CheckpointName({.step = 9}));  // empty
    throw Error("cut off");
  };
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  cells_.before = {};
  std::vector<std::string> notes;
  Study study(Out(), FakeRequest("layernorm,rmsnorm", {1}));
  study.Run(cells_.Runner(), {.on_note = [&](const std::string& note) { notes.push_back(note); }});
  ASSERT_EQ(notes.size(), 2u);  // of each cell
  ExpectContains(notes[0], {"layernorm", "step-00000009", "no complete checkpoint", "step-00000005"});
}

TEST_F(RunnerTest, ACutOffCellOfAnotherStudyIsRefusedAndNothingIsWritten) {
  cells_.before = [&](const CellRun& run) {
    if (run.config.model.norm_type == "layernorm") CutOff(run);
    throw Error("cut off");
  };
  Start(FakeRequest("layernorm,rmsnorm", {1}));  // nothing is finished
  const std::string before = ReadFile(Out() / "study.json");
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1});
  for (Variant& variant : request.grid.variants) variant.config.steps = 20;
  ExpectContains(Refusal(request), {"layernorm, seed 1", "steps = 10", "20", "--out", "delete"});
  request = FakeRequest("layernorm,rmsnorm", {1});
  request.machine.isa = "avx512";
  ExpectContains(Refusal(request), {"instruction set avx2", "avx512"});
  EXPECT_EQ(ReadFile(Out() / "study.json"), before);
}

TEST_F(RunnerTest, ADamagedCheckpointOfACellIsNamed) {
  cells_.before = [&](const CellRun& run) {
    CutOff(run);
    throw Error("cut off");
  };
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  const fs::path state =
      CheckpointsOf(Out() / CellFolder("rmsnorm", 1)) / CheckpointName({.step = 5}) / "state.json";
  std::string text = ReadFile(state);
  text.replace(text.find("\"step\": 5"), 9, "\"step\": 6");
  WriteFileAtomic(state, text);
  ExpectContains(Refusal(FakeRequest("layernorm,rmsnorm", {1})), {"state.json has the checksum", "delete"});
}

TEST_F(RunnerTest, AStopEndsTheCurrentCellAndKeepsTheFinishedOnes) {
  std::atomic<bool> stop = false;
  size_t runs = 0;
  const CellRunner runner = [&](const CellRun& run) {
    EXPECT_EQ(run.stop, &stop);
    RunRecord record = FakeRecord(run.config, 3);
    if (++runs == 3) {
      stop = true;
      record.status = RunStatus::kInterrupted;
      record.test_loss.reset();
    }
    return Leave(run, record);
  };
  {
    Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
    EXPECT_FALSE(study.Run(runner, {}, {.stop = &stop}));
    EXPECT_EQ(study.Results().counts.done, 2u);
    EXPECT_EQ(study.Results().counts.missing, 4u);
  }
  EXPECT_EQ(runs, 3u);
  EXPECT_EQ(Read("results.json")["study"]["counts"]["done"], 2);
  Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
  EXPECT_EQ(cells_.ran.size(), 4u);
}

TEST_F(RunnerTest, ResultsAreTrueAfterEveryCell) {
  std::vector<int> done;
  cells_.before = [&](const CellRun&) {
    done.push_back(
        fs::exists(Out() / "results.json") ? Read("results.json")["study"]["counts"]["done"].get<int>() : 0);
  };
  Start(FakeRequest("layernorm,rmsnorm", {1, 2}));
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(RunnerTest, APageThatCannotBeWrittenIsToldAndLosesNoResult) {
  Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2}));
  fs::create_directories(Out() / "report.html/in_the_way");
  EXPECT_TRUE(study.Run(cells_.Runner(), {}));
  ExpectContains(study.page_problem(), {"report.html"});
  EXPECT_EQ(Read("results.json")["study"]["counts"]["done"], 4);
  EXPECT_TRUE(fs::exists(Out() / "results.csv"));

  fs::remove_all(Out() / "report.html");
  study.WriteResults();
  EXPECT_EQ(study.page_problem(), "");
  EXPECT_TRUE(fs::is_regular_file(Out() / "report.html"));
}

TEST_F(RunnerTest, TablesThatCannotBeWrittenMeanwhileAreToldOnce) {
  std::vector<std::string> notes;
  Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2}));
  fs::create_directories(Out() / "results.csv/in_the_way");
  const StudyCallbacks callbacks{.on_note = [&](const std::string& note) { notes.push_back(note); }};
  EXPECT_THROW(study.Run(cells_.Runner(), callbacks), Error);
  ASSERT_EQ(notes.size(), 1u);
  ExpectContains(notes.front(), {"results.csv"});
}

TEST_F(RunnerTest, AnUnknownBaselineWritesNothing) {
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1});
  request.baseline = "rmsnrm";
  ExpectContains(Refusal(request), {"rmsnrm", "\"rmsnorm\""});
  EXPECT_FALSE(fs::exists(Out()));
}

TEST_F(RunnerTest, RefusesAnotherConfigurationAndNamesTheKey) {
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1});
  for (Variant& variant : request.grid.variants) variant.config.steps = 20;
  ExpectContains(Refusal(request), {"steps = 10 there, steps = 20 asked for", "--out", "delete"});
}

TEST_F(RunnerTest, RefusesOtherDataBuildIsaAndNorms) {
  cells_.before = [](const CellRun& run) {
    if (run.config.seed == 2) throw Error("not this time");
  };
  Start(FakeRequest("layernorm,rmsnorm", {1, 2}));  // half of it is still to run
  const auto changed = [&](auto&& change) {
    StudyRequest request = FakeRequest("layernorm,rmsnorm", {1, 2});
    change(request);
    return Refusal(request);
  };
  ExpectContains(changed([](StudyRequest& r) { r.data["hash"] = "other"; }),
                 {"data", "\"abc\"", "\"other\"", "--out"});
  ExpectContains(changed([](StudyRequest& r) { r.data["tokenizer_hash"] = "u"; }),
                 {"tokenizer_hash", "\"u\""});
  ExpectContains(changed([](StudyRequest& r) { r.machine.build = "normlab 0.2.0, GNU"; }),
                 {"normlab 0.1", "normlab 0.2"});
  ExpectContains(changed([](StudyRequest& r) { r.machine.isa = "avx512"; }),
                 {"instruction set avx2", "avx512"});
  ExpectContains(changed([](StudyRequest& r) { r.norm_implementations[1] = "generic"; }),
                 {"rmsnorm", "norm implementation fused", "generic"});
  EXPECT_EQ(changed([](StudyRequest& r) { r.machine.threads = 7; }), "");
  EXPECT_EQ(changed([](StudyRequest& r) { r.machine.build = "normlab 0.1.9, clang"; }), "");
}

TEST_F(RunnerTest, WhatIsToRunMayBeRefusedAndNothingIsWritten) {
  int asked = 0;
  const auto open = [&](const StudyRequest& request) {
    const Study study(Out(), request, [&] {
      ++asked;
      throw Error("no room");
    });
  };
  EXPECT_THROW(open(FakeRequest("layernorm,rmsnorm", {1})), Error);
  EXPECT_FALSE(fs::exists(Out()));
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  const std::string before = ReadFile(Out() / "study.json");
  EXPECT_NO_THROW(open(FakeRequest("layernorm,rmsnorm", {1})));  // nothing is to run
  EXPECT_EQ(asked, 1);
  EXPECT_THROW(open(FakeRequest("layernorm,rmsnorm", {1, 2})), Error);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(ReadFile(Out() / "study.json"), before);
  EXPECT_NO_THROW(open(FakeRequest("layernorm,rmsnorm", {1})));  // and it was not extended
}

TEST_F(RunnerTest, AFinishedStudyIsShownOnAnyMachine) {
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1});
  request.machine.isa = "sse4";
  EXPECT_EQ(Refusal(request), "");
}

TEST_F(RunnerTest, RefusesACellThatWasMadeWithOtherKeys) {
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  RunRecord record = *ReadRunRecord(Out() / "runs/rmsnorm/seed-1");
  record.config["grad_clip"] = 0.5;
  WriteFileAtomic(Out() / "runs/rmsnorm/seed-1/run.json", DumpJson(ToJson(record)));
  ExpectContains(Refusal(FakeRequest("layernorm,rmsnorm", {1})),
                 {"rmsnorm, seed 1", "grad_clip", "0.5", "1.0"});
}

TEST_F(RunnerTest, DeclaredMarginsAndLooksStay) {
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1});
  request.margin_nats = 0.02;
  Start(request);
  EXPECT_EQ(Read("study.json")["margin_nats"], 0.02);
  request.margin_nats = 0.05;
  ExpectContains(Refusal(request), {"--margin 0.02", "0.05"});
  request.margin_nats.reset();  // not said again: stays
  EXPECT_EQ(Start(request).plan.margin_nats, 0.02);
  request.looks = 3;
  ExpectContains(Refusal(request), {"--looks 2", "3"});
  request.looks.reset();
  request.speed_margin = 0.05;
  ExpectContains(Refusal(request), {"--speed-margin 1", "5"});
  request.speed_margin.reset();
  request.baseline = "rmsnorm";
  ExpectContains(Refusal(request), {"--baseline"});
}

TEST_F(RunnerTest, NothingFinishedMeansNothingWasDeclared) {
  cells_.before = [](const CellRun&) { throw Error("no"); };
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  cells_.before = nullptr;
  StudyRequest request = FakeRequest("layernorm,no_norm", {1});
  request.margin_nats = 0.05;
  const StudyResults results = Start(request);
  EXPECT_EQ(results.plan.margin_nats, 0.05);
  EXPECT_TRUE(results.counts.complete());
}

TEST_F(RunnerTest, MoreSeedsAreAFurtherLookAndTooManyAreExploratory) {
  EXPECT_EQ(Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3})).plan.look(), 1);
  EXPECT_EQ(Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3})).plan.look(), 1);
  cells_.ran.clear();
  const StudyResults second = Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3, 4}));
  EXPECT_EQ(second.plan.look(), 2);
  EXPECT_EQ(cells_.ran.size(), 2u);
  EXPECT_FALSE(second.comparisons[0].result.exploratory);
  const StudyResults third = Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3, 4, 5}));
  EXPECT_EQ(third.plan.look(), 3);
  EXPECT_TRUE(third.comparisons[0].result.exploratory);
  EXPECT_EQ(Read("study.json")["history"].size(), 3u);
}

TEST_F(RunnerTest, ALookThatShowedNoVerdictIsNotCounted) {
  Start(FakeRequest("layernorm,rmsnorm", {1}));  // one seed gives no verdict
  EXPECT_EQ(Start(FakeRequest("layernorm,rmsnorm", {1, 2, 3})).plan.look(), 1);
}

TEST_F(RunnerTest, VariantsCanBeAddedAndNothingTakenAway) {
  Start(FakeRequest("layernorm,rmsnorm", {1, 2}));
  ExpectContains(Refusal(FakeRequest("layernorm,no_norm", {1, 2})), {"rmsnorm", "leaves out"});
  ExpectContains(Refusal(FakeRequest("layernorm,rmsnorm", {1})), {"seed 2", "leaves out"});
  cells_.ran.clear();
  const StudyResults results = Start(FakeRequest("layernorm,rmsnorm,no_norm", {1, 2}));
  EXPECT_EQ(cells_.ran.size(), 2u);
  EXPECT_EQ(results.plan.look(), 2);
  EXPECT_EQ(results.comparisons[0].rule.variants, 2);
}

TEST_F(RunnerTest, ProgressCountsCellsAndForetellsTheRest) {
  double clock = 0;
  std::vector<StudyProgress> seen;
  const CellRunner runner = [&](const CellRun& run) {
    clock += 10;
    run.on_progress(
        {.phase = RunProgress::Phase::kTraining, .steps_done = 5, .steps = 10, .remaining_s = 10.0});
    clock += 10;
    return Leave(run, FakeRecord(run.config, 3));
  };
  Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2}));
  study.Run(runner, {.on_progress = [&](const StudyProgress& now) { seen.push_back(now); },
                     .now_s = [&] { return clock; }});
  ASSERT_EQ(seen.size(), 8u);  // "preparing" and one report for each
  EXPECT_EQ(seen[0].latest.cell, 1u);
  EXPECT_FALSE(seen[0].remaining_s);
  // The running cell takes 20 s; three more of about that are to come (work goes by parameters).
  EXPECT_NEAR(*seen[1].remaining_s, 70, 3);
  EXPECT_EQ(seen[7].latest.cell, 4u);
  EXPECT_NEAR(*seen[7].remaining_s, 10, 1e-9);
}

TEST_F(RunnerTest, TheBoundOnProductsIsMeasuredOnceForEqualShapes) {
  std::vector<bool> known;
  const CellRunner runner = [&](const CellRun& run) {
    known.push_back(run.products_bound_s.has_value());
    RunRecord record = FakeRecord(run.config, 3);
    record.products_bound_s = 0.5;
    return Leave(run, record);
  };
  {
    Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2}));
    study.Run(runner, {});
  }
  EXPECT_EQ(known, (std::vector<bool>{false, true, true, true}));
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1, 2, 3});
  request.machine.wait_policy = "passive";  // another speed, so another bound
  Study study(Out(), request);
  study.Run(runner, {});
  EXPECT_EQ(known.size(), 6u);
  EXPECT_FALSE(known[4]);
}

// Whatever changes the products of a step, or their speed, has a bound of its own.
TEST_F(RunnerTest, VariantsOfOtherProductsHaveBoundsOfTheirOwn) {
  for (const char* assignment :
       {"context_length=32", "dtype=bf16", "recompute=true", "emb_dim=64", "batch=32"}) {
    SCOPED_TRACE(assignment);
    StudyRequest request = FakeRequest("layernorm,rmsnorm", {1});
    Set(request.grid.variants[1].config, assignment);
    std::vector<bool> known;
    Study study(folder_.path() / assignment, request);
    study.Run(
        [&](const CellRun& run) {
          known.push_back(run.products_bound_s.has_value());
          RunRecord record = FakeRecord(run.config, 3);
          record.products_bound_s = 0.5;
          return Leave(run, record);
        },
        {});
    EXPECT_EQ(known, (std::vector<bool>{false, false}));
  }
}

TEST_F(RunnerTest, ARecordThatCannotBeReadIsNamed) {
  Start(FakeRequest("layernorm,rmsnorm", {1}));
  WriteFileAtomic(Out() / "runs/rmsnorm/seed-1/run.json", "{\"schema_version\": 99}");
  ExpectContains(Refusal(FakeRequest("layernorm,rmsnorm", {1})), {"run.json", "99", "delete"});
}

}  // namespace
}  // namespace normlab
