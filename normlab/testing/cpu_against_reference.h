#pragma once
// Runs one operation on the reference device and on the CPU device and compares: within tolerances on one
// thread and every instruction set, and with equal bits on 1, 2, 3, 5 and 8 threads.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "normlab/base/isa.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/reference/reference_device.h"
#include "normlab/testing/near.h"
#include "normlab/testing/norm_implementations.h"
#include "normlab/testing/tensors.h"

namespace normlab::test {

// All outputs of one operation on a device that gets the same fp32 inputs as any other.
using Operation = std::function<std::vector<Values>(Device&)>;

struct Expected {
  const char* name;
  Values tolerance;
};

class CpuAgainstReference : public ::testing::Test {
 protected:
  CpuAgainstReference() {
    for (const int threads : {1, 2, 3, 5, 8}) devices_.push_back(MakeCpuDevice({.threads = threads}));
  }

  // `tolerances` is given the reference's outputs.
  void Check(const Operation& run,
             const std::function<std::vector<Expected>(const std::vector<Values>&)>& tolerances,
             const std::string& case_text, bool every_isa = true) {
    const std::vector<Values> want = run(*reference_);
    const std::vector<Expected> expected = tolerances(want);
    ASSERT_EQ(want.size(), expected.size());
    std::vector<std::string> isas = SupportedIsas();
    if (!every_isa) isas = {""};
    for (const std::string& isa : isas) {
      const IsaScope scope(isa);
      const std::vector<Values> got = run(*devices_[0]);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        Comparison comparison(expected[i].name);
        comparison.AddAll(got[i], want[i], expected[i].tolerance);
        EXPECT_TRUE(Within(comparison, Repro(case_text + " on " + isa)));
        if (comparison.count() == 0) continue;
        auto [worst, inserted] = worst_.try_emplace(expected[i].name, expected[i].name);
        worst->second.Add(comparison);
      }
      for (const auto& device : devices_) {
        const std::vector<Values> again = run(*device);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(SameBits(again[i], got[i], expected[i].name))
              << device->threads() << " threads, " << case_text << " on " << isa;
      }
    }
  }

  void TearDown() override {
    for (const auto& [name, comparison] : worst_) {
      bool exact = comparison.worst() == 0;
      LogWorst(comparison, exact);
      EXPECT_GE(static_cast<double>(comparison.nonzero()), 0.3 * static_cast<double>(comparison.count()))
          << name;
    }
  }

  std::unique_ptr<Device> reference_ = MakeReferenceDevice();
  std::vector<std::unique_ptr<Device>> devices_;
  std::map<std::string, Comparison> worst_;
};

// The bound of a sum of n rounded products (testing/norm_check.h says why): (4 + sqrt(n)) u times the
// magnitudes.
inline double SumBound(int64_t n) { return (4 + std::sqrt(static_cast<double>(n))) * kUnitF32; }

}  // namespace normlab::test
