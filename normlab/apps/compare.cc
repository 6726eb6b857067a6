// normlab compare: variants x seeds as a folder of cells, then the table with intervals and verdicts.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "normlab/apps/busy.h"
#include "normlab/apps/command.h"
#include "normlab/apps/compare_cells.h"
#include "normlab/apps/compare_duel.h"
#include "normlab/apps/compare_options.h"
#include "normlab/apps/compare_request.h"
#include "normlab/base/error.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/study/export.h"
#include "normlab/study/runner.h"
#include "normlab/study/status.h"

namespace normlab::apps {
namespace {

std::string Banner(const Study& study, const TokenSource& tokens, const std::string& memory,
                   const std::string& out) {
  const StudyPlan& plan = study.plan();
  const TrainConfig& config = plan.variants[plan.Baseline()].variant.config;
  const Split split = SplitTokens(tokens, {.window = config.Window(),
                                           .batch = config.batch,
                                           .held_out_fraction = config.held_out_fraction,
                                           .held_out_windows = config.held_out_windows});
  std::string text = Summarize(tokens, split, config.batch, config.steps).ToString() + "\n";
  text += Wrap(fmt::format("{}, {}, {}{} ({}); results in {}", study.machine().cpu, study.machine().isa,
                           Counted(study.machine().threads, "thread"),
                           study.machine().jobs > 1
                               ? fmt::format(" for each of {} cells at a time", study.machine().jobs)
                               : "",
                           study.machine().thread_runtime, Printable(out)),
               80, "machine   ", "          ");
  text += Wrap(memory, 80, "memory    ", "          ");
  text += fmt::format("cells     {} x {}: {} to run, {} finished\n", Counted(plan.variants.size(), "variant"),
                      Counted(plan.seeds.size(), "seed"), study.ToRun(), plan.cells() - study.ToRun());
  if (plan.look() > plan.looks)
    text += fmt::format("note      this is look {} where {} declared: exploratory\n", plan.look(),
                        plan.looks == 1 ? "1 was" : fmt::format("{} were", plan.looks));
  return text;
}

std::string NamesOf(const StudyResults& results, const std::vector<size_t>& variants) {
  std::string names;
  for (const size_t v : variants) names += (names.empty() ? "" : ", ") + Printable(results.variants[v].name);
  return names;
}

// True where a variant fails the gate. A gate that could not look at one of them is an error: passing would
// say that it had been found good.
bool Gate(bool asked, std::string_view option, const std::vector<size_t>& failing, std::string_view what,
          const StudyResults& results, Metric metric, const Environment& environment) {
  if (!asked) return false;
  if (!failing.empty()) {
    environment.progress.write(
        fmt::format("normlab: {}: {} than the baseline: {}\n", option, what, NamesOf(results, failing)));
    return true;
  }
  const std::vector<size_t> unjudged = results.Unjudged(metric);
  if (!unjudged.empty())
    Fail("{} could not be judged, for there is no verdict on {}; {}", option, NamesOf(results, unjudged),
         metric == Metric::kTime ? "a duel, or a longer one, gives one (--duel SECONDS)"
                                 : "more seeds, of which some finish in both, give one");
  return false;
}

int ShowStatus(const CompareArguments& arguments) {
  const StudyStatus status = ReadStatus(*arguments.status);
  Print(arguments.run.json ? DumpJson(StatusJson(status), 2) + "\n" : StatusText(status));
  return kExitGood;
}

int Compare(const CompareArguments& arguments, const Environment& environment) {
  if (arguments.status) return ShowStatus(arguments);
  const std::optional<double> duel_s = DuelSeconds(arguments.duel);
  const CheckpointPolicy checkpoints = MakeCheckpointPolicy(arguments.checkpoints);
  Retries(arguments);
  InsideEvery(arguments.run);  // refused before anything is written
  Grid grid = MakeCompareGrid(arguments);

  const CellShare share = ShareOf(arguments, Threads(arguments.run));
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = share.threads});
  const std::shared_ptr<const TokenSource> tokens = ReadData(arguments.run);
  StudyRequest request = MakeRequest(arguments, *tokens, std::move(grid), *device, share.jobs);
  if (!request.aa) NoteSameCode(request);
  const auto available = MemoryForRuns(static_cast<uint64_t>(tokens->size()));
  // Only where something is to run: results can be looked at where there is no memory for it.
  std::pair<std::string, MemoryPlan> memory;
  Study study(arguments.run.out, request,
              [&] { memory = CheckMemoryOf(request.grid, *tokens, share, available); });

  if (study.ToRun() > 0) {
    const auto& [largest, plan] = memory;
    environment.progress.write(
        Banner(study, *tokens,
               fmt::format("{} ({}, the largest variant{})", MemorySentence(plan, available), largest,
                           share.jobs > 1 ? fmt::format(", {} at a time", share.jobs) : ""),
               arguments.run.out));
    if (const auto note = BusyNote(environment.busy_cpus)) PrintNote(*note);
    if (!RunCells(study, arguments, tokens, share, checkpoints, environment)) {
      const Counts counts = study.Results().counts;
      environment.progress.write(
          fmt::format("normlab: interrupted; {} of {} cells are finished and safe in \"{}\". The same "
                      "command goes on from there.\n",
                      counts.done + counts.diverged, counts.planned, arguments.run.out));
      return kExitInterrupted;
    }
  } else {
    study.WriteResults();
    environment.progress.write(fmt::format("all {} cells in \"{}\" are finished: nothing to run\n",
                                           study.plan().cells(), arguments.run.out));
  }

  if (study.ToRun() == 0 &&
      !RunStudyDuel(study, duel_s, tokens, share.threads * share.jobs, available, environment)) {
    environment.progress.write(fmt::format(
        "normlab: interrupted in the speed duel; all {} cells are finished and safe in \"{}\". The "
        "same command runs the duel.\n",
        study.plan().cells(), arguments.run.out));
    return kExitInterrupted;
  }

  const StudyResults results = study.Results();
  Print(arguments.run.json ? DumpJson(ResultsJson(results), 2) + "\n" : ResultsText(results));
  if (!results.counts.complete())
    Fail(
        "{} of {} cells failed, {} missing; the same command runs these again and leaves the others as they "
        "are",
        results.counts.failed, results.counts.planned, results.counts.missing);
  if (!study.page_problem().empty())
    Fail("{}. All other results are there; the same command writes the page again", study.page_problem());
  const bool worse = Gate(arguments.fail_if_worse, "--fail-if-worse", results.Worse(), "ended worse", results,
                          Metric::kTestLoss, environment);
  const bool slower = Gate(arguments.fail_if_slower, "--fail-if-slower", results.Slower(), "takes more time",
                           results, Metric::kTime, environment);
  return worse || slower ? kExitWorse : kExitGood;
}

}  // namespace

Command AddCompare(CLI::App& program) {
  CLI::App* parser =
      program.add_subcommand("compare", "Compare norms, or any other settings, over several seeds.");
  auto arguments = std::make_shared<CompareArguments>();
  AddCompareOptions(*parser, *arguments);
  return {.parser = parser,
          .run =
              [arguments, parser](const Environment& environment) {
                CheckCompareOptions(*parser, *arguments);
                return Compare(*arguments, environment);
              },
          .trains = true};
}

}  // namespace normlab::apps
