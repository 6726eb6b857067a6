// Runs the hand-rolled programs of norm_handrolled.h: one vectorized, threaded loop over memory per pass,
// nothing fused, no look-ahead across passes. Slow on purpose, but not by neglect: it is what a formula
// written out costs in an eager framework whose operations are good and whose allocator always has a warm
// block at hand.
//
// Saved for backward, flat: LayerNorm x - mean, norm_x [rows, cols] and std [rows]; RMSNorm x / rms and rms.
// Temporaries come from scratch: 5 matrices, and one for each conversion of 16-bit rows. Where the spec
// leaves out the gain or the bias, their passes run on ones and zeros: the article's classes have both. eps =
// 0: the root of 0 counts as infinite, so a row without spread gives 0 and no NaN. Column sums:
// NormPartials() partial sums, added in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/norm_handrolled.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include <array>
#include <cmath>
#include <limits>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_convert-inl.h"
#include "normlab/kernels/cpu/norm_handrolled.h"
#include "normlab/kernels/cpu/norm_kernels.h"
#include "normlab/kernels/cpu/norm_rows.h"
#include "normlab/kernels/cpu/norm_simd-inl.h"
#include "normlab/norms/norm_list.h"

#ifndef NORMLAB_KERNELS_CPU_NORM_HANDROLLED_ONCE
#define NORMLAB_KERNELS_CPU_NORM_HANDROLLED_ONCE
namespace normlab::cpu {

// The operands of one pass, bound to memory. A vector over columns is a matrix with stride 0.
struct BoundPass {
  PassKind kind;
  int64_t cols;
  AnyRows a, b;                // matrices
  const float *a_row, *b_row;  // one value per row, else null
  AnyRows to;
  float* to_row;
  DType rounds_to;  // of kRound
};

}  // namespace normlab::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace normlab::cpu {
namespace HWY_NAMESPACE {

// to[r, c] = op(a[r, c], b[r, c] or b[r]); all of type T
template <class T, class Op>
HWY_INLINE void EachElementOf(const BoundPass& pass, int64_t begin, int64_t end, Op op) {
  const auto nothing_ahead = [](int64_t, int64_t) NORMLAB_INLINE_BODY {};
  for (int64_t r = begin; r < end; ++r) {
    const T* a = pass.a ? pass.a.As<const T>().Row(r) : nullptr;
    const T* b = pass.b ? pass.b.As<const T>().Row(r) : nullptr;
    T* to = pass.to.As<T>().Row(r);
    const Vec row_value = Splat(pass.b_row != nullptr ? pass.b_row[r] : 0.0f);
    if (b == nullptr) {
      ForEachVector(pass.cols, nothing_ahead, [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        Store(op(Load(a + c, part), row_value), to + c, part);
      });
    } else {
      ForEachVector(pass.cols, nothing_ahead, [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
        Store(op(Load(a + c, part), Load(b + c, part)), to + c, part);
      });
    }
  }
}
template <class Op>
HWY_INLINE void EachElement(const BoundPass& pass, int64_t begin, int64_t end, Op op) {
  EachElementOf<float>(pass, begin, end, op);
}

void AddRows(const BoundPass& pass, int64_t begin, int64_t end) {
  const auto add = [](Vec a, Vec b) NORMLAB_INLINE_BODY { return hn::Add(a, b); };
  if (pass.to.dtype == DType::kBF16) return EachElementOf<BFloat16>(pass, begin, end, add);
  if (pass.to.dtype == DType::kF16) return EachElementOf<Float16>(pass, begin, end, add);
  EachElement(pass, begin, end, add);
}

// Between any two types of which one at the most has 16 bits, or equal ones.
void ConvertRows(const BoundPass& pass, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    if (pass.a.dtype == pass.to.dtype && pass.a.dtype != DType::kF32) {
      const auto* a = pass.a.As<const BFloat16>().Row(r);
      std::copy(a, a + pass.cols, pass.to.As<BFloat16>().Row(r));
    } else if (pass.a.dtype != DType::kF32) {
      WidenRow(pass.a, r, pass.to.As<float>().Row(r), pass.cols);
    } else if (pass.to.dtype != DType::kF32) {
      NarrowRow(pass.a.As<const float>().Row(r), pass.to, r, pass.cols);
    } else {
      ConvertRow(pass.a.As<const float>().Row(r), pass.to.As<float>().Row(r), pass.cols);
    }
  }
}

// The sum of op(a[r, c]) over the columns of one row.
template <class Op>
HWY_INLINE float RowSum(const BoundPass& pass, int64_t r, Op op) {
  const float* a = pass.a.As<const float>().Row(r);
  Sums sums;
  ForEachVector(
      pass.cols, [](int64_t, int64_t) NORMLAB_INLINE_BODY {},
      [&](int64_t c, auto part, int u)
          NORMLAB_INLINE_BODY { sums[u] = hn::Add(sums[u], InRow(op(Load(a + c, part)), part)); },
      [&]() NORMLAB_INLINE_BODY { sums.EndBlock(); });
  return sums.Total();
}

void HandrolledPassRows(const BoundPass& pass, int64_t begin, int64_t end) {
  const float inv_cols = 1.0f / static_cast<float>(pass.cols);
  const auto same = [](Vec v) NORMLAB_INLINE_BODY { return v; };
  switch (pass.kind) {
    case PassKind::kAdd:
      return AddRows(pass, begin, end);
    case PassKind::kSubtract:
      return EachElement(pass, begin, end, [](Vec a, Vec b) NORMLAB_INLINE_BODY { return hn::Sub(a, b); });
    case PassKind::kMultiply:
      return EachElement(pass, begin, end, [](Vec a, Vec b) NORMLAB_INLINE_BODY { return hn::Mul(a, b); });
    case PassKind::kDivide:
      return EachElement(pass, begin, end, [](Vec a, Vec b) NORMLAB_INLINE_BODY { return hn::Div(a, b); });
    case PassKind::kNegate:
      return EachElement(pass, begin, end, [](Vec a, Vec) NORMLAB_INLINE_BODY { return hn::Neg(a); });
    case PassKind::kSquare:
      return EachElement(pass, begin, end, [](Vec a, Vec) NORMLAB_INLINE_BODY { return hn::Mul(a, a); });
    case PassKind::kTwice:
      return EachElement(pass, begin, end, [](Vec a, Vec) NORMLAB_INLINE_BODY { return hn::Add(a, a); });
    case PassKind::kCopy:
    case PassKind::kConvert:
      return ConvertRows(pass, begin, end);
    case PassKind::kRound:
      for (int64_t r = begin; r < end; ++r)
        RoundRow(pass.rounds_to, pass.a.As<const float>().Row(r), pass.to.As<float>().Row(r), pass.cols);
      return;
    case PassKind::kSpread:
      for (int64_t r = begin; r < end; ++r) {
        const Vec value = Splat(pass.a_row[r] * inv_cols);
        float* to = pass.to.As<float>().Row(r);
        ForEachVector(
            pass.cols, [](int64_t, int64_t) NORMLAB_INLINE_BODY {},
            [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY { Store(value, to + c, part); });
      }
      return;
    case PassKind::kRowSum:
      for (int64_t r = begin; r < end; ++r) pass.to_row[r] = RowSum(pass, r, same);
      return;
    case PassKind::kRowMean:
      for (int64_t r = begin; r < end; ++r) pass.to_row[r] = RowSum(pass, r, same) * inv_cols;
      return;
    case PassKind::kRowVariance:  // about the mean, the row being in the cache the second time
      for (int64_t r = begin; r < end; ++r) {
        const Vec mean = Splat(RowSum(pass, r, same) * inv_cols);
        pass.to_row[r] = inv_cols * RowSum(pass, r, [&](Vec v) NORMLAB_INLINE_BODY {
                           return hn::Mul(hn::Sub(v, mean), hn::Sub(v, mean));
                         });
      }
      return;
    case PassKind::kColumnSum:  // into to_row, one partial sum per chunk
      for (int64_t r = begin; r < end; ++r) {
        const float* a = pass.a.As<const float>().Row(r);
        ForEachVector(
            pass.cols, [](int64_t, int64_t) NORMLAB_INLINE_BODY {},
            [&](int64_t c, auto part, int) NORMLAB_INLINE_BODY {
              Store(hn::Add(Load(pass.to_row + c, part), Load(a + c, part)), pass.to_row + c, part);
            });
      }
      return;
    case PassKind::kRowAddEps:
    case PassKind::kRowRoot:
    case PassKind::kRowRootGradient:
    case PassKind::kRowTwiceMean:
      return;  // no matrix: the runner does these itself
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace normlab::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normlab::cpu {
namespace {

HWY_EXPORT(HandrolledPassRows);

constexpr size_t Index(Operand operand) { return static_cast<size_t>(operand); }

struct SavedLayout {
  int64_t matrices, elements;
};
SavedLayout SavedOf(NormKind kind, int64_t rows, int64_t cols) {
  const int64_t matrices = kind == KindOf<LayerNorm>() ? 2 : kind == KindOf<RmsNorm>() ? 1 : 0;
  return {.matrices = matrices, .elements = matrices * rows * cols + (matrices > 0 ? rows : 0)};
}

// Operands that are fp32 copies under each condition.
struct CopiedOperand {
  PassWhen when;
  Operand operand;
};
constexpr CopiedOperand kCopied[] = {
    {PassWhen::kLowBranch, Operand::kBranch}, {PassWhen::kLowInput, Operand::kInput},
    {PassWhen::kLowY, Operand::kY},           {PassWhen::kLowDy, Operand::kDy},
    {PassWhen::kLowDx, Operand::kDx},         {PassWhen::kRounding, Operand::kScaled}};

constexpr int64_t CopiesOf(unsigned conditions) {
  int64_t copies = 0;
  for (const CopiedOperand& copied : kCopied) copies += (conditions & Bit(copied.when)) != 0;
  return copies;
}

// Scratch: 5 temporaries and the copies, 4 vectors over rows, 2 over columns, the partial sums.
int64_t ScratchFloats(unsigned conditions, int64_t rows, int64_t cols) {
  return (5 + CopiesOf(conditions)) * PaddedCols(rows * cols) + 4 * PaddedCols(rows) + 2 * PaddedCols(cols) +
         ParameterPartials::Floats(NormPartials(rows, cols), cols);
}

// Binds operands to memory and executes a program pass by pass.
class Runner {
 public:
  Runner(CpuContext& context, unsigned conditions, int64_t rows, int64_t cols, std::vector<PassCount>* counts)
      : threads_(context.threads()),
        conditions_(conditions),
        rows_(rows),
        cols_(cols),
        partials_(NormPartials(rows, cols)),
        counts_(counts) {
    const int64_t matrix = PaddedCols(rows * cols), row_vector = PaddedCols(rows),
                  col_vector = PaddedCols(cols);
    float* at = context.Scratch(static_cast<size_t>(ScratchFloats(conditions, rows, cols)));
    for (const Operand temp :
         {Operand::kTemp0, Operand::kTemp1, Operand::kTemp2, Operand::kTemp3, Operand::kTemp4})
      at = Bind(temp, at, cols) + matrix;
    for (const CopiedOperand& copied : kCopied)
      if (Holds(copied.when)) at = Bind(copied.operand, at, cols) + matrix;
    for (const Operand row : {Operand::kRowStd, Operand::kRow0, Operand::kRow1, Operand::kRow2})
      at = Bind(row, at, 1) + row_vector;
    own_gain_ = at;
    own_bias_ = own_gain_ + col_vector;
    sums_ = own_bias_ + col_vector;
  }

  bool Holds(PassWhen when) const { return (conditions_ & Bit(when)) != 0; }

  float* Bind(Operand operand, float* memory, int64_t stride) {
    Bind(operand, {memory, stride, DType::kF32});
    return memory;
  }
  void Bind(Operand operand, AnyRows memory) { memory_[Index(operand)] = memory; }
  // An operand that the program only reads.
  void BindInput(Operand operand, const float* memory, int64_t stride) {
    Bind(operand, const_cast<float*>(memory), stride);
  }
  // In fp32: the matrix as it is stored, unless it has a copy.
  void BindFp32(Operand operand, PassWhen copied, const AnyRows& stored) {
    if (!Holds(copied)) Bind(operand, stored);
  }
  const AnyRows& At(Operand operand) const { return memory_[Index(operand)]; }
  float* FloatsAt(Operand operand) const { return static_cast<float*>(At(operand).data); }

  void BindParameters(const float* weight, float weight_offset, const float* bias) {
    BindInput(Operand::kScale, EffectiveGain(weight, weight_offset, cols_, own_gain_), 0);
    BindInput(Operand::kShift, EffectiveBias(bias, cols_, own_bias_), 0);
  }

  void BindSaved(NormKind kind, const float* saved) {
    const SavedLayout layout = SavedOf(kind, rows_, cols_);
    if (layout.matrices > 0 && saved != nullptr) {
      BindInput(Operand::kNormalized, saved, cols_);
      if (layout.matrices == 2) BindInput(Operand::kCentered, saved + rows_ * cols_, cols_);
      BindInput(Operand::kRowStd, saved + layout.matrices * rows_ * cols_, 1);
    }
    BindFp32(Operand::kScaled, PassWhen::kRounding, At(Operand::kNormalized));
  }

  void SetEps(float eps) { eps_ = eps; }
  void SetRounding(DType dtype) { rounds_to_ = dtype; }

  void Run(std::span<const Pass> passes) {
    for (const Pass& pass : passes)
      if (Holds(pass.when)) Execute(pass);
  }

  void AddParameterGradients(const NormBackwardRows& rows) const {
    ParameterPartials(sums_, partials_, cols_).AddTo(threads_, rows);
  }
  void ClearParameterGradients() const {
    const ParameterPartials sums(sums_, partials_, cols_);
    for (int64_t chunk = 0; chunk < partials_; ++chunk) sums.Clear(chunk);
  }

 private:
  void Execute(const Pass& pass) {
    if (IsPerRow(pass.a) && IsPerRow(pass.to)) return ExecuteOnRowValues(pass);
    BoundPass bound{.kind = pass.kind,
                    .cols = cols_,
                    .a = {},
                    .b = {},
                    .a_row = nullptr,
                    .b_row = nullptr,
                    .to = {},
                    .to_row = nullptr,
                    .rounds_to = rounds_to_};
    if (IsPerRow(pass.a))
      bound.a_row = FloatsAt(pass.a);
    else
      bound.a = At(pass.a);
    if (IsPerRow(pass.b))
      bound.b_row = FloatsAt(pass.b);
    else if (pass.b != Operand::kNothing)
      bound.b = At(pass.b);
    if (IsPerRow(pass.to))
      bound.to_row = FloatsAt(pass.to);
    else
      bound.to = At(pass.to);
    if (pass.kind == PassKind::kCopy && bound.a.data == bound.to.data) return;  // the same tensor

    const bool column_sum = pass.kind == PassKind::kColumnSum;
    const ParameterPartials sums(sums_, partials_, cols_);
    const int64_t chunks = column_sum ? partials_ : RowChunks(threads_, rows_, cols_);
    const auto run = HWY_DYNAMIC_DISPATCH(HandrolledPassRows);
    ParallelFor(threads_, chunks, [&](int64_t chunk, int) {
      BoundPass own = bound;
      if (column_sum) own.to_row = pass.to == Operand::kDscale ? sums.dgain(chunk) : sums.dbias(chunk);
      run(own, ChunkBegin(rows_, chunks, chunk), ChunkBegin(rows_, chunks, chunk + 1));
    });
    Count(pass, bound);
  }

  // One value per row: too little work for threads.
  void ExecuteOnRowValues(const Pass& pass) {
    const float *a = FloatsAt(pass.a), *b = FloatsAt(pass.b);
    float* to = FloatsAt(pass.to);
    const float two_over_cols = 2.0f / static_cast<float>(cols_);
    for (int64_t r = 0; r < rows_; ++r) {
      switch (pass.kind) {
        case PassKind::kRowAddEps:
          to[r] = a[r] + eps_;
          break;
        case PassKind::kRowRoot:
          // Dividing by it gives 0 for a row of zeros, and NaN where the squares overflowed: as InverseRoot
          // does.
          to[r] = a[r] == 0.0f       ? std::numeric_limits<float>::infinity()
                  : std::isinf(a[r]) ? std::numeric_limits<float>::quiet_NaN()
                                     : std::sqrt(a[r]);
          break;
        case PassKind::kRowRootGradient:
          to[r] = a[r] / (2.0f * b[r]);
          break;
        case PassKind::kRowTwiceMean:
          to[r] = a[r] * two_over_cols;
          break;
        default:
          NL_CHECK(!"a pass over row values that the runner does not know");
      }
    }
    if (counts_ != nullptr) counts_->push_back({.name = pass.name});
  }

  // From the memory that the loops were given: a bound matrix with rows of its own is read or written once.
  void Count(const Pass& pass, const BoundPass& bound) {
    if (counts_ == nullptr) return;
    const auto moved = [&](const auto& matrix) {
      return matrix && matrix.stride != 0 ? rows_ * cols_ : int64_t{0};
    };
    counts_->push_back({.name = pass.name,
                        .elements_read = moved(bound.a) + moved(bound.b),
                        .elements_written = moved(bound.to)});
  }

  int threads_;
  unsigned conditions_;
  int64_t rows_, cols_, partials_;
  std::vector<PassCount>* counts_;
  float eps_ = 0;
  DType rounds_to_ = DType::kF32;
  float *own_gain_ = nullptr, *own_bias_ = nullptr, *sums_ = nullptr;
  std::array<AnyRows, Index(Operand::kDshift) + 1> memory_{};
};

void Forward(CpuContext& context, const NormForwardArgs& args) { HandrolledForward(context, args); }
void Backward(CpuContext& context, const NormBackwardArgs& args) { HandrolledBackward(context, args); }

constexpr NormImplementationEntry kHandrolled{
    .implementation = NormImplementation::kHandrolled,
    .refuses = [](const NormSpec& spec, int64_t) -> std::optional<std::string> {
      if (!HandrolledPasses(spec.kind, false).empty()) return std::nullopt;
      return fmt::format("there are no hand-rolled passes for {}", InfoOf(spec.kind).name);
    },
    .saved_elements = [](const NormSpec& spec, int64_t rows,
                         int64_t cols) { return SavedOf(spec.kind, rows, cols).elements; },
    .forward = Forward,
    .backward = Backward,
    .forward_floats =
        [](const NormForwardArgs& args, int) {
          return args.x.rows() == 0 ? 0 : ScratchFloats(PassesOf(args), args.x.rows(), args.x.cols());
        },
    .backward_floats = [](const NormBackwardArgs& args,
                          int) { return ScratchFloats(PassesOf(args), args.dy.rows(), args.dy.cols()); }};

bool Is16Bits(const View& view) { return SizeOf(view.dtype) == 2; }

}  // namespace

unsigned PassesOf(const NormForwardArgs& args) {
  const bool residual = !args.residual.empty(), identity = InfoOf(args.spec.kind).identity;
  const bool low_input = Is16Bits(residual ? args.residual : args.x), low_y = Is16Bits(args.y);
  unsigned conditions = Bit(PassWhen::kAlways);
  if (residual) conditions |= Bit(PassWhen::kWithResidual);
  if (residual && Is16Bits(args.x) && !low_input) conditions |= Bit(PassWhen::kLowBranch);
  if (identity) return conditions;  // it copies from type to type
  if (low_input) conditions |= Bit(PassWhen::kLowInput);
  if (low_y) conditions |= Bit(PassWhen::kLowY);
  if (low_y && args.spec.cast == NormCast::kBeforeGain) conditions |= Bit(PassWhen::kRounding);
  return conditions;
}

unsigned PassesOf(const NormBackwardArgs& args) {
  const bool low_dy = Is16Bits(args.dy), low_dx = Is16Bits(args.dx);
  unsigned conditions = Bit(PassWhen::kAlways);
  if (args.accumulate_dx) conditions |= Bit(PassWhen::kAccumulating);
  if (!args.dx_low.empty()) conditions |= Bit(PassWhen::kWithDxLow);
  if (InfoOf(args.spec.kind).identity) return conditions;
  if (Is16Bits(args.x)) conditions |= Bit(PassWhen::kLowInput);
  if (low_dy) conditions |= Bit(PassWhen::kLowDy);
  if (low_dx) conditions |= Bit(PassWhen::kLowDx);
  if (low_dx && args.accumulate_dx) conditions |= Bit(PassWhen::kAccumulatingLowDx);
  if (low_dy && args.spec.cast == NormCast::kBeforeGain) conditions |= Bit(PassWhen::kRounding);
  return conditions;
}

void HandrolledForward(CpuContext& context, const NormForwardArgs& args, std::vector<PassCount>* counts) {
  const NormForwardRows rows = RowsOf(args);
  if (rows.rows == 0) return;
  const bool identity = InfoOf(args.spec.kind).identity;
  Runner runner(context, PassesOf(args), rows.rows, rows.cols, counts);
  runner.SetEps(rows.eps);
  runner.SetRounding(rows.y.dtype);
  runner.BindParameters(rows.weight, rows.weight_offset, rows.bias);
  // Without `saved` nobody runs backward: what would be saved goes into temporaries.
  runner.Bind(Operand::kNormalized, runner.At(Operand::kTemp1));
  runner.Bind(Operand::kCentered, runner.At(Operand::kTemp2));
  runner.BindSaved(args.spec.kind, rows.saved);
  runner.Bind(Operand::kX, rows.x);
  runner.Bind(Operand::kResidual, rows.residual);
  runner.Bind(Operand::kStoredY, rows.y);
  AnyRows stored = rows.x;
  if (rows.residual) {
    AnyRows unwanted = runner.At(Operand::kTemp4);
    unwanted.dtype = rows.residual.dtype;
    if (identity && rows.y.dtype == unwanted.dtype) unwanted = rows.y;
    stored = rows.sum ? rows.sum : unwanted;
  }
  runner.Bind(Operand::kStored, stored);
  runner.BindFp32(Operand::kBranch, PassWhen::kLowBranch, rows.x);
  runner.BindFp32(Operand::kInput, PassWhen::kLowInput, stored);
  runner.BindFp32(Operand::kY, PassWhen::kLowY, rows.y);
  runner.Run(HandrolledPasses(args.spec.kind, false));
}

void HandrolledBackward(CpuContext& context, const NormBackwardArgs& args, std::vector<PassCount>* counts) {
  const NormBackwardRows rows = RowsOf(args);
  const bool identity = InfoOf(args.spec.kind).identity;
  Runner runner(context, PassesOf(args), rows.rows, rows.cols, counts);
  runner.ClearParameterGradients();
  if (rows.rows > 0) {
    runner.SetRounding(rows.dy.dtype);
    runner.BindParameters(rows.weight, rows.weight_offset, nullptr);
    runner.BindSaved(args.spec.kind, rows.saved);
    runner.Bind(Operand::kStored, rows.x);
    runner.Bind(Operand::kStoredDy, rows.dy);
    runner.Bind(Operand::kStoredDx, rows.dx);
    runner.Bind(Operand::kDxLow, rows.dx_low);
    runner.BindFp32(Operand::kInput, PassWhen::kLowInput, rows.x);
    runner.BindFp32(Operand::kDy, PassWhen::kLowDy, rows.dy);
    runner.BindFp32(Operand::kDx, PassWhen::kLowDx, rows.dx);
    const AnyRows& dx = identity ? rows.dx : runner.At(Operand::kDx);
    const bool same_type = rows.dy.dtype == rows.dx.dtype;
    if (!rows.accumulate_dx)
      runner.Bind(Operand::kGradient, dx);
    else
      runner.Bind(Operand::kGradient, identity && same_type ? rows.dy : runner.At(Operand::kTemp2));
    runner.Run(HandrolledPasses(args.spec.kind, true));
  }
  if (!identity) runner.AddParameterGradients(rows);
}

const NormImplementationEntry& HandrolledNorm() { return kHandrolled; }

}  // namespace normlab::cpu
#endif  // HWY_ONCE
