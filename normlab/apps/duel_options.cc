#include "normlab/apps/duel_options.h"

#include <algorithm>
#include <cmath>

#include "normlab/apps/bench.h"
#include "normlab/base/error.h"
#include "normlab/base/random.h"
#include "normlab/base/text.h"

namespace normlab::apps {
namespace {

std::vector<VariedKey> VariedKeys(const DuelArguments& arguments, const std::vector<Assignment>& assignments,
                                  const char* default_norms) {
  std::vector<VariedKey> keys;
  if (arguments.norms)
    keys.push_back(ParseVariedKey("norm_type=" + *arguments.norms));
  else if (arguments.vary.empty() &&
           std::ranges::find(assignments, "norm_type", &Assignment::key) == assignments.end())
    keys.push_back(ParseVariedKey(std::string("norm_type=") + default_norms));
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

}  // namespace

void AddDuelOptions(CLI::App& parser, DuelArguments& arguments) {
  AddRunOptions(parser, arguments.run, "", "");
  parser.get_option("--data")->required(false);
  for (const char* name : {"--out", "--json", "--steps", "--inside"})
    parser.remove_option(parser.get_option(name));
  parser
      .add_option("--norms", arguments.norms,
                  std::string("short for --vary norm_type=A,B,... (default ") + kDuelNorms + ")")
      ->type_name("A,B,...")
      ->group("What varies");
  parser.add_option("--vary", arguments.vary, "any configuration key; every combination is a variant")
      ->type_name("KEY=A,B,...")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("What varies");
  parser
      .add_option("--seconds", arguments.seconds,
                  "for all rounds, at the most as far as that can be (default 60)")
      ->type_name("S")
      ->group("How it is run");
}

Grid MakeDuelGrid(const DuelArguments& arguments, const char* default_norms) {
  const std::vector<Assignment> assignments = Assignments(arguments.run);
  Grid grid =
      MakeGrid(MakeConfig(arguments.run, assignments), VariedKeys(arguments, assignments, default_norms));
  for (const std::string& note : grid.notes) PrintNote(note);
  return grid;
}

DuelSettings MakeDuelSettings(const DuelArguments& arguments, double precision) {
  DuelSettings settings{.seconds = 60};
  if (precision > 0) settings.half_width = std::log1p(precision);
  if (arguments.seconds) settings.seconds = PositiveNumber("--seconds", *arguments.seconds);
  if (arguments.precision) settings.half_width = std::log1p(Percentage("--precision", *arguments.precision));
  return settings;
}

std::shared_ptr<const TokenSource> DuelTokens(const DuelArguments& arguments, const Grid& grid) {
  return arguments.run.data.empty() ? RandomTokens(grid) : ReadData(arguments.run);
}

std::string DuelHeader(const Machine& machine, const StepDuel& duel, size_t bytes, bool random) {
  const auto line = [](const char* label, const std::string& text) {
    return Wrap(text, 80, fmt::format("{:<10}", label), std::string(10, ' '));
  };
  const TrainConfig& config = duel.variants()[0].config;
  const size_t count = duel.variants().size();
  return line("machine", fmt::format("{}, {}, {} ({}; {})", machine.cpu, machine.isa,
                                     Counted(static_cast<size_t>(machine.threads), "thread"),
                                     machine.thread_runtime, ThreadSettingsText())) +
         line("step",
              fmt::format("{} of {} tokens; width {}, {}, vocabulary {}, {}{}",
                          Counted(static_cast<size_t>(config.batch), "sequence"), config.Window(),
                          config.model.emb_dim, Counted(static_cast<size_t>(config.model.n_layers), "layer"),
                          FormatCount(config.model.vocab_size), config.dtype,
                          random ? "; random tokens" : "")) +
         line("memory",
              fmt::format("about {}{}", FormatBytes(static_cast<double>(bytes)),
                          count > 1 ? fmt::format(" for {} side by side", Counted(count, "variant")) : ""));
}

std::string ProgressLine(const DuelProgress& progress) {
  return fmt::format("{} {}/{}  {} left", progress.pilot ? "pilot round" : "round", progress.rounds_done,
                     progress.rounds, FormatDuration(progress.remaining_s));
}

}  // namespace normlab::apps
