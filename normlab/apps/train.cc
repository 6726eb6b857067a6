// normlab train: one run as a folder.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "normlab/apps/busy.h"
#include "normlab/apps/checkpoint_options.h"
#include "normlab/apps/command.h"
#include "normlab/apps/interrupt.h"
#include "normlab/apps/progress_line.h"
#include "normlab/apps/resume.h"
#include "normlab/apps/run_options.h"
#include "normlab/base/error.h"
#include "normlab/base/files.h"
#include "normlab/base/folder_lock.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/cpu/stream.h"
#include "normlab/study/insides.h"
#include "normlab/study/text_table.h"
#include "normlab/study/wording.h"
#include "normlab/train/checkpoint.h"
#include "normlab/train/run.h"
#include "normlab/train/run_folder.h"

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
    "  normlab train --resume --out run\n"
    "      goes on after Ctrl-C, a crash or kill -9, with the bits of a run that\n"
    "      never stopped; configuration and data are those of the run\n"
    "  normlab train --data text.txt --out run --inside 50\n"
    "      looks inside every 50 steps: docs/insides.md says what it finds there\n"
    "\n"
    "DIR holds run.json (what ran, and how it ended), metrics.jsonl (one line a\n"
    "step), inside.jsonl (what stood inside), model.safetensors (the trained weights)\n"
    "and, until the run is done, checkpoints. A run that diverges is recorded, leaves\n"
    "its last good weights as a checkpoint, and exits 1. Ctrl-C and SIGTERM write a\n"
    "checkpoint and end.";

struct TrainArguments {
  RunArguments run;
  CheckpointArguments checkpoints;
  std::optional<std::string> norm, initial_weights;
  bool profile = false;
  bool resuming = false, from_preset = false;  // whether the options were given
  std::string checkpoint;                      // of --resume; empty: the latest
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

// "; eps 1e-05; without its bias": the options that this norm reads.
std::string NormOptions(const NormSpec& spec, int64_t width) {
  const NormInfo& info = InfoOf(spec.kind);
  std::string text;
  if (info.uses_fraction)
    text += fmt::format("; first columns: {} of {}", PartialCols(spec.fraction, width), width);
  if (info.uses_eps) text += fmt::format("; eps {:g}", spec.eps);
  if (info.has_alpha) text += fmt::format("; alpha starts at {:g}", spec.alpha_init);
  if (info.has_gain && !spec.gain) text += "; without its gain";
  if (info.has_bias && !spec.bias) text += "; without its bias";
  if (info.has_gain && spec.gain && spec.weight_offset != 0)
    text += fmt::format("; gains stored as {:g} + g", spec.weight_offset);
  return text;
}

// An option that was set for nothing is said, since nothing else in the output would tell.
void NoteUnusedNormOptions(const TrainConfig& config) {
  for (const UnusedOption& option : UnusedNormOptions(config))
    PrintNote(fmt::format("{} = {} changes nothing: {}", option.key, DumpJson(option.value), option.reason));
}

std::string Banner(const Trainer& trainer, const Machine& machine, const std::string& memory) {
  const TrainConfig& config = trainer.config();
  const GptConfig& model = config.model;
  const ParameterList& parameters = trainer.model().parameters();
  const NormInfo& norm = InfoOf(model.Norm().kind);

  std::string text = Line(
      "model", fmt::format("{} parameters, {} of them in norms; vocabulary {}, width {}, {}, {}, context {}",
                           FormatCount(parameters.count()), FormatCount(parameters.norm_count()),
                           FormatCount(model.vocab_size), model.emb_dim, Counted(model.n_layers, "layer"),
                           Counted(model.n_heads, "head"), model.context_length));
  text += Line("norm",
               fmt::format("{}: {}{}; {}, {}; computed by: {}", model.norm_type, norm.formula,
                           NormOptions(model.Norm(), model.emb_dim),
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
                                   Counted(config.WarmupSteps(), "step"), config.MinLearningRate()));
  if (config.dtype == "bf16")
    text +=
        Line("types", fmt::format("matrix products of bf16 operands with fp32 sums, {}; residual stream {}; "
                                  "weights, gradients and moments f32",
                                  machine.bf16_products == "emulated"
                                      ? "bf16 emulated: operands widened to fp32, panel by panel"
                                      : "by " + machine.bf16_products,
                                  config.residual_dtype));
  text += Line("machine",
               fmt::format("{}; {}, {} ({}), oneDNN {}", machine.cpu, machine.isa,
                           Counted(machine.threads, "thread"), machine.thread_runtime, machine.onednn));
  return text + Line("memory", memory);
}

// Seconds by operation. What is left over went by between them: batches, and the host's own work.
std::string ProfileTable(const RunRecord& record) {
  TextTable table({{"operation"}, {"calls a step"}, {"ms a step"}, {"share"}});
  const double steps = static_cast<double>(record.steps_done);
  double sum = 0;
  const auto add = [&](const std::string& name, const std::string& calls, double seconds) {
    table.AddRow({name, calls, fmt::format("{:.3f}", 1e3 * seconds / steps),
                  fmt::format("{:.1f}%", 100 * seconds / record.time_s)});
  };
  for (const OperationTime& time : record.profile) {
    add(time.name, fmt::format("{:.3g}", static_cast<double>(time.calls) / steps), time.seconds);
    sum += time.seconds;
  }
  add("between operations", "", record.time_s - sum);
  add("step", "", record.time_s);
  return "\n" + table.Render(80) + "\n";
}

std::string BoundSentence(const StepBound& bound, int64_t tokens) {
  std::string text = fmt::format("{:.1f} ms a step for matrix products, each alone in its fastest form",
                                 1e3 * *bound.products_s);
  if (!bound.seconds()) return text;
  return text + fmt::format(
                    "; {:.1f} ms for {} of weights and activations at {:.1f} GB/s, the speed of a copy; "
                    "together {} tokens/s at the most",
                    1e3 * *bound.bytes_s(), FormatBytes(bound.bytes), *bound.copy_bytes_per_s / 1e9,
                    Rounded(static_cast<double>(tokens) / *bound.seconds()));
}

std::string Summary(const RunRecord& record, const fs::path& folder) {
  std::string text = Line(
      "trained", fmt::format("{} in {}: {} tokens/s{}", Counted(record.steps_done, "step"),
                             FormatDuration(record.time_s), Rounded(record.tokens_per_s.value_or(0)),
                             record.products_share
                                 ? fmt::format("; matrix products alone would take {:.0f}% of the time{}",
                                               100 * *record.products_share,
                                               record.bound_share
                                                   ? fmt::format(", with the bytes that must move {:.0f}%",
                                                                 100 * *record.bound_share)
                                                   : "")
                                 : ""));
  if (!record.profile.empty() && record.steps_done > 0) text += ProfileTable(record);
  if (record.train_loss)
    text += Line("loss", fmt::format("{:.4f} nats in training, mean of the last tenth of the steps",
                                     *record.train_loss));
  if (record.test_loss)
    text += Line("test loss", fmt::format("{:.4f} nats over {}", *record.test_loss,
                                          Counted(record.test_block_losses.size(), "held-out window")));
  if (const auto share = MedianMeanShare(record))
    text +=
        Line("inside", fmt::format("the mean of a row holds {:.3g}% of its mean square at the norms' "
                                   "inputs (median over sites); {} of the time of training went into looking",
                                   100 * *share, FormatPercent(record.inside_time_s / record.time_s)));
  constexpr size_t kShownSpikes = 3;
  for (size_t i = 0; i < std::min(kShownSpikes, record.spikes.size()); ++i)
    text += Line("spike", Describe(record.spikes[i]));
  if (record.spikes.size() > kShownSpikes)
    text += Line(
        "", fmt::format("and {}, in run.json", Counted(record.spikes.size() - kShownSpikes, "more spike")));
  text += Line("memory", fmt::format("{} at the most", FormatBytes(static_cast<double>(record.peak_bytes))));
  std::string written;
  for (const char* name : {kRecordFile, kMetricsFile, kInsideFile, kModelFile})
    if (fs::exists(folder / name)) written += (written.empty() ? "" : ", ") + std::string(name);
  return text + Line("written", Printable(folder.string()) + ": " + written);
}

bool HasEnded(const RunRecord& record) {
  return record.status == RunStatus::kDone || record.status == RunStatus::kDiverged;
}

// The cells of a study are locked and compared as one: nothing but `compare` runs in them.
void RequireNoCell(const fs::path& folder) {
  std::error_code error;
  const fs::path cell = fs::weakly_canonical(folder, error);
  const fs::path study = cell.parent_path().parent_path().parent_path();
  if (error || !fs::exists(study / "study.json", error)) return;
  if (cell.parent_path().parent_path().filename() != "runs") return;
  Fail(
      "\"{}\" is the place of a cell of the study in \"{}\"; the same `normlab compare` goes on with it; "
      "choose "
      "another --out for a run",
      folder.string(), study.string());
}

// A finished run is never written over.
void RequireFree(const fs::path& folder) {
  const PathKind kind = KindOf(folder);
  if (kind == PathKind::kNothing) return;
  if (kind == PathKind::kOther) Fail("\"{}\" is a file; --out names a folder", folder.string());
  if (KindOf(folder / "study.json") != PathKind::kNothing)
    Fail("\"{}\" holds a study of `normlab compare`; choose another --out for a run", folder.string());
  if (const auto record = ReadRunRecord(folder)) {
    if (HasEnded(*record))
      Fail("\"{}\" holds a finished run ({}); choose another --out, or delete the folder to run it again",
           folder.string(), Name(record->status));
    const CheckpointList list = ListCheckpoints(folder);
    if (!list.complete.empty() || !list.incomplete.empty())
      Fail(
          "\"{}\" holds an unfinished run with checkpoints; --resume goes on with it; to start anew, choose "
          "another "
          "--out, or delete the folder",
          folder.string());
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() == fs::path(FolderLock::kFileName) || IsTemporary(entry.path())) continue;
    Fail("\"{}\" is not empty and holds no run; choose a new folder for --out", folder.string());
  }
}

// A word that a shell reads back as it is.
std::string ShellWord(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+=,:@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// Where a run stands that was stopped, and how to go on.
std::string Interrupted(const RunRecord& record, const TrainConfig& config, const fs::path& folder) {
  std::string text =
      fmt::format("normlab: interrupted after {} of {} steps; ", record.steps_done, config.steps);
  const CheckpointList list = ListCheckpoints(folder);
  if (list.complete.empty())
    return text + fmt::format(
                      "the record is in \"{}\". There is no checkpoint yet: the same command starts again.\n",
                      Printable(folder.string()));
  return text + fmt::format("the latest checkpoint is \"{}\". To go on: normlab train --resume --out {}\n",
                            Printable(list.complete.back().string()), ShellWord(folder.string()));
}

[[noreturn]] void FailDiverged(const RunRecord& record, const fs::path& folder) {
  const CheckpointList list = ListCheckpoints(folder);
  Fail(
      "diverged: {}; the record is in \"{}\"{}; a smaller learning_rate, a longer warmup_fraction or a norm "
      "may help",
      record.divergence ? record.divergence->ToString() : "unknown", folder.string(),
      list.complete.empty()
          ? ""
          : fmt::format(", the last good weights in \"{}\" (--init-weights starts from them)",
                        (list.complete.back() / kModelFile).string()));
}

// What a run that has ended has to say.
int Outcome(const TrainArguments& arguments, const RunRecord& record) {
  const fs::path folder = arguments.run.out;
  if (arguments.run.json) Print(DumpJson(ToJson(record), 2) + "\n");
  if (record.status == RunStatus::kDiverged) FailDiverged(record, folder);
  if (!arguments.run.json) Print(Summary(record, folder));
  if (!record.error.empty())  // its weights could not be saved, and no checkpoint is left to do it from
    Fail("the run in \"{}\" is done, but left no weights: {}; to have them, run it again with another --out",
         folder.string(), record.error);
  return kExitGood;
}

std::vector<Assignment> TrainAssignments(const TrainArguments& arguments) {
  std::vector<Assignment> assignments = Assignments(arguments.run);
  if (!arguments.norm) return assignments;
  for (const Assignment& assignment : assignments)
    if (assignment.key == "norm_type")
      throw UsageError("norm_type is set twice, by --set and by --norm; set it once");
  assignments.push_back({"norm_type", "--norm", "norm_type=" + *arguments.norm});
  return assignments;
}

int Train(const TrainArguments& arguments, const Environment& environment) {
  const std::vector<Assignment> assignments = TrainAssignments(arguments);
  const fs::path folder = arguments.run.out;
  if (arguments.resuming && arguments.initial_weights)
    throw UsageError(
        "--resume goes on with the weights of the run, --init-weights starts a new one; give one of them");
  RunOptions options{.folder = folder,
                     .checkpoints = MakeCheckpointPolicy(arguments.checkpoints),
                     .profile = arguments.profile,
                     .inside_every = InsideEvery(arguments.run)};

  std::optional<Resumption> resumed;
  const auto find = [&](const std::function<void(const std::string&)>& note) {
    if (arguments.resuming) resumed = FindResumption(folder, arguments.checkpoint, note);
  };
  // What a run that has ended has to say; nothing where it has not. Such a run is shown and never written.
  const auto shown_if_ended = [&]() -> std::optional<int> {
    if (!resumed || !HasEnded(resumed->record)) return std::nullopt;
    PrintNote(fmt::format("the run in \"{}\" has ended ({}): there is nothing to resume", folder.string(),
                          Name(resumed->record.status)));
    return Outcome(arguments, resumed->record);
  };
  find({});
  if (const auto code = shown_if_ended()) return *code;
  RequireNoCell(folder);
  if (arguments.run.data.empty() && !resumed)
    throw UsageError("--data is required; see `normlab train --help`");

  const TrainConfig config =
      resumed ? ResumedConfig(arguments.run, assignments, arguments.from_preset, resumed->record)
              : MakeConfig(arguments.run, assignments);
  config.Validate();
  options.threads = Threads(arguments.run);
  const std::unique_ptr<Device> device = MakeCpuDevice({.threads = options.threads});
  const Machine machine = DescribeMachine(*device);
  const std::shared_ptr<const TokenSource> tokens =
      resumed ? ResumedData(arguments.run, resumed->record) : ReadData(arguments.run);
  CheckRun(config, *tokens, *device);
  NoteUnusedNormOptions(config);
  const auto available = MemoryForRuns(static_cast<uint64_t>(tokens->size()));
  const MemoryPlan plan = CheckMemory(config, *tokens, options.threads, available);

  if (!resumed) RequireFree(folder);
  CreateDirectories(folder);
  const FolderLock lock(folder, "normlab train");
  find(PrintNote);  // again: another start may have ended in between
  if (const auto code = shown_if_ended()) return *code;
  if (!resumed) RequireFree(folder);
  if (resumed) options.resume_from = resumed->checkpoint;
  if (resumed && !resumed->checkpoint) options.initial_weights = ResumedWeights(resumed->record);
  if (arguments.initial_weights) options.initial_weights = *arguments.initial_weights;
  if (!options.resume_from && (arguments.resuming || ReadRunRecord(folder)))
    PrintNote(
        fmt::format("\"{}\" holds a run that did not reach its first checkpoint: it starts again from step 1",
                    folder.string()));
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
  progress.Update("preparing, and timing a copy of memory");
  // Before the run takes its memory, and over no more than that: what the run needs at the most stays true.
  options.copy_bytes_per_s =
      MeasureCopySpeed(options.threads, std::min(ColdBytes(), plan.device_bytes())).bytes_per_s;
  LossWatch watch;
  options.on_progress = [&](const RunProgress& now) { watch.See(now), progress.Update(ProgressLine(now)); };
  options.on_start = [&](const Trainer& trainer) {
    progress.Finish();
    say(Banner(trainer, machine, memory));
    if (options.resume_from)
      say(Line("resumed", fmt::format("after {} of {} steps, from {}", trainer.next_step(), config.steps,
                                      Printable(options.resume_from->string()))));
  };
  options.on_bound = [&](const StepBound& bound) {
    progress.Finish();
    say(Line("bound", BoundSentence(bound, config.TokensPerStep())));
  };
  options.on_note = [&](const std::string& note) { progress.Message("normlab: note: " + note); };
  options.stop = interrupt.stop();
  const RunRecord record = RunTraining(config, tokens, options);
  progress.Finish();

  if (record.status == RunStatus::kInterrupted) {
    if (arguments.run.json) Print(DumpJson(ToJson(record), 2) + "\n");
    environment.progress.write(Interrupted(record, config, folder));
    return kExitInterrupted;
  }
  const int code = Outcome(arguments, record);
  if (arguments.run.json) environment.progress.write(Summary(record, folder));
  if (const auto advice = watch.Advice(record)) PrintNote(*advice);
  return code;
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
  parser->get_option("--data")->required(false);  // a resumed run knows it
  CLI::Option* resume =
      parser
          ->add_option("--resume", arguments->checkpoint,
                       "goes on with the run in --out, from its latest checkpoint or the one named")
          ->expected(0, 1)
          ->type_name("[CHECKPOINT]")
          ->group("How it is run");
  AddCheckpointOptions(*parser, arguments->checkpoints);
  parser
      ->add_option("--init-weights", arguments->initial_weights,
                   "starts from the weights of a safetensors file, with a fresh optimizer")
      ->type_name("FILE")
      ->group("What is trained");
  parser->add_flag("--profile", arguments->profile, "shows at the end what each kind of operation took")
      ->group("How it is run");
  parser->footer(kFooter);
  return {.parser = parser,
          .run =
              [arguments, parser, resume](const Environment& environment) {
                arguments->resuming = resume->count() > 0;
                arguments->from_preset = parser->count("--preset") + parser->count("--config") > 0;
                return Train(*arguments, environment);
              },
          .trains = true};
}

}  // namespace normlab::apps
