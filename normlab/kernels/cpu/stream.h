#pragma once
// Plain streams over memory: what a kernel with the same reads and writes could reach at the most. Each
// element of the outputs is one of the inputs' (the larger as a bit pattern), so outputs stay finite however
// often a stream runs in place. Cached stores, the same cut into chunks per thread as the row norms.

#include <cstddef>
#include <optional>
#include <string_view>

#include "normlab/base/view.h"

namespace normlab {

enum class StreamMix {
  kCopy,              // 1 read, 1 write: a -> c
  kTwoToOne,          // 2 reads, 1 write: a, b -> c
  kTwoToTwo,          // 2 reads, 2 writes: a, b -> c, d
  kTwoIntoOneInPlace  // 2 reads, 1 read and written in place: a, b, c -> c
};
std::string_view Name(StreamMix mix);  // "1r1w", "2r1w", "2r2w", "2r+rw"

// Dense matrices of one shape, each of 16-bit or 32-bit elements. Throws std::logic_error for others.
struct StreamArgs {
  StreamMix mix = StreamMix::kCopy;
  View a, b, c, d;
};
void RunStream(int threads, const StreamArgs& args);

// Bytes that a stream reads and writes, an in-place element twice.
size_t StreamBytes(const StreamArgs& args);

// The size of the last-level cache; nothing where the system does not tell.
std::optional<size_t> LastLevelCacheBytes();

// Memory that no cache holds: at least 1 GiB, and twice the last-level cache.
size_t ColdBytes();

struct CopySpeed {
  double bytes_per_s = 0;  // read and written, median of the passes
  size_t bytes = 0;        // of the memory it ran over: both matrices
};
// The speed of a 1r1w stream over `bytes` of fresh memory (at least a page): some tenths of a second for a
// GiB.
CopySpeed MeasureCopySpeed(int threads, size_t bytes);

}  // namespace normlab
