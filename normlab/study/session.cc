#include "normlab/study/session.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/text.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run_folder.h"

namespace normlab {
namespace {

namespace fs = std::filesystem;

double SteadyNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Study::Session::Session(Study& study, const CellRunner& runner, const StudyCallbacks& callbacks,
                        const StudyRunSettings& settings)
    : study_(study),
      runner_(runner),
      callbacks_(callbacks),
      settings_(settings),
      now_(callbacks.now_s ? callbacks.now_s : SteadyNow),
      remaining_(WorkOfVariants(study.plan_)),
      page_(study.folder_, now_) {
  NL_CHECK(settings.jobs >= 1);
  const size_t cells = study.cells_.size();
  for (size_t i = 0; i < study.waiting_.size(); ++i)
    queue_.push_back({study.waiting_[i], {.cell = cells - study.waiting_.size() + i + 1, .cells = cells}});
  // What earlier starts took counts as far as they ran under the conditions of this one.
  for (const Cell& cell : study.cells_)
    if (cell.status == CellStatus::kDone && SameSpeed(cell.record->machine, study.machine_))
      remaining_.Add(cell.variant,
                     SecondsOf(*cell.record, study.plan_.variants[cell.variant].variant.config));
}

void Study::Session::Run() {
  std::vector<std::thread> others;  // this thread is the first of the workers
  const size_t workers = std::min(settings_.jobs, queue_.size());
  try {
    for (size_t i = 1; i < workers; ++i) others.emplace_back([this] { Work(); });
  } catch (const std::system_error&) {
    const std::lock_guard lock(mutex_);
    Note(fmt::format("the system starts no more threads: {} cells at a time instead of {}", others.size() + 1,
                     workers));
  }
  Work();
  for (std::thread& other : others) other.join();
  if (broken_) std::rethrow_exception(broken_);
}

void Study::Session::Work() {
  std::unique_lock lock(mutex_);
  try {
    while (const std::optional<Waiting> next = Next(lock)) RunCell(*next, lock);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (!broken_) broken_ = std::current_exception();
  }
  changed_.notify_all();
}

// The next cell of the queue. While others run, one of them may fail and come back.
std::optional<Study::Session::Waiting> Study::Session::Next(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock,
                [&] { return !queue_.empty() || places_.empty() || settings_.retries == 0 || Stopped(); });
  if (queue_.empty() || Stopped()) return std::nullopt;
  const Waiting next = queue_.front();
  queue_.pop_front();
  return next;
}

void Study::Session::RunCell(const Waiting& next, std::unique_lock<std::mutex>& lock) {
  const auto place = places_.insert(places_.end(), {.index = next.index, .attempt = next.attempt});
  place->started_s = now_();
  const CellRun run = [&] {
    CellRun made = Prepare(*place);
    made.on_progress = [this, place](const RunProgress& now) {
      const std::lock_guard guard(mutex_);
      Report(*place, now);
    };
    made.on_note = [this, place](const std::string& text) {
      const std::lock_guard guard(mutex_);
      const CellProgress cell = Told(*place);
      Note(fmt::format("{}, seed {}: {}", Printable(cell.variant), cell.seed, text));
    };
    return made;
  }();
  if (callbacks_.on_cell_start)
    callbacks_.on_cell_start(study_.cells_[next.index], study_.plan_, next.attempt);
  Report(*place, {.steps = run.config.steps});

  std::optional<RunRecord> record;
  lock.unlock();
  const std::string error = Compute(run, record);
  lock.lock();

  const Place ended = *place;
  places_.erase(place);
  Finish(ended, error, std::move(record));
  changed_.notify_all();
}

CellRun Study::Session::Prepare(const Place& place) {
  Cell& cell = study_.cells_[place.index];
  const PlannedVariant& planned = study_.plan_.variants[cell.variant];
  const uint64_t seed = study_.plan_.Seed(cell.variant, cell.seed);
  CellRun run{.config = CellConfig(planned.variant, seed),
              .folder = study_.folder_ / CellFolder(planned.variant.name, seed),
              .stop = settings_.stop};
  if (place.attempt.attempt > 1) {
    cell.notes.clear();
    cell.resume_from.reset();
    try {
      cell.resume_from =
          LatestCheckpoint(run.folder, [&](const std::string& note) { cell.notes.push_back(note); });
    } catch (const Error& error) {
      cell.notes.push_back(fmt::format("it starts anew: {}", error.what()));
    }
  }
  run.resume_from = cell.resume_from;
  run.products_bound_s = study_.KnownBound(run.config);
  for (const std::string& note : cell.notes) Note(note);
  cell.record.reset();
  return run;
}

// Returns why it failed; empty where it did not.
std::string Study::Session::Compute(const CellRun& run, std::optional<RunRecord>& record) const {
  try {
    CreateDirectories(run.folder);
    RemoveTemporaries(run.folder);
    // Of an attempt that did not finish, only what it can go on with stays.
    if (!run.resume_from)
      for (const char* file : {kRecordFile, kMetricsFile, kInsideFile, kModelFile})
        fs::remove(run.folder / file);
    record = runner_(run);
    return "";
  } catch (const std::bad_alloc&) {
    return "not enough memory";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "failed" : error.what();
  }
}

void Study::Session::Finish(const Place& place, const std::string& error, std::optional<RunRecord> record) {
  Cell& cell = study_.cells_[place.index];
  if (record) {
    TakeRecord(cell, std::move(*record));
  } else {
    cell.status = CellStatus::kFailed;
    cell.reason = error;
  }
  if (IsFinished(cell.status) && !cell.resume_from) remaining_.Add(cell.variant, now_() - place.started_s);
  CellAttempt attempt = place.attempt;
  attempt.again = cell.status == CellStatus::kFailed && attempt.attempt <= settings_.retries && !Stopped();
  if (attempt.again) {
    CellAttempt next = place.attempt;
    ++next.attempt;
    queue_.push_back({place.index, next});
  }
  if (callbacks_.on_cell_end) callbacks_.on_cell_end(cell, study_.plan_, attempt);
  const StudyResults results = study_.Results();
  page_.Update(Progress(), [&] { return results; });
  try {
    WriteTables(results, study_.folder_);
  } catch (const Error& write_error) {
    // The cells themselves are safe. What goes on is told once.
    if (write_problem_ != write_error.what()) Note(write_error.what());
    write_problem_ = write_error.what();
  }
}

CellProgress Study::Session::Told(const Place& place) const {
  const Cell& cell = study_.cells_[place.index];
  return {.cell = place.attempt.cell,
          .variant = study_.plan_.variants[cell.variant].variant.name,
          .seed = study_.plan_.Seed(cell.variant, cell.seed),
          .run = place.run};
}

StudyProgress Study::Session::Progress() const {
  const double now = now_();
  StudyProgress progress{.cells = study_.cells_.size()};
  std::vector<RunningCell> running;
  for (const Place& place : places_) {
    progress.running.push_back(Told(place));
    running.push_back({.variant = study_.cells_[place.index].variant,
                       .elapsed_s = now - place.started_s,
                       .remaining_s = place.run.remaining_s});
  }
  std::vector<size_t> waiting;
  for (const Waiting& next : queue_) waiting.push_back(study_.cells_[next.index].variant);
  progress.remaining_s = remaining_.Total(running, waiting, settings_.jobs);
  return progress;
}

void Study::Session::Report(Place& place, const RunProgress& run) {
  place.run = run;
  StudyProgress progress = Progress();
  progress.latest = Told(place);
  if (callbacks_.on_progress) callbacks_.on_progress(progress);
  page_.Update(progress, [this] { return study_.Results(); });
}

void Study::Session::Note(const std::string& text) const {
  if (callbacks_.on_note) callbacks_.on_note(text);
}

}  // namespace normlab
