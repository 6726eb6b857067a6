#pragma once
// What `normlab bench kernels` measures: norms, row types, shapes, operations, caches. Parsing, and the bytes
// of each; nothing here runs a kernel.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/dtype.h"
#include "normlab/kernels/cpu/stream.h"
#include "normlab/norms/norm_type.h"

namespace normlab::apps {

enum class NormOp { kForward, kResidualForward, kBackward, kBackwardAccumulate };
std::string_view Name(NormOp op);  // "forward", "residual", "backward", "accumulate"

// The element types of the matrices of an operation.
enum class RowTypes {
  kF32,
  kBF16,
  kF16,
  kMixed,  // fp32: residual, sum, what backward normalizes, dx; bf16: the branch x, y, dy
};
std::string_view Name(RowTypes types);  // "f32", "bf16", "f16", "mixed"

struct NormShape {
  int64_t rows = 0, cols = 0;
  bool operator==(const NormShape&) const = default;
};
std::string Name(const NormShape& shape);  // "2048x768"

struct NormCase {
  NormType norm;  // kFastest: every implementation
  RowTypes types = RowTypes::kF32;
  NormShape shape;
  NormOp op = NormOp::kForward;
  bool cold = false;

  // One row is what decoding normalizes; its yardstick is memcpy of the row instead of a stream.
  bool decode() const { return shape.rows == 1; }
};

// The matrices of an operation. `stream` names the place each has in StreamArgs: a, b, c or d.
struct NormMatrix {
  DType dtype = DType::kF32;
  bool input = false;  // read: must hold numbers
  char stream = 'a';
};
std::vector<NormMatrix> MatricesOf(RowTypes types, NormOp op);
StreamMix MixOf(NormOp op);

// Each input read once and each output written once, an accumulated one both: gains, biases and statistics
// are not counted.
size_t BytesOf(const NormCase& norm_case);

struct NormCaseRequest {
  std::string norms = "layernorm,rmsnorm";  // "all": every norm of the list
  std::string dtypes = "f32,bf16,f16,mixed";
  std::string shapes = "4096x128,2048x768,8192x768,2048x4096,1024x8192,256x16384,1x4096";
  std::string ops = "forward,residual,backward,accumulate";
  std::string caches = "warm,cold";
};
// Every combination, norm by norm. Throws UsageError for a list that cannot be understood, Error for a norm
// that is unknown (with the nearest name).
std::vector<NormCase> NormCases(const NormCaseRequest& request);

// "1024,1152,..." for the report on cliffs; throws UsageError.
std::vector<int64_t> ParseWidths(std::string_view text);
// Shapes of these widths, each with about as many elements as 2048x768.
std::vector<NormShape> SweepShapes(const std::vector<int64_t>& widths);
inline constexpr const char* kSweepWidths = "1024,1152,1280,1536,2048,4096,4160,7168,7296,8192,12288";

// Widths whose speed is below 60% of that of a neighbour in the list: indices. `speeds` in the order of the
// widths; 0: not measured.
std::vector<size_t> Cliffs(const std::vector<double>& speeds);

// What holds a kernel back, in a word; share: of its stream's speed.
struct LimitEvidence {
  double seconds = 0;           // of a call
  double overhead_s = 0;        // of a call that does next to nothing, forking included where this one forks
  std::optional<double> share;  // of the same-mix stream
  bool in_cache = false;        // the memory it runs over fits the last-level cache
  NormImplementation implementation = NormImplementation::kFused;
};
std::string_view LimitOf(const LimitEvidence& evidence);

}  // namespace normlab::apps
