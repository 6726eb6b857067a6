// normlab duel: which variant's training step takes less time, with a verdict.

#include <memory>
#include <optional>
#include <string>

#include "normlab/apps/bench.h"
#include "normlab/apps/busy.h"
#include "normlab/apps/duel_options.h"
#include "normlab/apps/interrupt.h"
#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/nearest.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/study/duel_summary.h"
#include "normlab/study/duel_text.h"
#include "normlab/train/run_record.h"

namespace normlab::apps {
namespace {

constexpr double kMargin = 0.01;
constexpr const char* kTwinNorm = "fused_layernorm";  // of --aa, where no norm is named

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab duel --norms fused_layernorm,fused_rmsnorm\n"
    "      which is faster in a whole training step, at preset tiny\n"
    "  normlab duel --norms layernorm,rmsnorm,no_norm --preset study \\\n"
    "               --precision 0.5% --seconds 300 --out duel.json\n"
    "  normlab duel --norms rmsnorm --vary norm_position=pre,post\n"
    "  normlab duel --norms rmsnorm --aa\n"
    "      a norm against itself, as a check: no difference should be found\n"
    "\n"
    "Variants take turns, in an order shuffled per round; rounds form 20 batches,\n"
    "each with memory placed afresh. A pilot warms everything up, fixes the number of\n"
    "rounds, and is excluded; nothing is extended after a look at the result.\n"
    "\n"
    "Verdicts: `equivalent` where the interval of two one-sided tests lies inside\n"
    "--speed-margin; else `less time` or `more time` where the interval of the ratio,\n"
    "simultaneous over all variants, does not hold 1; else `undecided`. Fewer than 6\n"
    "batches (--seconds too short) give none. Without --data, tokens are random:\n"
    "speed does not depend on them.";

struct SpeedArguments : DuelArguments {
  std::optional<std::string> baseline, speed_margin, out;
  bool json = false, twin = false;
};

// The variants as contenders; with --aa the one variant and its twin.
std::vector<Variant> Contenders(const SpeedArguments& arguments, const Grid& grid) {
  if (!arguments.twin) {
    if (grid.variants.size() < 2)
      Fail("a duel needs two variants, and {} is the only one; name another, or give --aa",
           grid.variants[0].name.empty() ? grid.variants[0].config.model.norm_type : grid.variants[0].name);
    return grid.variants;
  }
  if (grid.variants.size() != 1)
    Fail("--aa lets one variant meet itself, and there are {}; name one", grid.variants.size());
  Variant twin = grid.variants[0];
  twin.name = (twin.name.empty() ? twin.config.model.norm_type : twin.name) + " again";
  return {grid.variants[0], twin};
}

size_t Baseline(const SpeedArguments& arguments, const Grid& grid) {
  if (!arguments.baseline || arguments.twin) return 0;
  const std::string name = VariantName(*arguments.baseline, grid);
  std::vector<std::string> names;
  for (const Variant& variant : grid.variants) {
    if (variant.name == name) return names.size();
    names.push_back(variant.name);
  }
  Fail("unknown baseline {}", UnknownName(name, names));
}

std::string ResultText(const DuelSummary& summary, bool twin) {
  std::string text = DuelVerdicts(summary) + "\n" + DuelTables(summary) + "\n" + DuelMethod(summary);
  if (twin)
    text += Wrap(fmt::format("Both are the same code: less or more time would be chance, in {:g}% of such "
                             "duels.",
                             100 * summary.rule.alpha),
                 80);
  return text;
}

int Duel(const SpeedArguments& arguments, const Environment& environment) {
  const double margin = arguments.speed_margin ? SpeedMargin(*arguments.speed_margin) : kMargin;
  if (arguments.out && arguments.out->empty())
    throw UsageError("--out is given an empty name; it takes a file");
  const Grid grid = MakeDuelGrid(arguments, arguments.twin ? kTwinNorm : kDuelNorms);
  DuelSettings settings = MakeDuelSettings(arguments, margin);
  settings.baseline = Baseline(arguments, grid);

  const int threads = Threads(arguments.run);
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = threads});
  const std::shared_ptr<const TokenSource> tokens = DuelTokens(arguments, grid);
  for (const Variant& variant : grid.variants) CheckRun(variant.config, *tokens, *device);
  StepDuel duel(Contenders(arguments, grid), tokens, threads);
  const size_t bytes = duel.RequireMemory(MemoryForRuns(static_cast<uint64_t>(tokens->size())));
  StartJson(arguments.out);

  const InterruptGuard interrupt;
  const Machine machine = DescribeMachine(*device);
  const bool random = arguments.run.data.empty();
  environment.progress.write(DuelHeader(machine, duel, bytes, random));
  if (const auto note = BusyNote(environment.busy_cpus)) PrintNote(*note);

  const std::string started_at = UtcNow();
  Progress progress(environment.progress);
  progress.Update("making the models");
  DuelRecord record = duel.Run(settings, [&](const DuelProgress& now) {
    progress.Update(ProgressLine(now));
    return !*interrupt.stop();
  });
  progress.Clear();
  progress.Finish();
  record.started_at = started_at;
  record.machine = machine;
  if (!random) record.data = DataIdentity(*tokens);
  record.busy_cpus = environment.busy_cpus;
  record.rule = {.alpha = settings.alpha,
                 .variants = static_cast<int>(duel.variants().size()) - 1,
                 .looks = 1,
                 .margin = margin,
                 .log_ratio = true};

  const std::string json = DumpJson(DuelJson(record), 1) + "\n";
  if (arguments.out) WriteFileAtomic(*arguments.out, json);
  Print(arguments.json ? json : ResultText(Summarize(record), arguments.twin));
  if (!record.result.stopped) return kExitGood;
  environment.progress.write(
      fmt::format("normlab: interrupted; {} batches are complete\n", record.result.batches));
  return kExitInterrupted;
}

}  // namespace

Command AddDuel(CLI::App& program) {
  CLI::App* parser =
      program.add_subcommand("duel", "Let training steps of variants take turns: which takes less time?");
  auto arguments = std::make_shared<SpeedArguments>();
  AddDuelOptions(*parser, *arguments);
  parser
      ->add_option("--baseline", arguments->baseline,
                   "the variant whose time the others' are divided by (default the first)")
      ->type_name("NAME")
      ->group("What varies");
  parser->add_flag("--aa", arguments->twin, "one variant against itself: a check of the method")
      ->group("What varies");
  const std::string how = "How it is run";
  parser
      ->add_option("--precision", arguments->precision,
                   "half a width of a ratio's interval that is aimed at (default: the speed margin)")
      ->type_name("PERCENT")
      ->group(how);
  parser
      ->add_option("--speed-margin", arguments->speed_margin,
                   "times closer than this are equivalent (default 1)")
      ->type_name("PERCENT")
      ->group(how);
  parser->add_option("--out", arguments->out, "writes everything, every block too, to a JSON file")
      ->type_name("FILE")
      ->group(how);
  parser->add_flag("--json", arguments->json, "prints that JSON instead of the tables")->group(how);
  parser->footer(kFooter);
  return {.parser = parser,
          .run = [arguments](const Environment& environment) { return Duel(*arguments, environment); },
          .trains = true};
}

}  // namespace normlab::apps
