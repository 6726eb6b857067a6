#pragma once
// One call of Study::Run: places for `jobs` cells, a queue for them, and what is told of all. Private to the
// runner.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "normlab/study/remaining.h"
#include "normlab/study/report/refresh.h"
#include "normlab/study/runner.h"

namespace normlab {

class Study::Session {
 public:
  // Keeps references.
  Session(Study& study, const CellRunner& runner, const StudyCallbacks& callbacks,
          const StudyRunSettings& settings);
  void Run();

 private:
  struct Place {  // a cell at work
    size_t index = 0;
    CellAttempt attempt;
    double started_s = 0;
    RunProgress run;
  };
  struct Waiting {
    size_t index = 0;
    CellAttempt attempt;
  };

  // What each worker does; all but the computation of a cell goes on under the lock.
  void Work();
  std::optional<Waiting> Next(std::unique_lock<std::mutex>& lock);
  void RunCell(const Waiting& next, std::unique_lock<std::mutex>& lock);
  CellRun Prepare(const Place& place);
  std::string Compute(const CellRun& run, std::optional<RunRecord>& record) const;
  void Finish(const Place& place, const std::string& error, std::optional<RunRecord> record);

  void Report(Place& place, const RunProgress& run);
  void Note(const std::string& text) const;
  bool Stopped() const { return broken_ || (settings_.stop != nullptr && *settings_.stop); }
  CellProgress Told(const Place& place) const;
  StudyProgress Progress() const;  // of all at work

  Study& study_;
  const CellRunner& runner_;
  const StudyCallbacks& callbacks_;
  const StudyRunSettings settings_;
  const std::function<double()> now_;
  RemainingTime remaining_;
  ReportRefresher page_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> queue_;
  std::list<Place> places_;
  std::string write_problem_;  // of the results; the last one
  std::exception_ptr broken_;  // of a callback: nothing more is begun
};

}  // namespace normlab
