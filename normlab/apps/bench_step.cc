// normlab bench step: whole training steps of variants that take turns, and how far they are from the bound.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "normlab/apps/bench.h"
#include "normlab/apps/busy.h"
#include "normlab/apps/duel_options.h"
#include "normlab/apps/interrupt.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/cpu/stream.h"
#include "normlab/study/duel_summary.h"
#include "normlab/study/duel_text.h"
#include "normlab/study/text_table.h"

namespace normlab::apps {
namespace {

constexpr double kPrecision = 0.01;

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab bench step\n"
    "      hand-rolled and fused LayerNorm and RMSNorm at preset tiny\n"
    "  normlab bench step --preset study --norms fused_layernorm,fused_rmsnorm \\\n"
    "                     --seconds 120 --precision 0.5%\n"
    "  normlab bench step --norms rmsnorm --vary batch=4,8 --json steps.json\n"
    "\n"
    "A step: forward, backward, clipping, AdamW. Variants take turns, in an order\n"
    "shuffled per round; rounds form batches, each with memory placed afresh. A pilot\n"
    "fixes the number of rounds. The ratio is to the first variant; its interval is\n"
    "over the batches, simultaneous for all variants. Without --data, tokens are\n"
    "random: speed does not depend on them.\n"
    "bound: what the matrix products alone and the bytes that a step must move would\n"
    "take, as a share of the step.";

struct StepArguments : DuelArguments {
  std::optional<std::string> json;
};

// A variant's step beside its bound.
struct StepShare {
  StepBound bound;
  std::optional<double> products_share, bound_share;

  StepShare(const StepBound& of, const DuelVariant& variant) : bound(of) {
    if (!variant.step_s) return;
    products_share = ShareOfStep(bound.products_s, variant.step_s->median);
    bound_share = ShareOfStep(bound.seconds(), variant.step_s->median);
  }
};

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f}%", 100 * *share) : "-";
}

std::string ResultText(const DuelSummary& duel, const std::vector<StepShare>& shares, const CopySpeed& copy) {
  TextTable table(
      {{"variant"}, {"ms/step"}, {"tokens/s"}, {"MiB"}, {"prod."}, {"bound"}, {"ratio"}, {"95%", true}});
  for (size_t v = 0; v < duel.variants.size(); ++v) {
    const DuelVariant& variant = duel.variants[v];
    const double ms = variant.step_s ? 1e3 * variant.step_s->median : 0;
    const auto& time = variant.time;
    table.AddRow({Printable(variant.name),
                  !variant.step_s ? "-"
                  : ms < 100      ? fmt::format("{:.2f}", ms)
                                  : Rounded(ms),
                  variant.tokens_per_s ? Rounded(*variant.tokens_per_s) : "-",
                  Rounded(static_cast<double>(variant.peak_bytes) / (1 << 20)),
                  Percent(shares[v].products_share), Percent(shares[v].bound_share),
                  !time         ? "1"
                  : time->ratio ? fmt::format("{:.3f}", *time->ratio)
                                : "-",
                  time && time->ci_low ? fmt::format("{:.3f}-{:.3f}", *time->ci_low, *time->ci_high) : ""});
  }
  return table.Render(80) + DuelMethod(duel) +
         Wrap(fmt::format(
                  "MiB: peak memory; prod.: the step's matrix products alone, each in its fastest form; "
                  "bound: these and the bytes that a step must move, at {:.1f} GB/s of a copy over {}; both "
                  "as shares of the step.",
                  copy.bytes_per_s / 1e9, FormatBytes(static_cast<double>(copy.bytes))),
              80);
}

Json ResultJson(const DuelRecord& record, const std::vector<StepShare>& shares, const CopySpeed& copy) {
  Json json = DuelJson(record);
  json["kind"] = "bench_step";
  json["settings"]["precision"] = json["settings"]["half_width"];
  json["settings"]["environment"] = ThreadSettings();
  json["copy_bytes_per_s"] = copy.bytes_per_s;
  json["copy_bytes"] = copy.bytes;
  json["pilot_sd"] = json["pilot"]["sd"];
  for (size_t v = 0; v < shares.size(); ++v) {
    const StepShare& share = shares[v];
    Json& variant = json["variants"][v];
    // Numbers, where the record of a duel has an object, and a width in logs: as they have been.
    const Json times = variant["step_s"];
    variant["step_s"] = times["median"];
    variant["step_s_first_quartile"] = times["first_quartile"];
    variant["step_s_third_quartile"] = times["third_quartile"];
    if (variant["half_width"].is_number())
      variant["half_width"] = std::log1p(variant["half_width"].get<double>());
    variant["products_bound_s"] = normlab::ToJson(share.bound.products_s);
    variant["step_bytes"] = normlab::ToJson(share.bound.bytes);
    variant["bound_s"] = normlab::ToJson(share.bound.seconds());
    variant["products_share"] = normlab::ToJson(share.products_share);
    variant["bound_share"] = normlab::ToJson(share.bound_share);
  }
  return json;
}

int BenchStep(const StepArguments& arguments, const Environment& environment) {
  const Grid grid = MakeDuelGrid(arguments, kDuelNorms);
  const DuelSettings settings = MakeDuelSettings(arguments, kPrecision);
  const int threads = Threads(arguments.run);
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = threads});
  const std::shared_ptr<const TokenSource> tokens = DuelTokens(arguments, grid);
  for (const Variant& variant : grid.variants) CheckRun(variant.config, *tokens, *device);
  StepDuel duel(grid.variants, tokens, threads);
  const size_t bytes = duel.RequireMemory(MemoryForRuns(static_cast<uint64_t>(tokens->size())));
  StartJson(arguments.json);

  const InterruptGuard interrupt;
  const Machine machine = DescribeMachine(*device);
  const std::string header = DuelHeader(machine, duel, bytes, arguments.run.data.empty());
  arguments.json == "-" ? environment.progress.write(header) : Print(header + "\n");
  if (const auto note = BusyNote(environment.busy_cpus)) PrintNote(*note);

  Progress progress(environment.progress);
  progress.Update("timing a copy of memory, and making the models");
  const CopySpeed copy = MeasureCopySpeed(threads, std::min(ColdBytes(), bytes));
  const std::string started_at = UtcNow();
  DuelRecord record = duel.Run(settings, [&](const DuelProgress& now) {
    progress.Update(ProgressLine(now));
    return !*interrupt.stop();
  });
  record.started_at = started_at;
  record.machine = machine;
  record.busy_cpus = environment.busy_cpus;
  record.rule = {
      .variants = std::max(1, static_cast<int>(grid.variants.size()) - 1), .looks = 1, .log_ratio = true};
  const bool stopped = record.result.stopped;
  if (!stopped) progress.Update("timing the matrix products alone");
  const DuelSummary summary = Summarize(record);
  const std::vector<StepBound> bounds = duel.Bounds(copy.bytes_per_s, !stopped);
  std::vector<StepShare> shares;
  for (size_t v = 0; v < bounds.size(); ++v) shares.emplace_back(bounds[v], summary.variants[v]);
  progress.Clear();
  progress.Finish();
  if (!WriteJson(arguments.json, ResultJson(record, shares, copy))) Print(ResultText(summary, shares, copy));
  if (!stopped) return kExitGood;
  environment.progress.write(fmt::format("normlab: interrupted; {} batches are complete\n", summary.batches));
  return kExitInterrupted;
}

}  // namespace

Command AddBenchStep(CLI::App& bench) {
  CLI::App* parser = bench.add_subcommand("step", "Whole training steps of variants, in turns.");
  auto arguments = std::make_shared<StepArguments>();
  AddDuelOptions(*parser, *arguments);
  parser
      ->add_option("--precision", arguments->precision,
                   "half a width of a ratio's interval that is aimed at (default 1)")
      ->type_name("PERCENT")
      ->group("How it is run");
  parser
      ->add_option("--json", arguments->json,
                   "writes everything to a file; -: to standard output, in place of the table")
      ->type_name("FILE")
      ->group("How it is run");
  parser->footer(kFooter);
  return {.parser = parser,
          .run = [arguments](const Environment& environment) { return BenchStep(*arguments, environment); },
          .trains = true};
}

}  // namespace normlab::apps
