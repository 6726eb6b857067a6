#include "normlab/apps/checkpoint_options.h"

#include <limits>

#include "normlab/apps/run_options.h"

namespace normlab::apps {

void AddCheckpointOptions(CLI::App& parser, CheckpointArguments& arguments) {
  const std::string how = "How it is run";
  parser
      .add_option(
          "--checkpoint-every", arguments.every,
          "writes a checkpoint after every N steps; 0: only when it is stopped (default: every 10 minutes)")
      ->type_name("N")
      ->group(how);
  parser
      .add_option("--keep-checkpoints", arguments.keep,
                  "how many stay, also after the run is done (default 2, and none when it is done)")
      ->type_name("K")
      ->group(how);
}

CheckpointPolicy MakeCheckpointPolicy(const CheckpointArguments& arguments) {
  CheckpointPolicy policy;
  if (arguments.every)
    policy.every_steps =
        WholeNumber("--checkpoint-every", *arguments.every, 0, std::numeric_limits<int64_t>::max());
  if (arguments.keep) {
    policy.keep = WholeNumber("--keep-checkpoints", *arguments.keep, 1, 1'000'000);
    policy.keep_after_end = true;
  }
  return policy;
}

}  // namespace normlab::apps
