// Token and position embeddings. Backward gives every thread its own columns: all rows are added in order, so
// equal tokens need no atomics and the bits do not depend on the number of threads.

#include <algorithm>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/elementwise.h"
#include "normlab/kernels/cpu/ops.h"

namespace normlab::cpu {
namespace {

// An id outside of the vocabulary would read or write other memory.
void CheckIds(const View& ids, int64_t vocabulary) {
  const int32_t* const id = ids.as<const int32_t>();
  for (int64_t r = 0; r < ids.elements(); ++r) {
    NL_CHECK_LE(0, id[r]);
    NL_CHECK_LE(id[r], vocabulary - 1);
  }
}

}  // namespace

void EmbeddingForward(CpuContext& context, const EmbeddingForwardArgs& args) {
  const int64_t rows = args.h.rows(), cols = args.h.cols(), t = args.ids.shape[1];
  const int32_t* const ids = args.ids.as<const int32_t>();
  CheckIds(args.ids, args.token.rows());
  constexpr int64_t kRows = 64;
  const auto add_rows = [&]<class T>(T* h, int64_t chunk) {
    for (int64_t r = chunk * kRows; r < std::min(rows, (chunk + 1) * kRows); ++r)
      AddRows(cols, args.token.as<const float>() + ids[r] * args.token.strides[0],
              args.position.as<const float>() + r % t * args.position.strides[0], h + r * args.h.strides[0]);
  };
  ParallelFor(context.threads(), (rows + kRows - 1) / kRows, [&](int64_t chunk, int) {
    args.h.dtype == DType::kBF16 ? add_rows(args.h.as<BFloat16>(), chunk)
                                 : add_rows(args.h.as<float>(), chunk);
  });
}

void EmbeddingBackward(CpuContext& context, const EmbeddingBackwardArgs& args) {
  const int64_t rows = args.dh.rows(), cols = args.dh.cols();
  const int64_t t = args.ids.shape[1];
  const int32_t* const ids = args.ids.as<const int32_t>();
  CheckIds(args.ids, args.dtoken.rows());
  float* const dtoken = args.dtoken.as<float>();
  float* const dposition = args.dposition.as<float>();
  const auto clear = [&](const View& table, float* data, int64_t begin, int64_t end) {
    for (int64_t r = 0; r < table.rows(); ++r)
      std::fill(data + r * table.strides[0] + begin, data + r * table.strides[0] + end, 0.0f);
  };
  constexpr int64_t kColumns = 64;
  ParallelFor(context.threads(), (cols + kColumns - 1) / kColumns, [&](int64_t chunk, int) {
    const int64_t begin = chunk * kColumns, end = std::min(cols, begin + kColumns);
    if (!args.accumulate_token) clear(args.dtoken, dtoken, begin, end);
    if (!args.accumulate_position) clear(args.dposition, dposition, begin, end);
    const auto add_rows = [&]<class T>(const T* dh) {
      for (int64_t r = 0; r < rows; ++r) {
        const T* const from = dh + r * args.dh.strides[0] + begin;
        AddTo(end - begin, from, dtoken + ids[r] * args.dtoken.strides[0] + begin);
        AddTo(end - begin, from, dposition + r % t * args.dposition.strides[0] + begin);
      }
    };
    args.dh.dtype == DType::kBF16 ? add_rows(args.dh.as<const BFloat16>())
                                  : add_rows(args.dh.as<const float>());
  });
}

}  // namespace normlab::cpu
