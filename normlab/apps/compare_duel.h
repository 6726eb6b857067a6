#pragma once
// The last part of `normlab compare`: the duel of the study's variants, from which times are judged.

#include <memory>
#include <optional>
#include <string>

#include "normlab/apps/command.h"
#include "normlab/base/available_memory.h"
#include "normlab/data/tokens.h"
#include "normlab/study/runner.h"

namespace normlab::apps {

// --duel: seconds, 0 for none; nothing where it is not given. Throws UsageError.
std::optional<double> DuelSeconds(const std::optional<std::string>& text);

// Runs the duel where the folder has none that stands, as long as `asked_s` says, or for a fifth of what the
// cells took. What keeps it from running (too little memory, a variant that diverges) is a note: the study is
// whole without it. Returns false where a signal ended it; the folder is then as before.
bool RunStudyDuel(Study& study, const std::optional<double>& asked_s,
                  const std::shared_ptr<const TokenSource>& tokens, int threads,
                  const std::optional<AvailableMemory>& available, const Environment& environment);

}  // namespace normlab::apps
