// normlab bench kernels: the norm layer alone, every implementation beside a stream of the same reads and
// writes.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "normlab/apps/bench.h"
#include "normlab/apps/bench_norm_report.h"
#include "normlab/apps/bench_norm_run.h"
#include "normlab/apps/busy.h"
#include "normlab/apps/interrupt.h"
#include "normlab/apps/run_options.h"
#include "normlab/base/error.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/cpu/stream.h"
#include "normlab/study/text_table.h"
#include "normlab/train/machine.h"

namespace normlab::apps {
namespace {

constexpr int kSchemaVersion = 1;

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab bench kernels --quick\n"
    "      one shape, some seconds\n"
    "  normlab bench kernels --norms rmsnorm --dtypes f32 --shapes 2048x768,1x4096\n"
    "  normlab bench kernels --norms fused_layernorm --sweep\n"
    "      widths that are odd, or just beyond a power of two: is one much slower?\n"
    "  NORMLAB_ISA=avx2 normlab bench kernels --caches cold --json speeds.json\n"
    "\n"
    "GB/s: each input read once and each output written once, over the median time.\n"
    "share: the time of a plain stream with the same reads and writes, over the same\n"
    "buffers, in turns with the kernel. For one row: how many times a memcpy of it.\n"
    "call us: the same call on one row of 16 elements: what it costs to ask at all.\n"
    "Cold: every call finds other buffers, more than the caches hold.";

struct KernelsArguments {
  NormCaseRequest cases;
  std::optional<std::string> norms, dtypes, shapes, ops, caches, sweep, seconds, precision, threads, json;
  bool sweeps = false, quick = false;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

NormCaseRequest RequestOf(const KernelsArguments& arguments) {
  NormCaseRequest request;
  if (arguments.quick)
    request = {.dtypes = "f32", .shapes = "512x256,1x4096", .ops = request.ops, .caches = "warm"};
  if (arguments.sweeps) request.ops = "forward,backward", request.dtypes = "f32", request.caches = "warm";
  const auto take = [](std::string& into, const std::optional<std::string>& given) {
    if (given) into = *given;
  };
  take(request.norms, arguments.norms);
  take(request.dtypes, arguments.dtypes);
  take(request.shapes, arguments.shapes);
  take(request.ops, arguments.ops);
  take(request.caches, arguments.caches);
  if (!arguments.sweeps) return request;
  if (arguments.shapes) throw UsageError("--sweep takes widths and --shapes takes shapes; give one of them");
  request.shapes.clear();
  for (const NormShape& shape :
       SweepShapes(ParseWidths(arguments.sweep->empty() ? kSweepWidths : *arguments.sweep)))
    request.shapes += (request.shapes.empty() ? "" : ",") + Name(shape);
  return request;
}

NormBenchSettings SettingsOf(const KernelsArguments& arguments) {
  NormBenchSettings settings;
  if (arguments.quick) settings.seconds = 0.1, settings.batches = 4, settings.pilot_rounds = 5;
  if (arguments.seconds) settings.seconds = PositiveNumber("--seconds", *arguments.seconds);
  if (arguments.precision) settings.half_width = Percentage("--precision", *arguments.precision);
  settings.cold_bytes = ColdBytes();
  // Half of what is left: the rest of the machine is measured as it is, not as it swaps.
  const auto available = MemoryForRuns();
  settings.memory_bytes = available ? static_cast<size_t>(available->bytes / 2) : 4 * settings.cold_bytes;
  return settings;
}

std::string Header(const Machine& machine, const NormBench& bench, const NormBenchSettings& settings,
                   const std::vector<NormCase>& cases) {
  const auto line = [](const char* label, const std::string& text) {
    return Wrap(text, 80, fmt::format("{:<10}", label), std::string(10, ' '));
  };
  const bool cold = std::ranges::any_of(cases, &NormCase::cold);
  std::string text = line("machine", fmt::format("{}, {}, {} ({}; {})", machine.cpu, machine.isa,
                                                 Counted(static_cast<size_t>(machine.threads), "thread"),
                                                 machine.thread_runtime, ThreadSettingsText()));
  const auto cache = LastLevelCacheBytes();
  std::string memory = fmt::format("last-level cache {}; {} of buffers",
                                   cache ? FormatBytes(static_cast<double>(*cache)) : "unknown",
                                   FormatBytes(static_cast<double>(bench.pool_bytes())));
  if (cold)
    memory +=
        fmt::format("; cold calls rotate over {}", FormatBytes(static_cast<double>(bench.cold_bytes())));
  if (cold && bench.cold_bytes() < settings.cold_bytes)
    memory += fmt::format(", not over the {} that no cache holds: no more memory is there",
                          FormatBytes(static_cast<double>(settings.cold_bytes)));
  text += line("memory", memory);
  return text +
         line("overhead", fmt::format("an empty parallel region takes {:.2f} us", 1e6 * bench.fork_s()));
}

int BenchKernels(const KernelsArguments& arguments, const Environment& environment) {
  const NormCaseRequest request = RequestOf(arguments);
  const std::vector<NormCase> cases = NormCases(request);
  const NormBenchSettings settings = SettingsOf(arguments);
  RunArguments threads;
  threads.threads = arguments.threads;
  const auto device = MakeCpuDevice({.threads = Threads(threads)});
  StartJson(arguments.json);
  const InterruptGuard interrupt;
  NormBench bench(*device, settings, cases);
  const Machine machine = DescribeMachine(*device);
  const std::string header = Header(machine, bench, settings, cases);
  const bool json_only = arguments.json == "-";
  json_only ? environment.progress.write(header) : Print(header + "\n");
  if (const auto note = BusyNote(environment.busy_cpus)) PrintNote(*note);

  Progress progress(environment.progress);
  std::vector<NormCaseResult> results;
  const double start = Now();
  for (const NormCase& norm_case : cases) {
    if (*interrupt.stop()) break;
    const size_t done = results.size();
    const auto show = [&](const DuelProgress& duel) {
      const double spent = Now() - start;
      const double others = done == 0 ? (settings.seconds + 0.3) * static_cast<double>(cases.size() - 1)
                                      : spent / (static_cast<double>(done) + 0.5) *
                                            static_cast<double>(cases.size() - done - 1);
      progress.Update(fmt::format("case {}/{}  {} left  {} {} {} {} {}", done + 1, cases.size(),
                                  FormatDuration(others + duel.remaining_s), Name(norm_case.norm),
                                  Name(norm_case.types), Name(norm_case.shape), Name(norm_case.op),
                                  norm_case.cold ? "cold" : "warm"));
    };
    show({});
    results.push_back(bench.Run(norm_case, {.on_progress = show, .stop = interrupt.stop()}));
  }
  progress.Clear();
  progress.Finish();

  const bool interrupted = *interrupt.stop();
  const auto text_of = [](const std::optional<std::string>& text) { return text ? Json(*text) : Json(); };
  Json json = {{"schema_version", kSchemaVersion},
               {"kind", "bench_kernels"},
               {"status", interrupted ? "interrupted" : "done"},
               {"machine", ToJson(machine)},
               {"settings",
                {{"norms", request.norms},
                 {"dtypes", request.dtypes},
                 {"shapes", request.shapes},
                 {"ops", request.ops},
                 {"caches", request.caches},
                 {"seconds_per_case", settings.seconds},
                 {"precision", settings.half_width},
                 {"batches", settings.batches},
                 {"seed", settings.seed},
                 {"environment", ThreadSettings()},
                 {"isa_limit",
                  text_of(std::getenv("NORMLAB_ISA") ? std::optional<std::string>(std::getenv("NORMLAB_ISA"))
                                                     : std::nullopt)}}},
               {"busy_cpus", ToJson(environment.busy_cpus)},
               {"last_level_cache_bytes", LastLevelCacheBytes() ? Json(*LastLevelCacheBytes()) : Json()},
               {"cold_bytes", bench.cold_bytes()},
               {"fork_s", ToJson(bench.fork_s())},
               {"cases", Json::array()},
               {"sweep", arguments.sweeps ? SweepJson(results) : Json()}};
  for (const NormCaseResult& result : results) json["cases"].push_back(CaseJson(result));
  if (!WriteJson(arguments.json, json)) Print(arguments.sweeps ? SweepText(results) : NormBenchText(results));
  if (!interrupted) return kExitGood;
  environment.progress.write(
      fmt::format("normlab: interrupted; {} of {} cases are measured\n", results.size(), cases.size()));
  return kExitInterrupted;
}

}  // namespace

Command AddBenchKernels(CLI::App& bench) {
  CLI::App* parser = bench.add_subcommand("kernels", "The norm layer alone, beside a stream of memory.");
  auto arguments = std::make_shared<KernelsArguments>();
  const NormCaseRequest defaults;
  const auto add = [&](const char* name, std::optional<std::string>& into, const std::string& text,
                       const char* type, const char* group) {
    parser->add_option(name, into, text)->type_name(type)->group(group);
  };
  const char* what = "What is measured";
  add("--norms", arguments->norms,
      "with every implementation, or one: fused_rmsnorm; `all`: every norm (default " + defaults.norms + ")",
      "NAMES", what);
  add("--dtypes", arguments->dtypes,
      "of rows: f32, bf16, f16; mixed: fp32 residual stream, bf16 branches (default all)", "TYPES", what);
  add("--shapes", arguments->shapes, "ROWSxCOLS,... (default " + defaults.shapes + ")", "SHAPES", what);
  add("--ops", arguments->ops,
      "forward; residual: addition and norm; backward; accumulate: added to dx (default all)", "NAMES", what);
  add("--caches", arguments->caches,
      "warm: the same buffers again; cold: others for every call (default both)", "NAMES", what);
  CLI::Option* sweep =
      parser
          ->add_option(
              "--sweep", arguments->sweep,
              std::string("speeds over widths, and which fall below 60% of a neighbour's (default ") +
                  kSweepWidths + ")")
          ->expected(0, 1)
          ->type_name("[WIDTHS]")
          ->group(what);
  parser->add_flag("--quick", arguments->quick, "few cases and rounds: does it run at all?")->group(what);
  const char* how = "How it is measured";
  add("--seconds", arguments->seconds, "of each case, at the most (default 0.5)", "S", how);
  add("--precision", arguments->precision, "half a width of a share's interval that is aimed at (default 2)",
      "PERCENT", how);
  add("--threads", arguments->threads, "default: what the CPU affinity and the cgroup allow", "N", how);
  add("--json", arguments->json, "writes everything to a file; -: to standard output, in place of the table",
      "FILE", how);
  parser->footer(kFooter);
  return {.parser = parser,
          .run =
              [arguments, sweep](const Environment& environment) {
                arguments->sweeps = sweep->count() > 0;
                if (!arguments->sweep) arguments->sweep = "";
                return BenchKernels(*arguments, environment);
              },
          .trains = true,
          .spins = true};
}

}  // namespace normlab::apps
