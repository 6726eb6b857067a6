#include "normlab/study/step_duel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "normlab/base/error.h"
#include "normlab/base/interference.h"
#include "normlab/base/text.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/train/memory_plan.h"
#include "normlab/train/trainer.h"

namespace normlab {
namespace {

constexpr double kBlockSeconds = 0.02;  // of the first variant, at least: several steps where one is shorter
constexpr int64_t kSchedule = 1'000'000;  // no duel comes to the end of its schedule

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of one variant's step, so that variants that share them are timed once.
std::string ProductsKey(const Trainer& trainer) {
  std::string key =
      fmt::format("{} {}/{}", trainer.config().dtype, trainer.config().batch, trainer.config().MicroBatch());
  for (const Gpt::Product& product : trainer.model().Products())
    key += fmt::format(" {}x{}x{}{}*{:.6g}", product.shape.m, product.shape.n, product.shape.k,
                       product.shape.one_of_many ? "h" : "", product.times);
  return key;
}

}  // namespace

struct StepDuel::Contender {
  std::unique_ptr<Device> device;
  std::unique_ptr<Trainer> trainer;

  void Clear() {
    trainer.reset();  // before the device that holds its memory
    device.reset();
  }

  void Place(TrainConfig config, const std::shared_ptr<const TokenSource>& tokens, int threads) {
    Clear();
    device = MakeCpuDevice({.threads = threads});
    config.steps = std::max(config.steps, kSchedule);
    trainer = std::make_unique<Trainer>(*device, config, tokens);
    trainer->Step();
  }
};

StepDuel::StepDuel(std::vector<Variant> variants, std::shared_ptr<const TokenSource> tokens, int threads)
    : variants_(std::move(variants)),
      tokens_(std::move(tokens)),
      threads_(threads),
      contenders_(variants_.size()) {
  for (Variant& variant : variants_)
    if (variant.name.empty()) variant.name = variant.config.model.norm_type;
}

StepDuel::~StepDuel() = default;

size_t StepDuel::RequireMemory(const std::optional<AvailableMemory>& available) const {
  size_t total = 0, program = 0, temporary = 0;
  for (const Variant& variant : variants_) {
    const MemoryPlan plan = PlanMemory(variant.config, {.threads = threads_});
    normlab::RequireMemory(plan, variant.config, threads_, available);
    total += plan.device_bytes();
    program = std::max(program, plan.program);
    temporary = std::max(temporary, plan.temporary);
  }
  const size_t needed = total + program + temporary;
  if (available && needed > available->bytes)
    Fail(
        "{} side by side need about {} of memory, and {} leaves {}; take fewer, or a smaller --batch, "
        "--context or model",
        Counted(variants_.size(), "variant"), FormatBytes(static_cast<double>(needed)), available->limit,
        FormatBytes(static_cast<double>(available->bytes)));
  return total;
}

DuelRecord StepDuel::Run(DuelSettings settings, const std::function<bool(const DuelProgress&)>& keep_going) {
  settings.contenders = variants_.size();
  DuelRecord record{.settings = settings};
  record.result = RunDuel(
      settings,
      {.place =
           [&](size_t batch, std::span<const size_t> order) {
             for (const size_t v : order) contenders_[v].Clear();  // all go before any comes
             for (const size_t v : order) contenders_[v].Place(variants_[v].config, tokens_, threads_);
             if (batch == 0) FixSteps();
           },
       .prepare = {},
       .block = [&](size_t v) { RunBlock(v, steps_per_block_); },
       .now_s = Now,
       .interruptions = InvoluntarySwitches,
       .conditions = [] { return DuelConditions{.stolen_s = StolenSeconds(), .mhz = ProcessorMhz()}; },
       .keep_going = keep_going});
  record.steps_per_block = steps_per_block_;
  for (size_t v = 0; v < variants_.size(); ++v) {
    const Trainer& trainer = *contenders_[v].trainer;
    record.contenders.push_back(
        {.name = variants_[v].name,
         .varied = variants_[v].varied,
         .config = DuelConfig(variants_[v].config),
         .norm_implementation = std::string(Name(trainer.model().norm_implementation())),
         .tokens_per_step = variants_[v].config.TokensPerStep(),
         .peak_bytes = contenders_[v].device->peak_bytes(),
         .baseline = settings.baseline});
  }
  return record;
}

std::vector<StepBound> StepDuel::Bounds(double copy_bytes_per_s, bool with_products) {
  std::vector<StepBound> bounds;
  std::vector<std::pair<std::string, std::optional<double>>> known;
  for (const Contender& contender : contenders_) {
    Trainer& trainer = *contender.trainer;
    StepBound bound{.bytes = StepBytes(trainer.model(), trainer.config()),
                    .copy_bytes_per_s = copy_bytes_per_s};
    if (with_products) {
      const std::string key = ProductsKey(trainer);
      const auto same = std::ranges::find(known, key, &decltype(known)::value_type::first);
      bound.products_s = same != known.end() ? same->second : trainer.ProductsBound();
      if (same == known.end()) known.emplace_back(key, bound.products_s);
    }
    bounds.push_back(bound);
  }
  return bounds;
}

void StepDuel::RunBlock(size_t variant, int64_t steps) const {
  for (int64_t i = 0; i < steps; ++i)
    if (const StepResult result = contenders_[variant].trainer->Step(); result.divergence)
      Fail("{} diverged ({}): times of such steps say nothing; set a smaller learning_rate",
           variants_[variant].name, result.divergence->ToString());
}

void StepDuel::FixSteps() {
  const double start = Now();
  RunBlock(0, 1);
  steps_per_block_ =
      static_cast<int64_t>(std::clamp(std::ceil(kBlockSeconds / (Now() - start)), 1.0, 1000.0));
}

}  // namespace normlab
