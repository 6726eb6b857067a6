#include "normlab/base/memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "normlab/base/error.h"

namespace normlab {

AlignedMemory::AlignedMemory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  data_ = std::aligned_alloc(alignment, rounded);
  if (data_ == nullptr)
    Fail("the system refused {:.1f} MiB of memory; make the model, batch or context smaller",
         static_cast<double>(bytes) / (1 << 20));
  if (alignment == kHugePage) madvise(data_, rounded, MADV_HUGEPAGE);
}

AlignedMemory::~AlignedMemory() { std::free(data_); }

}  // namespace normlab
