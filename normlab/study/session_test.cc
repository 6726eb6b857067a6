// Cells at the same time, cells that are tried again, and the time that is left.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>

#include "normlab/base/testing/files.h"
#include "normlab/study/testing/fake_study.h"
#include "normlab/train/checkpoint.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::vector<double>> kLosses = {{"layernorm", {3.1, 3.2, 3.3, 3.4}},
                                                            {"rmsnorm", {3.0, 3.15, 3.1, 3.3}},
                                                            {"no_norm", {4.0, 4.1, 4.3, 4.2}}};

// Holds whoever arrives until `count` are there; false where they never come.
class Meeting {
 public:
  explicit Meeting(size_t count) : missing_(count) {}
  bool Arrive() {
    std::unique_lock lock(mutex_);
    if (missing_ > 0) --missing_;
    all_.notify_all();
    return all_.wait_for(lock, std::chrono::seconds(60), [&] { return missing_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  size_t missing_;
};

class SessionTest : public ::testing::Test {
 protected:
  fs::path Out() const { return folder_.path() / "study"; }

  StudyResults Start(const StudyRequest& request, const StudyRunSettings& settings,
                     const StudyCallbacks& callbacks = {}) {
    Study study(Out(), request);
    ended_ = study.Run(cells_.Runner(), callbacks, settings);
    return study.Results();
  }

  testing::TempFolder folder_;
  FakeCells cells_{kLosses};
  bool ended_ = false;
};

TEST_F(SessionTest, JobsRunCellsAtTheSameTimeAndNoMore) {
  Meeting first_two(2);
  std::atomic<int> running = 0, most = 0;
  cells_.before = [&](const CellRun&) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    EXPECT_TRUE(first_two.Arrive());
    --running;
  };
  size_t most_told = 0;
  const StudyResults results = Start(FakeRequest("layernorm,rmsnorm,no_norm", {1, 2}), {.jobs = 2},
                                     {.on_progress = [&](const StudyProgress& now) {
                                       most_told = std::max(most_told, now.running.size());
                                     }});
  EXPECT_EQ(results.counts.done, 6u);
  EXPECT_EQ(most, 2);
  EXPECT_EQ(most_told, 2u);
  EXPECT_EQ(std::set<std::string>(cells_.ran.begin(), cells_.ran.end()).size(), 6u);
}

TEST_F(SessionTest, JobsLeaveTheSameResults) {
  const StudyRequest request = FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3});
  Start(request, {.jobs = 3});
  const std::string side_by_side = ReadFile(Out() / "results.json");
  fs::remove_all(Out());
  Start(request, {});
  EXPECT_EQ(ReadFile(Out() / "results.json"), side_by_side);
}

TEST_F(SessionTest, CellsBeginInTheirOrder) {
  std::vector<size_t> begun;
  Start(FakeRequest("layernorm,rmsnorm,no_norm", {1, 2}), {.jobs = 2},
        {.on_cell_start = [&](const Cell&, const StudyPlan&, const CellAttempt& attempt) {
          begun.push_back(attempt.cell);
        }});
  EXPECT_EQ(begun, (std::vector<size_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(SessionTest, AFailingCellStopsNoOther) {
  Meeting two(2);
  cells_.before = [&](const CellRun& run) {
    EXPECT_TRUE(two.Arrive());
    if (run.config.seed == 1) throw Error("the disk is full");
  };
  const StudyResults results = Start(FakeRequest("layernorm,rmsnorm", {1, 2}), {.jobs = 2});
  EXPECT_EQ(results.counts.failed, 2u);
  EXPECT_EQ(results.counts.done, 2u);
  EXPECT_TRUE(ended_);
}

TEST_F(SessionTest, AStopReachesAllThatRunAndBeginsNoOther) {
  std::atomic<bool> stop = false;
  Meeting two(2);
  std::atomic<int> runs = 0;
  const CellRunner runner = [&](const CellRun& run) {
    ++runs;
    EXPECT_TRUE(two.Arrive());
    stop = true;
    RunRecord record = FakeRecord(run.config, 3);
    record.status = RunStatus::kInterrupted;
    record.test_loss.reset();
    return Leave(run, record);
  };
  Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2}));
  EXPECT_FALSE(study.Run(runner, {}, {.jobs = 2, .stop = &stop}));
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(study.Results().counts.missing, 4u);
}

TEST_F(SessionTest, WhatACallbackThrowsEndsTheStudy) {
  Study study(Out(), FakeRequest("layernorm,rmsnorm", {1, 2, 3}));
  const StudyCallbacks callbacks{.on_cell_end = [](auto&&...) { throw Error("standard output is full"); }};
  EXPECT_THROW(study.Run(cells_.Runner(), callbacks, {.jobs = 2}), Error);
  EXPECT_LE(cells_.ran.size(), 2u);
}

TEST_F(SessionTest, ACellThatFailsIsTriedAgainAfterTheOthers) {
  int failures = 0;
  cells_.before = [&](const CellRun& run) {
    if (run.config.seed == 1 && run.config.model.norm_type == "rmsnorm" && failures++ == 0)
      throw Error("for a moment");
  };
  std::vector<std::string> told;
  const StudyResults results =
      Start(FakeRequest("layernorm,rmsnorm", {1, 2}), {.retries = 1},
            {.on_cell_end = [&](const Cell& cell, const StudyPlan&, const CellAttempt& attempt) {
              told.push_back(fmt::format("{} {} {} {}", attempt.cell, Name(cell.status), attempt.attempt,
                                         attempt.again ? "again" : ""));
            }});
  EXPECT_TRUE(results.counts.complete());
  ASSERT_EQ(cells_.ran.size(), 5u);
  EXPECT_EQ(cells_.ran[1], "rmsnorm:1");
  EXPECT_EQ(cells_.ran[4], "rmsnorm:1");
  EXPECT_EQ(told[1], "2 failed 1 again");
  EXPECT_EQ(told[4], "2 done 2 ");
}

TEST_F(SessionTest, RetriesEndAndTheCellStaysFailed) {
  cells_.before = [&](const CellRun& run) {
    if (run.config.seed == 1 && run.config.model.norm_type == "rmsnorm") throw Error("always");
  };
  for (const size_t jobs : {1, 2}) {
    fs::remove_all(Out());
    cells_.ran.clear();
    const StudyResults results =
        Start(FakeRequest("layernorm,rmsnorm", {1, 2}), {.jobs = jobs, .retries = 2});
    EXPECT_EQ(std::ranges::count(cells_.ran, "rmsnorm:1"), 3);
    EXPECT_EQ(results.counts.failed, 1u);
    EXPECT_EQ(results.counts.done, 3u);
  }
}

TEST_F(SessionTest, ARetryGoesOnFromWhatTheAttemptLeft) {
  int attempts = 0;
  cells_.before = [&](const CellRun& run) {
    if (run.config.model.norm_type != "rmsnorm") return;
    if (++attempts == 2) {
      EXPECT_EQ(run.resume_from, LatestCheckpoint(run.folder));
      return;
    }
    const fs::path checkpoint = CheckpointsOf(run.folder) / CheckpointName({.step = 5});
    CreateDirectories(checkpoint);
    WriteCheckpointState(checkpoint, {.position = {.step = 5}, .record = FakeRecord(run.config, 3)});
    throw Error("cut off");
  };
  EXPECT_TRUE(Start(FakeRequest("layernorm,rmsnorm", {1}), {.retries = 1}).counts.complete());
  EXPECT_EQ(attempts, 2);
}

// A clock that only moves when a cell works. Cells take 10, 8 and 3 s, a fifth of it for their evaluation.
struct StubCells {
  std::map<std::string, double> seconds = {{"layernorm", 10}, {"rmsnorm", 8}, {"no_norm", 3}};
  double clock = 0;

  CellRunner Runner() {
    return [this](const CellRun& run) {
      const double whole = seconds.at(run.config.model.norm_type);
      const double step = 0.8 * whole / static_cast<double>(run.config.steps);
      for (int64_t done = 1; done <= run.config.steps; ++done) {
        clock += step;
        // As a run foretells it: the evaluation is guessed, here at half of what it takes.
        run.on_progress({.phase = RunProgress::Phase::kTraining,
                         .steps_done = done,
                         .steps = run.config.steps,
                         .remaining_s = step * static_cast<double>(run.config.steps - done) + 0.1 * whole});
      }
      clock += 0.2 * whole;
      RunRecord record = FakeRecord(run.config, 3, 0.8 * whole);
      // Evaluated windows cost a third of trained ones: a quarter of the steps' time.
      record.data["held_out_windows"] = 0.75 * static_cast<double>(run.config.batch * run.config.steps);
      return Leave(run, record);
    };
  }
};

struct Foretold {
  double at_s;
  size_t cell;
  double remaining_s;
};

std::vector<Foretold> Foretell(Study& study, StubCells& cells) {
  std::vector<Foretold> told;
  study.Run(cells.Runner(), {.on_progress =
                                 [&](const StudyProgress& now) {
                                   if (now.remaining_s)
                                     told.push_back({cells.clock, now.latest.cell, *now.remaining_s});
                                 },
                             .now_s = [&] { return cells.clock; }});
  return told;
}

TEST_F(SessionTest, TheTimeLeftIsRightWithinAFifthAfterTheFirstCells) {
  StubCells cells;
  Study study(Out(), FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3, 4}));
  const std::vector<Foretold> told = Foretell(study, cells);
  size_t checked = 0;
  for (const Foretold& now : told) {
    const double left = cells.clock - now.at_s;
    if (now.cell < 4 || left < 6)
      continue;  // each variant has been seen; the last evaluation is the run's guess
    ++checked;
    EXPECT_NEAR(now.remaining_s, left, 0.2 * left) << "at " << now.at_s << " s";
  }
  EXPECT_GT(checked, 50u);
}

TEST_F(SessionTest, AStudyThatGoesOnKnowsWhatItsCellsTook) {
  {
    StubCells cells;
    Study study(Out(), FakeRequest("layernorm,rmsnorm,no_norm", {1}));
    Foretell(study, cells);
  }
  StubCells cells;
  Study study(Out(), FakeRequest("layernorm,rmsnorm,no_norm", {1, 2, 3}));
  const std::vector<Foretold> told = Foretell(study, cells);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0].at_s, 0);  // from the first moment
  EXPECT_NEAR(told[0].remaining_s, 2 * (10 + 8 + 3), 1e-6);
  for (const Foretold& now : told) {
    const double left = cells.clock - now.at_s;
    if (left < 6) continue;
    EXPECT_NEAR(now.remaining_s, left, 0.2 * left) << "at " << now.at_s << " s";
  }
}

TEST_F(SessionTest, CellsOfOtherConditionsForetellNothing) {
  {
    StubCells cells;
    Study study(Out(), FakeRequest("layernorm,rmsnorm", {1}));
    Foretell(study, cells);
  }
  StubCells cells;
  StudyRequest request = FakeRequest("layernorm,rmsnorm", {1, 2});
  request.machine.jobs = 2;
  Study study(Out(), request);
  EXPECT_GT(Foretell(study, cells)[0].at_s, 0);
}

}  // namespace
}  // namespace normlab
