// normlab bench: speeds of kernels and of whole steps.

#include "normlab/apps/bench.h"

#include <cstdlib>

#include "normlab/base/error.h"
#include "normlab/base/files.h"

namespace normlab::apps {

std::vector<Command> AddBench(CLI::App& program) {
  CLI::App* bench = program.add_subcommand("bench", "Measure kernels, or whole steps, side by side.");
  bench->require_subcommand(1);
  bench->set_help_flag("-h,--help", "this text");
  bench->footer(
      "Examples:\n"
      "  normlab bench kernels --norms rmsnorm --shapes 2048x768\n"
      "      the layer alone, every implementation, beside a stream of memory\n"
      "  normlab bench step --norms fused_layernorm,fused_rmsnorm\n"
      "      whole training steps, in turns, with ratios and intervals\n"
      "\n"
      "`normlab bench kernels --help` and `normlab bench step --help` tell more.");
  return {AddBenchKernels(*bench), AddBenchStep(*bench)};
}

Json ThreadSettings() {
  Json settings = Json::object();
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_PLACES",
                           "OMP_NUM_THREADS", "GOMP_CPU_AFFINITY"})
    if (const char* value = std::getenv(name)) settings[name] = value;
  return settings;
}

std::string ThreadSettingsText() {
  std::string text;
  const Json settings = ThreadSettings();
  for (const auto& [name, value] : settings.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value.get<std::string>());
  return text.empty() ? "the thread runtime's own settings" : text;
}

void StartJson(const std::optional<std::string>& file) {
  if (file && file->empty())
    throw UsageError("--json is given an empty name; it takes a file, or - for the output");
  if (file && *file != "-") WriteFileAtomic(*file, "");
}

bool WriteJson(const std::optional<std::string>& file, const Json& json) {
  if (!file) return false;
  const std::string text = DumpJson(json, 2) + "\n";
  if (*file != "-") return WriteFileAtomic(*file, text), false;
  Print(text);
  return true;
}

}  // namespace normlab::apps
