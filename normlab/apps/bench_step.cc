// normlab bench step: whole training steps of variants that take turns.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "normlab/apps/bench.h"
#include "normlab/apps/busy.h"
#include "normlab/apps/interrupt.h"
#include "normlab/apps/run_options.h"
#include "normlab/base/error.h"
#include "normlab/base/random.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/cpu/stream.h"
#include "normlab/stats/descriptive.h"
#include "normlab/study/duel.h"
#include "normlab/study/grid.h"
#include "normlab/study/text_table.h"
#include "normlab/train/machine.h"
#include "normlab/train/step_bound.h"
#include "normlab/train/trainer.h"

namespace normlab::apps {
namespace {

constexpr int kSchemaVersion = 1;
constexpr const char* kDefaultNorms = "handrolled_layernorm,fused_layernorm,handrolled_rmsnorm,fused_rmsnorm";
constexpr double kBlockSeconds = 0.02;  // of the first variant, at least: several steps where one is shorter

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab bench step\n"
    "      hand-rolled and fused LayerNorm and RMSNorm at preset tiny\n"
    "  normlab bench step --preset study --norms fused_layernorm,fused_rmsnorm \\\n"
    "                     --seconds 120 --precision 0.5\n"
    "  normlab bench step --norms rmsnorm --vary batch=4,8 --json steps.json\n"
    "\n"
    "A step: forward, backward, clipping, AdamW. Variants take turns, in an order\n"
    "shuffled per round; rounds form batches, each with memory placed afresh. A pilot\n"
    "fixes the number of rounds. The ratio is to the first variant; its interval is\n"
    "over the batches, simultaneous for all variants. Without --data, tokens are\n"
    "random: speed does not depend on them.\n"
    "bound: what the matrix products alone and the bytes that a step must move would\n"
    "take, as a share of the step.";

struct StepArguments {
  RunArguments run;
  std::optional<std::string> norms, seconds, precision, json;
  std::vector<std::string> vary;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t InvoluntarySwitches() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

std::vector<VariedKey> VariedKeys(const StepArguments& arguments,
                                  const std::vector<Assignment>& assignments) {
  std::vector<VariedKey> keys;
  if (arguments.norms)
    keys.push_back(ParseVariedKey("norm_type=" + *arguments.norms));
  else if (arguments.vary.empty() &&
           std::ranges::find(assignments, "norm_type", &Assignment::key) == assignments.end())
    keys.push_back(ParseVariedKey(std::string("norm_type=") + kDefaultNorms));
  for (const std::string& text : arguments.vary) keys.push_back(ParseVariedKey(text));
  for (const VariedKey& key : keys)
    for (const Assignment& assignment : assignments)
      if (assignment.key == key.key)
        throw UsageError(
            fmt::format("{} is set by {} and varies too; do one of the two", key.key, assignment.option));
  return keys;
}

// Enough random ids for every variant's split.
std::shared_ptr<const TokenSource> RandomTokens(const Grid& grid) {
  double needed = 0;
  int64_t vocabulary = 256;
  for (const Variant& variant : grid.variants) {
    const TrainConfig& config = variant.config;
    const double window = static_cast<double>(config.Window()), held_out = config.held_out_fraction;
    needed = std::max({needed, (window + 2) / held_out + 2,
                       (8 * static_cast<double>(config.batch) + 1) * window / (1 - held_out) + 2});
    vocabulary = std::min(vocabulary, config.model.vocab_size);
  }
  const RandomStream random(1, "tokens");
  std::vector<int32_t> ids(static_cast<size_t>(needed));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(random.Below(i, static_cast<uint64_t>(vocabulary)));
  return TokensFromIds(
      std::move(ids),
      {.tokenizer = "random", .tokenizer_hash = "", .vocab_size = vocabulary, .data_hash = ""});
}

// A variant's model, on a device of its own so that its memory is counted and placed apart.
struct Contender {
  std::unique_ptr<Device> device;
  std::unique_ptr<Trainer> trainer;

  void Clear() {
    trainer.reset();  // before the device that holds its memory
    device.reset();
  }

  void Place(const TrainConfig& config, const std::shared_ptr<const TokenSource>& tokens, int threads) {
    Clear();
    device = MakeCpuDevice({.threads = threads});
    trainer = std::make_unique<Trainer>(*device, config, tokens);
    trainer->Step();  // scratch memory grows, pages are touched
  }

  void Run(const std::string& name, int64_t steps) const {
    for (int64_t i = 0; i < steps; ++i)
      if (const StepResult result = trainer->Step(); result.divergence)
        Fail("{} diverged ({}): times of such steps say nothing; set a smaller learning_rate", name,
             result.divergence->ToString());
  }
};

struct VariantResult {
  std::string implementation;
  StepBound bound;
  size_t peak_bytes = 0;
  std::optional<double> step_s, first_quartile_s, third_quartile_s, tokens_per_s, products_share, bound_share;
  std::optional<stats::BatchedRatio> ratio;
  size_t interrupted = 0;
};

std::string Name(const Variant& variant) {
  return variant.name.empty() ? variant.config.model.norm_type : variant.name;
}

class StepBench {
 public:
  StepBench(Grid grid, std::shared_ptr<const TokenSource> tokens, int threads)
      : grid_(std::move(grid)),
        tokens_(std::move(tokens)),
        threads_(threads),
        contenders_(grid_.variants.size()) {
    for (Variant& variant : grid_.variants)
      variant.config.steps = std::max<int64_t>(variant.config.steps, 1'000'000);
  }

  // All variants are in memory at one time. Returns what they take together.
  size_t CheckMemory(const std::optional<AvailableMemory>& available) const {
    size_t total = 0, program = 0, temporary = 0;
    for (const Variant& variant : grid_.variants) {
      const MemoryPlan plan = PlanMemory(variant.config, {.threads = threads_});
      RequireMemory(plan, variant.config, threads_, available);
      total += plan.device_bytes();
      program = std::max(program, plan.program);
      temporary = std::max(temporary, plan.temporary);
    }
    const size_t needed = total + program + temporary;
    if (available && needed > available->bytes)
      Fail(
          "{} side by side need about {} of memory, and {} leaves {}; take fewer, or a smaller --batch, "
          "--context "
          "or model",
          Counted(grid_.variants.size(), "variant"), FormatBytes(static_cast<double>(needed)),
          available->limit, FormatBytes(static_cast<double>(available->bytes)));
    return total;
  }

  DuelResult Run(DuelSettings settings, const std::function<bool(const DuelProgress&)>& keep_going) {
    settings.contenders = grid_.variants.size();
    return RunDuel(settings, {.place =
                                  [&](size_t batch, std::span<const size_t> order) {
                                    for (const size_t v : order)
                                      contenders_[v].Clear();  // all go before any comes
                                    for (const size_t v : order)
                                      contenders_[v].Place(grid_.variants[v].config, tokens_, threads_);
                                    if (batch == 0) FixBlocks();
                                  },
                              .prepare = {},
                              .block = [&](size_t v) { RunBlock(v, steps_per_block_); },
                              .now_s = Now,
                              .interruptions = InvoluntarySwitches,
                              .keep_going = keep_going});
  }

  // What each variant is, and its bound, from the models of the last batch. Variants with equal products
  // share their time.
  std::vector<VariantResult> Bounds(double copy_bytes_per_s, bool with_products) {
    std::vector<VariantResult> results;
    std::vector<std::pair<std::string, std::optional<double>>> known;
    for (const Contender& contender : contenders_) {
      Trainer& trainer = *contender.trainer;
      std::string products = fmt::format("{} {}/{}", trainer.config().dtype, trainer.config().batch,
                                         trainer.config().MicroBatch());
      for (const Gpt::Product& product : trainer.model().Products())
        products += fmt::format(" {}x{}x{}{}*{:.6g}", product.shape.m, product.shape.n, product.shape.k,
                                product.shape.one_of_many ? "h" : "", product.times);
      const auto same = std::ranges::find(known, products, &decltype(known)::value_type::first);
      std::optional<double> products_s;
      if (with_products) products_s = same != known.end() ? same->second : trainer.ProductsBound();
      if (same == known.end()) known.emplace_back(products, products_s);
      results.push_back({.implementation = std::string(normlab::Name(trainer.model().norm_implementation())),
                         .bound = {.products_s = products_s,
                                   .bytes = StepBytes(trainer.model(), trainer.config()),
                                   .copy_bytes_per_s = copy_bytes_per_s},
                         .peak_bytes = contender.device->peak_bytes()});
    }
    return results;
  }

  void Take(const DuelResult& duel, std::vector<VariantResult>& results) const {
    for (size_t v = 0; v < results.size(); ++v) {
      VariantResult& result = results[v];
      if (duel.rounds() == 0) continue;
      std::vector<double> seconds = duel.times[v].seconds;
      for (double& value : seconds) value /= static_cast<double>(steps_per_block_);
      result.step_s = stats::Median(seconds);
      result.first_quartile_s = stats::Quantile(seconds, 0.25);
      result.third_quartile_s = stats::Quantile(seconds, 0.75);
      result.tokens_per_s = static_cast<double>(grid_.variants[v].config.TokensPerStep()) / *result.step_s;
      result.products_share = ShareOfStep(result.bound.products_s, *result.step_s);
      result.bound_share = ShareOfStep(result.bound.seconds(), *result.step_s);
      result.ratio = duel.ratios[v];
      result.interrupted = static_cast<size_t>(std::ranges::count(duel.times[v].interrupted, true));
    }
  }

  const Grid& grid() const { return grid_; }
  int64_t steps_per_block() const { return steps_per_block_; }

 private:
  void RunBlock(size_t v, int64_t steps) const { contenders_[v].Run(Name(grid_.variants[v]), steps); }

  // Steps too short for the clock and what stands around it come several in a block.
  void FixBlocks() {
    const double start = Now();
    RunBlock(0, 1);
    steps_per_block_ =
        static_cast<int64_t>(std::clamp(std::ceil(kBlockSeconds / (Now() - start)), 1.0, 1000.0));
  }

  Grid grid_;
  std::shared_ptr<const TokenSource> tokens_;
  int threads_;
  std::vector<Contender> contenders_;
  int64_t steps_per_block_ = 1;
};

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f}%", 100 * *share) : "-";
}

std::string ResultText(const StepBench& bench, const std::vector<VariantResult>& results,
                       const DuelResult& duel, const CopySpeed& copy) {
  TextTable table(
      {{"variant"}, {"ms/step"}, {"tokens/s"}, {"MiB"}, {"prod."}, {"bound"}, {"ratio"}, {"95%", true}});
  for (size_t v = 0; v < results.size(); ++v) {
    const VariantResult& result = results[v];
    const double ms = 1e3 * result.step_s.value_or(0);
    std::string ratio = v == 0 ? "1" : "-", interval;
    if (result.ratio) {
      ratio = fmt::format("{:.3f}", result.ratio->ratio);
      if (result.ratio->interval)
        interval = fmt::format("{:.3f}-{:.3f}", result.ratio->interval->low, result.ratio->interval->high);
    }
    table.AddRow({Printable(Name(bench.grid().variants[v])),
                  !result.step_s ? "-"
                  : ms < 100     ? fmt::format("{:.2f}", ms)
                                 : Rounded(ms),
                  result.tokens_per_s ? Rounded(*result.tokens_per_s) : "-",
                  Rounded(static_cast<double>(result.peak_bytes) / (1 << 20)), Percent(result.products_share),
                  Percent(result.bound_share), ratio, interval});
  }
  std::string text = table.Render(80);
  std::string how = fmt::format("{} batch{} of {}, {} a block", duel.batches, duel.batches == 1 ? "" : "es",
                                Counted(duel.plan.rounds_per_batch, "round"),
                                Counted(static_cast<size_t>(bench.steps_per_block()), "step"));
  if (results.size() > 1 && results[1].ratio) {
    double half_width = 0, correlation = 0;
    for (const VariantResult& result : results) {
      if (!result.ratio) continue;
      half_width = std::max(half_width, result.ratio->half_width.value_or(0));
      if (const auto lag = result.ratio->lag_one_autocorrelation)
        correlation = std::abs(*lag) > std::abs(correlation) ? *lag : correlation;
    }
    how += fmt::format("; precision reached: {:.2f}%, autocorrelation of rounds {:.2f}",
                       100 * std::expm1(half_width), correlation);
    if (duel.plan.cut) how += "; fewer rounds than --precision asks for: there was no time (--seconds)";
  }
  if (duel.interrupted_blocks() > 0)
    how += fmt::format("; the system took a processor away in {} of {} blocks, which count all the same",
                       duel.interrupted_blocks(), results.size() * duel.rounds());
  text += Wrap(how + ".", 80);
  return text +
         Wrap(fmt::format(
                  "MiB: peak memory; prod.: the step's matrix products alone, each in its fastest form; "
                  "bound: these and "
                  "the bytes that a step must move, at {:.1f} GB/s of a copy over {}; both as shares of "
                  "the step.",
                  copy.bytes_per_s / 1e9, FormatBytes(static_cast<double>(copy.bytes))),
              80);
}

Json ResultJson(const StepBench& bench, const std::vector<VariantResult>& results, const DuelResult& duel,
                const CopySpeed& copy, const DuelSettings& settings, const Machine& machine,
                const Environment& environment) {
  Json variants = Json::array();
  for (size_t v = 0; v < results.size(); ++v) {
    const VariantResult& result = results[v];
    const Variant& variant = bench.grid().variants[v];
    const auto& ratio = result.ratio;
    Json config = normlab::ToJson(variant.config);
    config.erase("steps");
    variants.push_back(
        {{"name", Name(variant)},
         {"varied", variant.varied},
         {"config", std::move(config)},
         {"norm_implementation", result.implementation},
         {"step_s", normlab::ToJson(result.step_s)},
         {"step_s_first_quartile", normlab::ToJson(result.first_quartile_s)},
         {"step_s_third_quartile", normlab::ToJson(result.third_quartile_s)},
         {"tokens_per_s", normlab::ToJson(result.tokens_per_s)},
         {"peak_bytes", result.peak_bytes},
         {"products_bound_s", normlab::ToJson(result.bound.products_s)},
         {"step_bytes", normlab::ToJson(result.bound.bytes)},
         {"bound_s", normlab::ToJson(result.bound.seconds())},
         {"products_share", normlab::ToJson(result.products_share)},
         {"bound_share", normlab::ToJson(result.bound_share)},
         {"ratio", ratio ? normlab::ToJson(ratio->ratio) : Json()},
         {"ci_low", ratio && ratio->interval ? normlab::ToJson(ratio->interval->low) : Json()},
         {"ci_high", ratio && ratio->interval ? normlab::ToJson(ratio->interval->high) : Json()},
         {"half_width", ratio ? normlab::ToJson(ratio->half_width) : Json()},
         {"autocorrelation", ratio ? normlab::ToJson(ratio->lag_one_autocorrelation) : Json()},
         {"interrupted_blocks", result.interrupted},
         {"block_s", duel.times.empty() ? std::vector<double>() : duel.times[v].seconds}});
  }
  return {{"schema_version", kSchemaVersion},
          {"kind", "bench_step"},
          {"status", duel.stopped ? "interrupted" : "done"},
          {"machine", ToJson(machine)},
          {"settings",
           {{"seconds", normlab::ToJson(settings.seconds)},
            {"precision", std::expm1(settings.half_width)},
            {"seed", settings.seed},
            {"environment", ThreadSettings()}}},
          {"busy_cpus", normlab::ToJson(environment.busy_cpus)},
          {"copy_bytes_per_s", copy.bytes_per_s},
          {"copy_bytes", copy.bytes},
          {"pilot_rounds", duel.pilot_rounds},
          {"pilot_sd", duel.pilot_sd},
          {"batches", duel.batches},
          {"rounds_per_batch", duel.plan.rounds_per_batch},
          {"steps_per_block", bench.steps_per_block()},
          {"cut", duel.plan.cut},
          {"baseline", Name(bench.grid().variants[0])},
          {"variants", variants}};
}

std::string Header(const Machine& machine, const StepBench& bench, const std::string& memory, bool random) {
  const auto line = [](const char* label, const std::string& text) {
    return Wrap(text, 80, fmt::format("{:<10}", label), std::string(10, ' '));
  };
  const TrainConfig& config = bench.grid().variants[0].config;
  return line("machine", fmt::format("{}, {}, {} ({}; {})", machine.cpu, machine.isa,
                                     Counted(static_cast<size_t>(machine.threads), "thread"),
                                     machine.thread_runtime, ThreadSettingsText())) +
         line("step",
              fmt::format("{} of {} tokens; width {}, {}, vocabulary {}, {}{}",
                          Counted(static_cast<size_t>(config.batch), "sequence"), config.Window(),
                          config.model.emb_dim, Counted(static_cast<size_t>(config.model.n_layers), "layer"),
                          FormatCount(config.model.vocab_size), config.dtype,
                          random ? "; random tokens" : "")) +
         line("memory", memory);
}

int BenchStep(const StepArguments& arguments, const Environment& environment) {
  const std::vector<Assignment> assignments = Assignments(arguments.run);
  Grid grid = MakeGrid(MakeConfig(arguments.run, assignments), VariedKeys(arguments, assignments));
  for (const std::string& note : grid.notes) PrintNote(note);
  DuelSettings settings{.seconds = 60};
  if (arguments.seconds) settings.seconds = PositiveNumber("--seconds", *arguments.seconds);
  if (arguments.precision)
    settings.half_width = std::log1p(PositiveNumber("--precision", *arguments.precision) / 100);

  const int threads = Threads(arguments.run);
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = threads});
  const bool random = arguments.run.data.empty();
  const std::shared_ptr<const TokenSource> tokens = random ? RandomTokens(grid) : ReadData(arguments.run);
  for (const Variant& variant : grid.variants) CheckRun(variant.config, *tokens, *device);
  StepBench bench(std::move(grid), tokens, threads);
  const auto available = MemoryForRuns(static_cast<uint64_t>(tokens->size()));
  const size_t bytes = bench.CheckMemory(available);
  StartJson(arguments.json);

  const InterruptGuard interrupt;
  const Machine machine = DescribeMachine(*device);
  std::string memory = fmt::format("about {}", FormatBytes(static_cast<double>(bytes)));
  if (bench.grid().variants.size() > 1)
    memory += fmt::format(" for {} side by side", Counted(bench.grid().variants.size(), "variant"));
  const std::string header = Header(machine, bench, memory, random);
  arguments.json == "-" ? environment.progress.write(header) : Print(header + "\n");
  if (const auto note = BusyNote(environment.busy_cpus)) PrintNote(*note);

  Progress progress(environment.progress);
  progress.Update("timing a copy of memory, and making the models");
  const CopySpeed copy = MeasureCopySpeed(threads, std::min(ColdBytes(), bytes));
  const DuelResult duel = bench.Run(settings, [&](const DuelProgress& now) {
    progress.Update(fmt::format("{} {}/{}  {} left", now.pilot ? "pilot round" : "round", now.rounds_done,
                                now.rounds, FormatDuration(now.remaining_s)));
    return !*interrupt.stop();
  });
  if (!duel.stopped) progress.Update("timing the matrix products alone");
  std::vector<VariantResult> results = bench.Bounds(copy.bytes_per_s, !duel.stopped);
  progress.Clear();
  progress.Finish();
  bench.Take(duel, results);
  if (!WriteJson(arguments.json, ResultJson(bench, results, duel, copy, settings, machine, environment)))
    Print(ResultText(bench, results, duel, copy));
  if (!duel.stopped) return kExitGood;
  environment.progress.write(fmt::format("normlab: interrupted; {} batches are complete\n", duel.batches));
  return kExitInterrupted;
}

}  // namespace

Command AddBenchStep(CLI::App& bench) {
  CLI::App* parser = bench.add_subcommand("step", "Whole training steps of variants, in turns.");
  auto arguments = std::make_shared<StepArguments>();
  AddRunOptions(*parser, arguments->run, "", "");
  parser->get_option("--data")->required(false);
  for (const char* name : {"--out", "--json", "--steps"}) parser->remove_option(parser->get_option(name));
  parser
      ->add_option("--norms", arguments->norms,
                   std::string("short for --vary norm_type=A,B,... (default ") + kDefaultNorms + ")")
      ->type_name("A,B,...")
      ->group("What varies");
  parser->add_option("--vary", arguments->vary, "any configuration key; every combination is a variant")
      ->type_name("KEY=A,B,...")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("What varies");
  parser
      ->add_option("--seconds", arguments->seconds,
                   "for all rounds, at the most as far as that can be (default 60)")
      ->type_name("S")
      ->group("How it is run");
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
