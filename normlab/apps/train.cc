// normlab train: one run as a folder.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "normlab/apps/busy.h"
#include "normlab/apps/command.h"
#include "normlab/apps/interrupt.h"
#include "normlab/apps/progress_line.h"
#include "normlab/apps/run_options.h"
#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/study/folder.h"
#include "normlab/study/text_table.h"
#include "normlab/train/run.h"

namespace normlab::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    "Examples:\n"
    "  normlab train --data text.txt --out run\n"
    "  normlab train --norm fused_rmsnorm --preset study --steps 500 \\\n"
    "                --data text.txt --out run\n"
    "  normlab train --config gpt2.json --set learning_rate=0.001 \\\n"
    "                --data a.txt b.txt --out run\n"
    "\n"
    "DIR holds run.json (what ran, and how it ended), metrics.jsonl (one line a step)\n"
    "and model.safetensors (the trained weights). A run that diverges is recorded,\n"
    "and exits 1.";

struct TrainArguments {
  RunArguments run;
  std::optional<std::string> norm, checkpoint_every;
  bool resume = false;
};

std::string Line(std::string_view label, const std::string& text) {
  return Wrap(text, 80, fmt::format("{:<10}", label), std::string(10, ' '));
}

// Count of tensors and parameters that decay, or do not.
std::string DecayGroup(const ParameterList& parameters, bool decays) {
  size_t tensors = 0;
  int64_t count = 0;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.decays != decays) continue;
    ++tensors;
    count += parameter.elements();
  }
  return fmt::format("{} with {} parameters", Counted(tensors, "tensor"), FormatCount(count));
}

std::string Banner(const Trainer& trainer, const Machine& machine, const std::string& memory) {
  const TrainConfig& config = trainer.config();
  const GptConfig& model = config.model;
  const ParameterList& parameters = trainer.model().parameters();
  const NormInfo& norm = InfoOf(model.Norm().kind);

  std::string text = Line(
      "model", fmt::format("{} parameters, {} of them in norms; vocabulary {}, width {}, {}, {}, context {}",
                           FormatCount(parameters.count()), FormatCount(parameters.norm_count()),
                           FormatCount(model.vocab_size), model.emb_dim,
                           Counted(static_cast<size_t>(model.n_layers), "layer"),
                           Counted(static_cast<size_t>(model.n_heads), "head"), model.context_length));
  text += Line(
      "norm",
      fmt::format("{}: {}; eps {:g}; {}, {}; computed by: {}", model.norm_type, norm.formula, model.NormEps(),
                  model.norm_position == "pre" ? "before each sublayer" : "after each residual sum",
                  model.final_norm ? "and before the head" : "none before the head",
                  Name(trainer.model().norm_implementation())));
  text += Summarize(trainer.tokens(), trainer.split(), config.batch, config.steps).ToString() + "\n";
  text += Line("optimizer",
               fmt::format("AdamW, beta {:g} and {:g}, eps {:g}; gradients clipped at {}", config.beta1,
                           config.beta2, config.adam_eps,
                           config.grad_clip > 0 ? fmt::format("norm {:g}", config.grad_clip) : "no norm"));
  text +=
      Line("decay",
           fmt::format("{:g} on {}: matrices and embeddings; none on {}: gains, biases and other 1-D tensors",
                       config.weight_decay, DecayGroup(parameters, true), DecayGroup(parameters, false)));
  text += Line("rate", fmt::format("up to {:g} in {}, then a cosine down to {:g}", config.learning_rate,
                                   Counted(static_cast<size_t>(config.WarmupSteps()), "step"),
                                   config.MinLearningRate()));
  text += Line("machine", fmt::format("{}; {}, {} ({}), oneDNN {}", machine.cpu, machine.isa,
                                      Counted(static_cast<size_t>(machine.threads), "thread"),
                                      machine.thread_runtime, machine.onednn));
  return text + Line("memory", memory);
}

std::string Summary(const RunRecord& record, const fs::path& folder) {
  std::string text =
      Line("trained",
           fmt::format("{} in {}: {} tokens/s{}", Counted(static_cast<size_t>(record.steps_done), "step"),
                       FormatDuration(record.time_s), Rounded(record.tokens_per_s.value_or(0)),
                       record.products_share
                           ? fmt::format("; matrix products alone would take {:.0f}% of the time",
                                         100 * *record.products_share)
                           : ""));
  if (record.train_loss)
    text += Line("loss", fmt::format("{:.4f} nats in training, mean of the last tenth of the steps",
                                     *record.train_loss));
  if (record.test_loss)
    text += Line("test loss", fmt::format("{:.4f} nats over {}", *record.test_loss,
                                          Counted(record.test_block_losses.size(), "held-out window")));
  text += Line("memory", fmt::format("{} at the most", FormatBytes(static_cast<double>(record.peak_bytes))));
  return text + Line("written", Printable(folder.string()) + ": run.json, metrics.jsonl, model.safetensors");
}

// A finished run is never written over.
void RequireFree(const fs::path& folder) {
  const PathKind kind = KindOf(folder);
  if (kind == PathKind::kNothing) return;
  if (kind == PathKind::kOther) Fail("\"{}\" is a file; --out names a folder", folder.string());
  if (KindOf(folder / "study.json") != PathKind::kNothing)
    Fail("\"{}\" holds a study of `normlab compare`; choose another --out for a run", folder.string());
  if (const auto record = ReadRunRecord(folder)) {
    if (record->status == RunStatus::kDone || record->status == RunStatus::kDiverged)
      Fail("\"{}\" holds a finished run ({}); choose another --out, or delete the folder to run it again",
           folder.string(), Name(record->status));
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() == fs::path(FolderLock::kFileName) || IsTemporary(entry.path())) continue;
    Fail("\"{}\" is not empty and holds no run; choose a new folder for --out", folder.string());
  }
}

int Train(const TrainArguments& arguments, const Environment& environment) {
  if (arguments.resume)
    throw UsageError("--resume is not there yet: a run that was interrupted starts again from step 1");
  if (arguments.checkpoint_every)
    throw UsageError("--checkpoint-every is not there yet: the weights are saved once, at the end");

  std::vector<Assignment> assignments = Assignments(arguments.run);
  if (arguments.norm) {
    for (const Assignment& assignment : assignments)
      if (assignment.key == "norm_type")
        throw UsageError("norm_type is set twice, by --set and by --norm; set it once");
    assignments.push_back({"norm_type", "--norm", "norm_type=" + *arguments.norm});
  }
  const TrainConfig config = MakeConfig(arguments.run, assignments);
  config.Validate();
  const int threads = Threads(arguments.run);
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = threads});
  const Machine machine = DescribeMachine(*device);
  const std::shared_ptr<const TokenSource> tokens = ReadData(arguments.run);
  CheckRun(config, *tokens, *device);
  const auto available = MemoryForRuns(static_cast<uint64_t>(tokens->size()));
  const MemoryPlan plan = CheckMemory(config, *tokens, threads, /*save_model=*/true, available);

  const fs::path folder = arguments.run.out;
  RequireFree(folder);
  CreateDirectories(folder);
  const FolderLock lock(folder);
  RequireFree(folder);  // again: another start may have ended in between
  if (ReadRunRecord(folder))
    PrintNote(
        fmt::format("\"{}\" holds a run that did not finish: it starts again from step 1", folder.string()));
  const InterruptGuard interrupt;
  if (const auto note = BusyNote(environment.busy_cpus)) PrintNote(*note);

  const auto say = [&](const std::string& text) {
    arguments.run.json ? environment.progress.write(text) : Print(text);
  };
  const std::string memory = fmt::format(
      "{}: {} of weights, gradients and moments, {} of activations", MemorySentence(plan, available),
      FormatBytes(static_cast<double>(plan.weights + plan.gradients + plan.moments)),
      FormatBytes(static_cast<double>(plan.activations)));
  Progress progress(environment.progress);
  progress.Update("preparing");
  LossWatch watch;
  const RunRecord record = RunTraining(
      config, tokens,
      {.folder = folder,
       .threads = threads,
       .on_progress = [&](const RunProgress& now) { watch.See(now), progress.Update(ProgressLine(now)); },
       .on_start = [&](const Trainer& trainer) { progress.Finish(), say(Banner(trainer, machine, memory)); },
       .stop = interrupt.stop()});
  progress.Finish();

  if (arguments.run.json) Print(DumpJson(ToJson(record), 2) + "\n");
  switch (record.status) {
    case RunStatus::kDone:
      say(Summary(record, folder));
      if (const auto advice = watch.Advice(record)) PrintNote(*advice);
      return kExitGood;
    case RunStatus::kInterrupted:
      environment.progress.write(
          fmt::format("normlab: interrupted after {} of {} steps; the record is in \"{}\". The same command "
                      "starts again.\n",
                      record.steps_done, config.steps, folder.string()));
      return kExitInterrupted;
    default:
      Fail(
          "diverged: {}; the record is in \"{}\"; a smaller learning_rate, a longer warmup_fraction or a "
          "norm may help",
          record.divergence ? record.divergence->ToString() : "unknown", folder.string());
  }
}

}  // namespace

Command AddTrain(CLI::App& program) {
  CLI::App* parser = program.add_subcommand("train", "Train one model.");
  auto arguments = std::make_shared<TrainArguments>();
  parser->add_option("--norm", arguments->norm, "short for --set norm_type=NAME (`normlab list norms`)")
      ->type_name("NAME")
      ->group("What is trained");
  AddRunOptions(*parser, arguments->run, "the folder of the run",
                "prints run.json at the end, and nothing else");
  parser->add_flag("--resume", arguments->resume, "not there yet")->group("How it is run");
  parser->add_option("--checkpoint-every", arguments->checkpoint_every, "not there yet")
      ->type_name("N")
      ->group("How it is run");
  parser->footer(kFooter);
  return {.parser = parser,
          .run = [arguments](const Environment& environment) { return Train(*arguments, environment); },
          .trains = true};
}

}  // namespace normlab::apps
