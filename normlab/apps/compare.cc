// normlab compare: variants x seeds as a folder of cells, then the table with intervals and verdicts.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "normlab/apps/busy.h"
#include "normlab/apps/checkpoint_options.h"
#include "normlab/apps/command.h"
#include "normlab/apps/interrupt.h"
#include "normlab/apps/progress_line.h"
#include "normlab/apps/run_options.h"
#include "normlab/base/error.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/norms/norm_type.h"
#include "normlab/study/export.h"
#include "normlab/study/runner.h"

namespace normlab::apps {
namespace {

// The article's norms, its first table's order, and none.
constexpr const char* kDefaultNorms =
    "handrolled_layernorm,fused_layernorm,handrolled_rmsnorm,fused_rmsnorm,no_norm";
constexpr int64_t kMostSeeds = 10000, kMostLooks = 100;

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab compare --data text.txt --out study\n"
    "      handrolled_layernorm, fused_layernorm, handrolled_rmsnorm, fused_rmsnorm\n"
    "      and no_norm; preset tiny; seeds 1 to 5\n"
    "  normlab compare --norms layernorm,rmsnorm --vary learning_rate=0.001,0.002 \\\n"
    "                  --seeds 5 --data text.txt --out grid\n"
    "      four variants: every combination\n"
    "  normlab compare ... --seeds 8 --out study\n"
    "      the same study with three more seeds: only these run, as the second look\n"
    "\n"
    "DIR holds study.json (what was asked), report.html (open it in a browser, also\n"
    "while the study runs), results.json, results.csv, and a folder\n"
    "runs/VARIANT/seed-N for each run. A second start of the same command runs only\n"
    "what is not finished, and goes on inside a run that was cut off, from its latest\n"
    "checkpoint (every 10 minutes, and at Ctrl-C); a finished study is shown at once.\n"
    "\n"
    "Verdicts: losses are paired by seed; `lower loss` or `higher loss` needs a\n"
    "paired t interval without 0, simultaneous over all variants and declared looks;\n"
    "`equivalent` means smaller than --margin. One seed gives no verdict.\n"
    "Speed is judged from whole runs; the interleaved speed duel is not there yet.";

struct CompareArguments {
  RunArguments run;
  CheckpointArguments checkpoints;
  std::optional<std::string> norms, seeds, seed_list, baseline, margin, speed_margin, looks, duel;
  std::vector<std::string> vary;
  bool fail_if_worse = false, save_models = false, profile = false;
};

void RefuseWhatIsNotThereYet(const CompareArguments& arguments) {
  if (arguments.duel && *arguments.duel != "0")
    throw UsageError(
        "--duel is not there yet: leave it out, or give --duel 0; times are compared from whole runs");
}

std::vector<VariedKey> VariedKeys(const CompareArguments& arguments,
                                  const std::vector<Assignment>& assignments) {
  std::vector<VariedKey> keys;
  const bool by_default = !arguments.norms && arguments.vary.empty();
  if (by_default)
    keys.push_back(ParseVariedKey(fmt::format("norm_type={}", kDefaultNorms)));
  else if (arguments.norms)
    keys.push_back(ParseVariedKey(fmt::format("norm_type={}", *arguments.norms)));
  for (const std::string& text : arguments.vary) keys.push_back(ParseVariedKey(text));
  for (const VariedKey& key : keys)
    for (const Assignment& assignment : assignments)
      if (assignment.key == key.key)
        throw UsageError(
            fmt::format("{} is set by {} and varies too; {}", key.key, assignment.option,
                        by_default ? "name the norms to compare with --norms" : "do one of the two"));
  return keys;
}

std::optional<std::vector<uint64_t>> SeedsAsked(const CompareArguments& arguments) {
  if (arguments.seeds && arguments.seed_list)
    throw UsageError("--seeds and --seed-list are two ways to say one thing; give one of them");
  if (arguments.seed_list) return ParseSeeds(*arguments.seed_list);
  if (!arguments.seeds) return std::nullopt;
  std::vector<uint64_t> seeds;
  const int64_t count = WholeNumber("--seeds", *arguments.seeds, 1, kMostSeeds);
  for (int64_t seed = 1; seed <= count; ++seed) seeds.push_back(static_cast<uint64_t>(seed));
  return seeds;
}

// The name that a variant has for a user's baseline: aliases and unsaid forms are understood.
std::string BaselineName(const std::string& asked, const Grid& grid) {
  for (const Variant& variant : grid.variants)
    if (variant.name == asked) return asked;
  if (grid.varied_keys != std::vector<std::string>{"norm_type"}) return asked;
  try {
    return Name(ParseNormType(asked));
  } catch (const Error&) {
    return asked;  // refused later, with the names of the variants
  }
}

StudyRequest MakeRequest(const CompareArguments& arguments, const TokenSource& tokens, Grid grid,
                         const Device& device) {
  StudyRequest request{.seeds = SeedsAsked(arguments),
                       .data = DataIdentity(tokens),
                       .machine = DescribeMachine(device),
                       .started_at = UtcNow()};
  if (arguments.baseline) request.baseline = BaselineName(*arguments.baseline, grid);
  if (arguments.margin) {
    request.margin_nats = PositiveNumber("--margin", *arguments.margin);
    if (request.margin_nats > 100)
      throw UsageError(fmt::format("--margin is {}; it must be at most 100 nats", *arguments.margin));
  }
  if (arguments.speed_margin)
    request.speed_margin = PositiveNumber("--speed-margin", *arguments.speed_margin) / 100;
  if (arguments.looks)
    request.looks = static_cast<int>(WholeNumber("--looks", *arguments.looks, 1, kMostLooks));
  for (const Variant& variant : grid.variants)
    request.norm_implementations.push_back(CheckRun(variant.config, tokens, device));
  request.grid = std::move(grid);
  return request;
}

// What the variant that takes most memory takes. Throws Error where one does not fit.
std::pair<std::string, MemoryPlan> CheckMemoryOf(const Grid& grid, const TokenSource& tokens, int threads,
                                                 const std::optional<AvailableMemory>& available) {
  std::pair<std::string, MemoryPlan> largest;
  for (const Variant& variant : grid.variants) {
    MemoryPlan plan;
    try {
      plan = CheckMemory(variant.config, tokens, threads, available);
    } catch (const Error& error) {
      Fail("variant {}: {}", variant.name, error.what());
    }
    if (largest.first.empty() || plan.total() > largest.second.total()) largest = {variant.name, plan};
  }
  return largest;
}

// Variants that differ in nothing that runs: two names of one norm, or an option that the norm does not read.
void NoteSameCode(const StudyRequest& request) {
  std::map<std::string, std::string> first_of;  // by everything that runs
  for (size_t v = 0; v < request.grid.variants.size(); ++v) {
    const Variant& variant = request.grid.variants[v];
    Json runs = ToJson(WithoutUnusedNormOptions(variant.config));
    runs["norm_type"] = InfoOf(variant.config.model.Norm().kind).name;
    const std::string& implementation = request.norm_implementations[v];
    const auto [same, is_new] = first_of.emplace(implementation + DumpJson(runs), variant.name);
    if (!is_new)
      PrintNote(fmt::format("{} and {} run the same code here ({}): they differ by chance alone",
                            same->second, variant.name, implementation));
  }
}

std::string Banner(const Study& study, const TokenSource& tokens, const std::string& memory,
                   const std::string& out) {
  const StudyPlan& plan = study.plan();
  const TrainConfig& config = plan.variants[plan.Baseline()].variant.config;
  const Split split = SplitTokens(tokens, {.window = config.Window(),
                                           .batch = config.batch,
                                           .held_out_fraction = config.held_out_fraction,
                                           .held_out_windows = config.held_out_windows});
  std::string text = Summarize(tokens, split, config.batch, config.steps).ToString() + "\n";
  text += Wrap(
      fmt::format("{}, {}, {} ({}); results in {}", study.machine().cpu, study.machine().isa,
                  Counted(study.machine().threads, "thread"), study.machine().thread_runtime, Printable(out)),
      80, "machine   ", "          ");
  text += Wrap(memory, 80, "memory    ", "          ");
  text += fmt::format("cells     {} x {}: {} to run, {} finished\n", Counted(plan.variants.size(), "variant"),
                      Counted(plan.seeds.size(), "seed"), study.ToRun(), plan.cells() - study.ToRun());
  if (plan.look() > plan.looks)
    text += fmt::format("note      this is look {} where {} declared: exploratory\n", plan.look(),
                        plan.looks == 1 ? "1 was" : fmt::format("{} were", plan.looks));
  return text;
}

std::string CellLine(const Cell& cell, const StudyPlan& plan) {
  std::string text = fmt::format("{}, seed {}: ", Printable(plan.variants[cell.variant].variant.name),
                                 plan.seeds[cell.seed]);
  if (cell.status != CellStatus::kDone) return text + fmt::format("{}: {}", Name(cell.status), cell.reason);
  return text + fmt::format("test loss {:.4f}, {} of training, {} tokens/s", *cell.record->test_loss,
                            FormatDuration(cell.record->time_s),
                            Rounded(cell.record->tokens_per_s.value_or(0)));
}

// Runs what is to run; returns false where a signal ended it.
bool RunCells(Study& study, const CompareArguments& arguments, std::shared_ptr<const TokenSource> tokens,
              int threads, const CheckpointPolicy& checkpoints, const Environment& environment) {
  Progress progress(environment.progress);
  InterruptGuard interrupt;
  LossWatch watch;
  StudyProgress latest;
  const auto note = [&](const std::string& text) { progress.Message("normlab: note: " + text); };
  const CellRunner runner = [&](const CellRun& run) {
    if (run.resume_from)
      progress.Message(fmt::format("cell {}/{} {}, seed {}: goes on from {}", latest.cell, latest.cells,
                                   Printable(latest.variant), latest.seed,
                                   run.resume_from->filename().string()));
    return RunTraining(run.config, tokens,
                       {.folder = run.folder,
                        .threads = threads,
                        .save_model = arguments.save_models,
                        .checkpoints = checkpoints,
                        .resume_from = run.resume_from,
                        .products_bound_s = run.products_bound_s,
                        .profile = arguments.profile,
                        .on_progress = run.on_progress,
                        .on_note = note,
                        .stop = run.stop});
  };
  const StudyCallbacks callbacks{
      .on_progress =
          [&](const StudyProgress& now) {
            latest = now;
            watch.See(now.run);
            progress.Update(ProgressLine(now));
          },
      .on_cell_end =
          [&](const Cell& cell, const StudyPlan& plan) {
            progress.Clear();
            progress.Message(fmt::format("cell {}/{} {}", latest.cell, latest.cells, CellLine(cell, plan)));
            if (cell.status != CellStatus::kDone) return;
            if (const auto advice = watch.Advice(*cell.record)) progress.Message("  note: " + *advice);
          },
      .on_note = note};
  return study.Run(runner, callbacks, interrupt.stop());
}

int Compare(const CompareArguments& arguments, const Environment& environment) {
  RefuseWhatIsNotThereYet(arguments);
  const CheckpointPolicy checkpoints = MakeCheckpointPolicy(arguments.checkpoints);
  const std::vector<Assignment> assignments = Assignments(arguments.run);
  for (const Assignment& assignment : assignments)
    if (assignment.key == "seed")
      throw UsageError("every variant is trained with every seed; use --seeds or --seed-list");
  const std::vector<VariedKey> keys = VariedKeys(arguments, assignments);
  const TrainConfig base = MakeConfig(arguments.run, assignments);
  Grid grid = MakeGrid(base, keys);
  for (const std::string& note : grid.notes) PrintNote(note);
  if (grid.variants.size() < 2)
    Fail("compare needs two variants, and {} is the only one; name another, or use `normlab train`",
         grid.variants[0].name.empty() ? "this" : grid.variants[0].name);

  const int threads = Threads(arguments.run);
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = threads});
  const std::shared_ptr<const TokenSource> tokens = ReadData(arguments.run);
  StudyRequest request = MakeRequest(arguments, *tokens, std::move(grid), *device);
  NoteSameCode(request);
  const auto available = MemoryForRuns(static_cast<uint64_t>(tokens->size()));
  // Only where something is to run: results can be looked at where there is no memory for it.
  std::pair<std::string, MemoryPlan> memory;
  Study study(arguments.run.out, request,
              [&] { memory = CheckMemoryOf(request.grid, *tokens, threads, available); });

  if (study.ToRun() > 0) {
    const auto& [largest, plan] = memory;
    environment.progress.write(Banner(
        study, *tokens, fmt::format("{} ({}, the largest variant)", MemorySentence(plan, available), largest),
        arguments.run.out));
    if (const auto note = BusyNote(environment.busy_cpus)) PrintNote(*note);
    if (!RunCells(study, arguments, tokens, threads, checkpoints, environment)) {
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

  const StudyResults results = study.Results();
  Print(arguments.run.json ? DumpJson(ResultsJson(results), 2) + "\n" : ResultsText(results));
  if (!results.counts.complete())
    Fail(
        "{} of {} cells failed, {} missing; the same command runs these again and leaves the others as they "
        "are",
        results.counts.failed, results.counts.planned, results.counts.missing);
  return arguments.fail_if_worse && results.AnyWorse() ? kExitWorse : kExitGood;
}

}  // namespace

Command AddCompare(CLI::App& program) {
  CLI::App* parser =
      program.add_subcommand("compare", "Compare norms, or any other settings, over several seeds.");
  auto arguments = std::make_shared<CompareArguments>();
  const std::string what = "What is compared";
  parser->add_option("--norms", arguments->norms, "short for --vary norm_type=A,B,... (`normlab list norms`)")
      ->type_name("A,B,...")
      ->group(what);
  parser
      ->add_option("--vary", arguments->vary,
                   "a configuration key and its values; repeated: every combination is a variant")
      ->type_name("KEY=V1,V2")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(what);
  parser->add_option("--seeds", arguments->seeds, "seeds 1 to N (default 5)")->type_name("N")->group(what);
  parser->add_option("--seed-list", arguments->seed_list, "these seeds")->type_name("1,2,7")->group(what);
  parser
      ->add_option("--baseline", arguments->baseline,
                   "the variant that others are compared with (default the first)")
      ->type_name("NAME")
      ->group(what);

  AddRunOptions(*parser, arguments->run, "the folder of the study: new, or one to continue",
                "prints results.json instead of the table");
  AddCheckpointOptions(*parser, arguments->checkpoints);
  parser->add_flag("--save-models", arguments->save_models, "keeps the trained weights of every run")
      ->group("How it is run");
  parser
      ->add_flag("--profile", arguments->profile,
                 "keeps the time of each kind of operation of every run, for the report")
      ->group("How it is run");

  const std::string how = "How it is judged; recorded before the first run, and then fixed";
  parser->add_option("--margin", arguments->margin, "losses closer than this are equivalent (default 0.01)")
      ->type_name("NATS")
      ->group(how);
  parser
      ->add_option("--speed-margin", arguments->speed_margin,
                   "times closer than this are equivalent (default 1)")
      ->type_name("PERCENT")
      ->group(how);
  parser
      ->add_option(
          "--looks", arguments->looks,
          "how often verdicts will be read, more seeds being added in between (default 2); beyond them "
          "results are labelled exploratory")
      ->type_name("L")
      ->group(how);
  const std::string after = "What else";
  parser->add_option("--duel", arguments->duel, "interleaved speed duel: not there yet, only 0")
      ->type_name("SECONDS")
      ->group(after);
  parser
      ->add_flag("--fail-if-worse", arguments->fail_if_worse,
                 "exit code 3 where the loss of a variant is worse than the baseline's, or it diverged; "
                 "speed does not "
                 "count")
      ->group(after);
  parser->footer(kFooter);
  return {.parser = parser,
          .run = [arguments](const Environment& environment) { return Compare(*arguments, environment); },
          .trains = true};
}

}  // namespace normlab::apps
