#pragma once
// Device memory planned once. A layout function says which views exist; it runs twice: first to count bytes,
// then, after one allocation, to hand out the views. Nothing is allocated afterwards.
//
//   Arena arena(device, "activations", [&](Arena::Planner& plan) { h = plan.Take({R, C}, dtype); ... });

#include <functional>
#include <initializer_list>
#include <string>

#include "normlab/kernels/device.h"

namespace normlab {

class Arena {
 public:
  class Planner {
   public:
    // A dense view that starts at a multiple of 64 bytes.
    View Take(std::initializer_list<int64_t> shape, DType dtype);

    // Bytes handed out so far, and a return to there: what is taken next lies over what was taken since.
    size_t mark() const { return used_; }
    void ReturnTo(size_t mark) { used_ = mark; }

   private:
    friend class Arena;
    char* base_ = nullptr;
    size_t used_ = 0, most_ = 0;
  };

  Arena() = default;
  Arena(Device& device, const std::function<void(Planner&)>& layout);
  ~Arena();
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept;

  size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace normlab
