#pragma once
// Memory aligned to 64 bytes (a cache line, and the widest vector). Large blocks ask for huge pages.

#include <cstddef>
#include <utility>

namespace normlab {

class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(size_t bytes);  // throws Error naming the size where the system refuses
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& other) noexcept { *this = std::move(other); }
  AlignedMemory& operator=(AlignedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace normlab
