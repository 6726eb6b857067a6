#include "normlab/train/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "normlab/base/progress.h"
#include "normlab/base/threads.h"
#include "normlab/kernels/arena.h"
#include "normlab/kernels/cpu/planning_device.h"
#include "normlab/model/gpt.h"
#include "normlab/train/inside.h"
#include "normlab/train/trainer.h"

namespace normlab {
namespace {

// The process beside the model, an allowance: code, libraries and what a thread keeps, and the panels that
// oneDNN packs. Measured as process_peak_bytes minus the other parts: 19 MiB for a model of 1 MiB, 30 for the
// preset tiny, 86 for gpt2-small.
constexpr size_t kProgramBytes = size_t{24} << 20, kProgramBytesPerThread = size_t{2} << 20;
size_t PackedBytes(size_t device_bytes) { return std::min(device_bytes / 8, size_t{64} << 20); }

// From here on nothing is counted, which would take long and could overflow: no machine has a pebibyte.
constexpr double kHopeless = 0x1p50;

struct Magnitude {
  double parameters, activations;  // elements, too few rather than too many
};

Magnitude MagnitudeOf(const TrainConfig& config) {
  const GptConfig& model = config.model;
  const double C = static_cast<double>(model.emb_dim), L = static_cast<double>(model.n_layers);
  const double rows = static_cast<double>(config.MicroBatch()) * static_cast<double>(config.Window());
  return {
      .parameters = 12 * L * C * C +
                    (static_cast<double>(model.vocab_size) + static_cast<double>(model.context_length)) * C,
      .activations = rows * C * (14 * L + 10)};
}

MemoryPlan RoughPlan(const Magnitude& magnitude) {
  const auto bytes = [](double elements) {
    return static_cast<size_t>(std::min(elements * sizeof(float), 0x1p60));
  };
  MemoryPlan plan{.exact = false};
  plan.weights = plan.gradients = bytes(magnitude.parameters);
  plan.moments = 2 * plan.weights;
  plan.activations = bytes(magnitude.activations);
  return plan;
}

size_t LargestTensor(const ParameterList& parameters) {
  int64_t most = 0;
  for (const Parameter& parameter : parameters.all()) most = std::max(most, parameter.elements());
  return static_cast<size_t>(most);
}

}  // namespace

MemoryPlan PlanMemory(const TrainConfig& config, const MemoryPlanRequest& request) {
  const Magnitude magnitude = MagnitudeOf(config);
  if (!((magnitude.parameters + magnitude.activations) * sizeof(float) < kHopeless))
    return RoughPlan(magnitude);
  const auto runs = static_cast<size_t>(request.runs);

  const auto device = MakeCpuPlanningDevice({.threads = request.threads});
  Gpt model(*device, config.model, config.init, ShapeOf(config));
  const ParameterList& parameters = model.parameters();
  MemoryPlan plan;
  // The views of flat memory are those that the arenas hold.
  plan.weights = Arena(*device, [&](Arena::Planner& layout) {
                   layout.Take({parameters.flat_elements()}, device->compute_dtype());
                 }).bytes();
  plan.gradients = plan.weights;
  plan.operand_weights = model.operand_weight_bytes();
  plan.activations = model.arena_bytes() - plan.weights - plan.gradients - plan.operand_weights;
  // As the trainer keeps them: both moments, and one number for the norm of the gradient.
  plan.moments = Arena(*device, [&](Arena::Planner& layout) {
                   layout.Take({parameters.flat_elements()}, device->compute_dtype());
                   layout.Take({parameters.flat_elements()}, device->compute_dtype());
                   layout.Take({1}, DType::kF64);
                 }).bytes();

  model.LossesAndGradients({}, {}, 1.0, false, {});  // nobody looks at the ids here
  plan.scratch = device->scratch_bytes();
  for (const Gpt::Product& product : model.Products()) device->FastestProductSeconds(product.shape);

  const size_t rows = static_cast<size_t>(config.MicroBatch() * config.Window());
  const size_t largest = LargestTensor(parameters);
  const size_t initializing = largest * sizeof(double);
  plan.temporary = std::max({initializing, device->timing_bytes(), InsideBytes(config)}) +
                   rows * (2 * sizeof(int32_t) + sizeof(double));
  plan.program = kProgramBytes + runs * (kProgramBytesPerThread * static_cast<size_t>(request.threads) +
                                         PackedBytes(plan.device_bytes()));
  for (size_t* part : {&plan.weights, &plan.gradients, &plan.moments, &plan.operand_weights,
                       &plan.activations, &plan.scratch, &plan.temporary})
    *part *= runs;
  plan.text = request.text_bytes;  // all read the same
  plan.runs = request.runs;
  return plan;
}

void RequireMemory(const MemoryPlan& plan, const TrainConfig& config, int threads,
                   const std::optional<AvailableMemory>& available) {
  if (!available) return;
  // A limit of the address space counts stacks in full, and so far nothing of the program's own is new.
  const size_t stacks = available->limit == AvailableMemory::kAddressSpace
                            ? ThreadStackBytes() * static_cast<size_t>(threads * plan.runs)
                            : 0;
  if (plan.total() - plan.text + stacks <= available->bytes) return;

  std::vector<std::pair<size_t, const char*>> parts = {{plan.weights, "weights"},
                                                       {plan.gradients, "gradients"},
                                                       {plan.moments, "AdamW's moments"},
                                                       {plan.operand_weights, "bf16 copies of the weights"},
                                                       {plan.activations, "activations"},
                                                       {plan.scratch, "scratch"},
                                                       {plan.temporary, "passing copies"},
                                                       {plan.program, "the program"},
                                                       {stacks, "the stacks of its threads"}};
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string most;
  for (size_t i = 0; i < 3; ++i)
    most += fmt::format("{}{} {}", i == 0 ? "" : ", ", parts[i].second,
                        FormatBytes(static_cast<double>(parts[i].first)));
  const bool rows_matter = plan.activations + plan.scratch > plan.weights + plan.gradients + plan.moments;
  const bool jobs_matter =
      plan.runs > 1 &&
      (plan.total() - plan.text + stacks) / static_cast<size_t>(plan.runs) <= available->bytes;
  const bool stacks_matter = threads > 1 && stacks > plan.device_bytes();
  const size_t fixed = plan.program + stacks;
  const bool limit_matters = fixed > available->bytes && fixed > plan.device_bytes();  // no model would fit
  Fail("{} {} {} of memory, and {} leaves {}; most goes to {}; {}",
       plan.runs > 1 ? fmt::format("{} runs at a time need", plan.runs) : "the run needs",
       plan.exact ? "about" : "at least", FormatBytes(static_cast<double>(plan.total() + stacks)),
       available->limit, FormatBytes(static_cast<double>(available->bytes + plan.text)), most,
       jobs_matter     ? fmt::format("take fewer --jobs than {}", plan.runs)
       : stacks_matter ? fmt::format("take fewer --threads than {}, or raise the limit", threads)
       : limit_matters ? "free some memory, or raise the limit"
       : rows_matter && config.MicroBatch() > 1
           ? fmt::format("set a smaller micro_batch than {} (the batch may stay), or a smaller --context",
                         config.MicroBatch())
       : rows_matter && !config.recompute ? "take --recompute, or set a smaller --context"
       : rows_matter                      ? "set a smaller --context, or a smaller model (emb_dim, n_layers)"
                     : "take a smaller preset, or set emb_dim, n_layers or vocab_size lower");
}

std::string MemorySentence(const MemoryPlan& plan, const std::optional<AvailableMemory>& available) {
  const std::string needs = fmt::format("needs about {}", FormatBytes(static_cast<double>(plan.total())));
  if (!available) return needs;
  return needs +
         fmt::format(" of {} available", FormatBytes(static_cast<double>(available->bytes + plan.text)));
}

}  // namespace normlab
