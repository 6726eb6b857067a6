#include "normlab/kernels/cpu/planning_device.h"

#include <gtest/gtest.h>

#include "normlab/testing/norm_check.h"
#include "normlab/testing/norm_implementations.h"

namespace normlab::test {
namespace {

// What a device still holds when every tensor is freed: its scratch memory.
size_t Scratch(const Device& device) { return device.allocated_bytes(); }

// A new implementation that asks for scratch memory must tell it (NormImplementationEntry::scratch_floats).
TEST(PlanningDevice, KnowsTheScratchOfEveryNormImplementation) {
  for (const NormKind kind : AllKinds())
    for (const int threads : {1, 3})
      for (const auto& [rows, cols] : {std::pair{1, 5}, {7, 768}, {200, 100}, {600, 1024}}) {
        const auto check = [&](const NormSpec& spec, const std::string& name) {
          // Two shapes meet every set of storage types, the others fp32 alone.
          std::vector<NormStorage> storages = {{}};
          if (cols == 100 || rows == 1)
            storages.insert(storages.end(), LowStorages().begin(), LowStorages().end());
          for (const NormStorage& storage : storages)
            for (const bool residual : {false, true}) {
              const NormProblem problem = RandomNormProblem(
                  spec, rows, cols, {.residual = residual, .accumulate_dx = !residual}, Seed(), storage);
              const auto real = MakeCpuDevice({.threads = threads});
              const auto planning = MakeCpuPlanningDevice({.threads = threads});
              RunNorm(*real, problem);
              RunNorm(*planning, problem);
              EXPECT_EQ(Scratch(*planning), Scratch(*real))
                  << name << " " << ToString(problem) << " on " << threads << " threads";
            }
        };
        ForEachImplementation(*MakeCpuDevice({.threads = threads}), {.kind = kind}, cols, check,
                              /*every_isa=*/false);
      }
}

TEST(PlanningDevice, TakesNoMemoryForWhatItCounts) {
  const auto device = MakeCpuPlanningDevice({.threads = 1});
  void* const nowhere = device->Allocate(size_t{1} << 50);
  EXPECT_NE(nowhere, nullptr);
  EXPECT_EQ(device->peak_bytes(), size_t{1} << 50);
  device->Free(nowhere, size_t{1} << 50);
  EXPECT_EQ(device->allocated_bytes(), 0u);
  EXPECT_EQ(device->peak_bytes(), size_t{1} << 50);
}

TEST(PlanningDevice, AnswersForTheRealOne) {
  const auto real = MakeCpuDevice({.threads = 3});
  const auto planning = MakeCpuPlanningDevice({.threads = 3});
  EXPECT_EQ(planning->name(), real->name());
  EXPECT_EQ(planning->compute_dtype(), real->compute_dtype());
  EXPECT_EQ(planning->threads(), 3);
  for (const NormKind kind : AllKinds()) {
    const NormSpec spec{.kind = kind};
    EXPECT_EQ(planning->ResolveNorm(spec, 96), real->ResolveNorm(spec, 96));
    EXPECT_EQ(planning->NormSavedElements(spec, 10, 96), real->NormSavedElements(spec, 10, 96));
    EXPECT_EQ(planning->NormImplementations(spec, 96).size(), real->NormImplementations(spec, 96).size());
  }
}

}  // namespace
}  // namespace normlab::test
