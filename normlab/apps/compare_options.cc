#include "normlab/apps/compare_options.h"

#include <algorithm>

#include "normlab/base/error.h"

namespace normlab::apps {
namespace {

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
    "  normlab compare --norms layernorm,rmsnorm --vary learning_rate=0.001,0.002 \\\n"
    "                  --within learning_rate --jobs 2 --data text.txt --out grid2\n"
    "      the norms, separately at each rate; two cells at a time\n"
    "  normlab compare --aa --norms rmsnorm --seeds 8 --data text.txt --out aa\n"
    "      rmsnorm against itself: does the method find a difference where none is?\n"
    "  normlab compare --status study\n"
    "      what is done, failed and missing, who works on it, and for how long still\n"
    "\n"
    "DIR holds study.json (what was asked), report.html (open it in a browser, also\n"
    "while the study runs), results.json, results.csv, and a folder\n"
    "runs/VARIANT/seed-N for each run. A second start of the same command runs only\n"
    "what is not finished, and goes on inside a run that was cut off, from its latest\n"
    "checkpoint (every 10 minutes, and at Ctrl-C); a finished study is shown at once.\n"
    "\n"
    "Verdicts: losses are paired by seed; `lower loss` or `higher loss` needs a\n"
    "paired t interval without 0, simultaneous over all variants and declared looks;\n"
    "`equivalent` means smaller than --margin (0: nothing is). One or two seeds give\n"
    "no verdict, and `undecided` is no evidence of sameness: more seeds may decide.\n"
    "Speed is judged from a duel, for which all variants are in memory at one time\n"
    "(`normlab duel --help` tells more); it is kept in duel.json, and run once.";

}  // namespace

void AddCompareOptions(CLI::App& parser, CompareArguments& arguments) {
  const std::string what = "What is compared";
  parser.add_option("--norms", arguments.norms, "short for --vary norm_type=A,B,... (`normlab list norms`)")
      ->type_name("A,B,...")
      ->group(what);
  parser
      .add_option("--vary", arguments.vary,
                  "a configuration key and its values; repeated: every combination is a variant")
      ->type_name("KEY=V1,V2")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(what);
  parser.add_option("--seeds", arguments.seeds, "seeds 1 to N (default 5)")->type_name("N")->group(what);
  parser.add_option("--seed-list", arguments.seed_list, "these seeds")->type_name("1,2,7")->group(what);
  parser
      .add_option("--baseline", arguments.baseline,
                  "the variant that others are compared with (default the first)")
      ->type_name("NAME")
      ->group(what);
  parser
      .add_option("--within", arguments.within,
                  "compares only variants that share the values of these varied keys: each group has the "
                  "baseline's other values as its own baseline")
      ->type_name("KEY,...")
      ->group(what);
  parser
      .add_flag("--aa", arguments.aa,
                "an A/A study: the baseline against itself with other seeds, as a check of the method")
      ->group(what);

  AddRunOptions(parser, arguments.run, "the folder of the study: new, or one to continue",
                "prints results.json instead of the table");
  parser.get_option("--data")->required(false);  // --status needs neither
  parser.get_option("--out")->required(false);
  parser
      .add_option("--jobs", arguments.jobs,
                  "cells at the same time, which share the threads evenly, one or more each (default 1); "
                  "changes no bit of "
                  "a loss")
      ->type_name("N")
      ->group("How it is run");
  parser
      .add_option("--retries", arguments.retries,
                  "how often a cell that fails is tried again, when all others have been tried (default 0)")
      ->type_name("N")
      ->group("How it is run");
  AddCheckpointOptions(parser, arguments.checkpoints);
  parser.add_flag("--save-models", arguments.save_models, "keeps the trained weights of every run")
      ->group("How it is run");
  parser
      .add_flag("--profile", arguments.profile,
                "keeps the time of each kind of operation of every run, for the report")
      ->group("How it is run");

  const std::string how = "How it is judged; recorded before the first run, and then fixed";
  parser
      .add_option("--margin", arguments.margin,
                  "losses closer than this are equivalent (default 0.01; 0: none is)")
      ->type_name("NATS")
      ->group(how);
  parser
      .add_option("--speed-margin", arguments.speed_margin,
                  "times closer than this are equivalent (default 1; 0: none is)")
      ->type_name("PERCENT")
      ->group(how);
  parser
      .add_option(
          "--looks", arguments.looks,
          "how often verdicts will be read, more seeds being added in between (default 2); beyond them "
          "results are labelled exploratory")
      ->type_name("L")
      ->group(how);
  const std::string after = "What else";
  parser
      .add_option("--status", arguments.status,
                  "shows how far the study in DIR is, and who works on it; needs no other option but --json")
      ->type_name("DIR")
      ->group(after);
  parser
      .add_option(
          "--duel", arguments.duel,
          "how long steps of all variants take turns, after the cells, to judge speed (default a fifth "
          "of the cells' training time; 0: not at all)")
      ->type_name("SECONDS")
      ->group(after);
  parser
      .add_flag("--fail-if-worse", arguments.fail_if_worse,
                "exit code 3 where the loss of a variant is worse than the baseline's, or it diverged more "
                "often; speed does not count")
      ->group(after);
  parser
      .add_flag("--fail-if-slower", arguments.fail_if_slower,
                "exit code 3 where a variant is judged to take more time than the baseline")
      ->group(after);
  parser.footer(kFooter);
}

void CheckCompareOptions(const CLI::App& parser, const CompareArguments& arguments) {
  if (arguments.status) {
    for (const CLI::Option* option : parser.get_options())
      if (const std::string name = option->get_name();
          option->count() > 0 && name != "--status" && name != "--json")
        throw UsageError(fmt::format("--status only shows a study, and takes no {}; leave it out", name));
    return;
  }
  for (const char* name : {"--data", "--out"})
    if (parser.count(name) == 0)
      throw UsageError(fmt::format("{} is required; see `normlab compare --help`", name));
  if (arguments.fail_if_slower && arguments.duel == "0")
    throw UsageError(
        "--fail-if-slower judges from the duel, and --duel 0 leaves it out; leave out one of them");
}

}  // namespace normlab::apps
