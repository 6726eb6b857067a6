#include "normlab/kernels/check_args.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

namespace normlab {
namespace {

[[noreturn]] void Refuse(const char* operation, const std::string& message) {
  throw std::logic_error(fmt::format("{}: {}", operation, message));
}

bool HasShape(const View& view, std::initializer_list<int64_t> shape) {
  if (view.rank != static_cast<int>(shape.size())) return false;
  int i = 0;
  for (const int64_t extent : shape)
    if (view.shape[i++] != extent) return false;
  return true;
}

// Checks one field after another; every message starts with the operation.
class Checker {
 public:
  Checker(const char* operation, DType dtype) : operation_(operation), dtype_(dtype) {}

  void That(bool condition, const char* what) const {
    if (!condition) Refuse(operation_, what);
  }
  void Rank(const char* name, const View& view, int rank) const {
    if (view.rank != rank)
      Refuse(operation_, fmt::format("{} is {}; it must have {} dimensions", name, view.ToString(), rank));
  }
  // Present (unless it has no elements), of this shape and dtype.
  void Shape(const char* name, const View& view, std::initializer_list<int64_t> shape, DType dtype) const {
    const bool present = !view.empty() || (view.rank > 0 && view.elements() == 0);
    if (present && view.dtype == dtype && HasShape(view, shape)) return;
    const View wanted = View::Dense(nullptr, dtype, shape);
    Refuse(operation_, fmt::format("{} is {}; it must be {}", name, present ? view.ToString() : "absent",
                                   wanted.ToString()));
  }
  void Shape(const char* name, const View& view, std::initializer_list<int64_t> shape) const {
    Shape(name, view, shape, dtype_);
  }
  // The same in the dtype that it has.
  void ShapeOnly(const char* name, const View& view, std::initializer_list<int64_t> shape) const {
    Shape(name, view, shape, view.dtype);
  }
  void Absent(const char* name, const View& view, const char* why) const {
    if (!view.empty()) Refuse(operation_, fmt::format("{} is given but {}", name, why));
  }
  // The last dimension has stride 1 (or nothing to step over).
  void AdjacentColumns(const char* name, const View& view) const {
    const int last = view.rank - 1;
    if (view.elements() > 0 && view.shape[last] > 1 && view.strides[last] != 1)
      Refuse(operation_, fmt::format("{} {} has a column stride of {}; columns must be adjacent", name,
                                     view.ToString(), view.strides[last]));
  }
  // Any matrix that a transposition of an adjacent-column one can be.
  void AdjacentRowsOrColumns(const char* name, const View& view) const {
    if (view.strides[0] == 1 || view.strides[1] == 1 || view.shape[0] <= 1 || view.shape[1] <= 1) return;
    Refuse(operation_, fmt::format("{} {} has strides {} and {}; its rows or its columns must be adjacent",
                                   name, view.ToString(), view.strides[0], view.strides[1]));
  }
  void Dense(const char* name, const View& view) const {
    if (!view.IsDense()) Refuse(operation_, fmt::format("{} {} must be dense", name, view.ToString()));
  }
  void Disjoint(const char* a_name, const View& a, const char* b_name, const View& b) const {
    if (Overlaps(a, b)) Refuse(operation_, fmt::format("{} and {} overlap and may not", a_name, b_name));
  }
  void SameOrDisjoint(const char* a_name, const View& a, const char* b_name, const View& b) const {
    if (!SameView(a, b) && Overlaps(a, b))
      Refuse(operation_, fmt::format("{} and {} overlap in part; they may be the same view or share nothing",
                                     a_name, b_name));
  }
  // A flat view, or none.
  void Flat(const char* name, const View& view) const {
    if (view.empty() || (view.dtype == dtype_ && view.rank == 1 && view.IsDense())) return;
    Refuse(operation_, fmt::format("{} is {}; it must be flat {}", name, view.ToString(), Name(dtype_)));
  }

 private:
  const char* operation_;
  DType dtype_;
};

// Weights, statistics and their gradients are of the compute dtype.
DType ParameterType(const View& x) { return x.dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// An activation of this type, beside parameters of that type: the same, or bf16 beside f32.
bool MayStandBeside(DType activation, DType parameter) {
  return activation == parameter || (activation == DType::kBF16 && parameter == DType::kF32);
}

void CheckSpec(const NormSpec& spec) {
  const NormInfo& info = InfoOf(spec.kind);
  if (!(spec.eps >= 0) || !IsFloat(spec.eps))
    Fail("the eps of {} is {}; it must be finite as a float, at least 0 (default {})", info.name, spec.eps,
         info.default_eps);
  if (!IsFloat(spec.weight_offset))
    Fail("the weight_offset of {} is {}; it must be finite as a float (default {})", info.name,
         spec.weight_offset, NormSpec{}.weight_offset);
  if (!(spec.fraction > 0 && spec.fraction <= 1))
    Fail("the fraction of {} is {}; it must be above 0 and at most 1 (default {})", info.name, spec.fraction,
         NormSpec{}.fraction);
}

// Absent exactly where the spec has no such parameter, else dense [cols].
void CheckParameter(const Checker& check, const char* name, const View& view, bool wanted, int64_t cols) {
  if (!wanted) return check.Absent(name, view, "the spec has none");
  check.Shape(name, view, {cols});
  check.AdjacentColumns(name, view);
}

// ---- The storage types of norms.

bool Is16Bits(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }
bool IsFloat(DType dtype) { return dtype != DType::kI32; }

using NamedViews = std::initializer_list<std::pair<const char*, const View*>>;

[[noreturn]] void RefuseTypes(const char* operation, const NamedViews& views, const char* allowed) {
  std::string found;
  for (const auto& [name, view] : views)
    if (!view->empty())
      found += fmt::format("{}{} is {}", found.empty() ? "" : ", ", name, Name(view->dtype));
  Refuse(operation, fmt::format("{}; {}", found, allowed));
}

void CheckForwardTypes(const char* operation, const NormForwardArgs& args) {
  const DType x = args.x.dtype, y = args.y.dtype, stream = args.residual.dtype;
  const bool residual = !args.residual.empty();
  const bool one = IsFloat(x) && y == x && (!residual || stream == x);
  const bool around_fp32 = residual && Is16Bits(x) && y == x && stream == DType::kF32;
  const bool narrowing = !residual && x == DType::kF32 && Is16Bits(y);
  const bool same_sum = args.sum.empty() || !residual || args.sum.dtype == stream;
  if ((one || around_fp32 || narrowing) && same_sum) return;
  RefuseTypes(operation, {{"x", &args.x}, {"residual", &args.residual}, {"sum", &args.sum}, {"y", &args.y}},
              "all must be of one type; or x and y bf16, or f16, with residual and sum f32; or x f32 and y "
              "bf16 or f16 without a residual");
}

void CheckBackwardTypes(const char* operation, const NormBackwardArgs& args) {
  const DType dy = args.dy.dtype, dx = args.dx.dtype, x = args.x.empty() ? dx : args.x.dtype;
  const bool one = IsFloat(dy) && x == dy && dx == dy;
  const bool around_fp32 = Is16Bits(dy) && x == DType::kF32 && dx == DType::kF32;
  // The reference device has one type, and keeps dx_low in it.
  const DType low = args.dx_low.dtype;
  const bool has_low = args.dx_low.empty() ||
                       (dx == DType::kF32 && Is16Bits(low) && (low == dy || dy == DType::kF32)) ||
                       (dx == DType::kF64 && low == dx);
  if ((one || around_fp32) && has_low) return;
  RefuseTypes(operation, {{"x", &args.x}, {"dy", &args.dy}, {"dx", &args.dx}, {"dx_low", &args.dx_low}},
              "all must be of one type; or x and dx f32 with dy bf16 or f16; and dx_low bf16 or f16 (dy's, "
              "where that is one of them) beside an f32 dx");
}

}  // namespace

bool IsFloat(double value) {
  return std::fabs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

bool SameView(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.strides[i] != b.strides[i])) return false;
  return true;
}

bool Overlaps(const View& a, const View& b) {
  if (a.empty() || b.empty() || a.elements() == 0 || b.elements() == 0) return false;
  const auto bytes_spanned = [](const View& view) {
    int64_t last = 0;
    for (int i = 0; i < view.rank; ++i) last += (view.shape[i] - 1) * view.strides[i];
    return (last + 1) * static_cast<int64_t>(SizeOf(view.dtype));
  };
  const auto a_begin = reinterpret_cast<intptr_t>(a.data), b_begin = reinterpret_cast<intptr_t>(b.data);
  if (a_begin + bytes_spanned(a) <= b_begin || b_begin + bytes_spanned(b) <= a_begin) return false;

  const auto rows_apart = [](const View& view) { return view.rank == 2 && view.strides[1] == 1; };
  if (!rows_apart(a) || !rows_apart(b) || a.dtype != b.dtype || a.strides[0] != b.strides[0]) return true;
  // Column c of a's row r lies at r * stride + c, that of b at distance + r * stride + c. They meet where two
  // rows, `shift` apart, have overlapping column ranges; only the two shifts nearest to the distance can.
  const int64_t size = static_cast<int64_t>(SizeOf(a.dtype)), stride = a.strides[0];
  if ((b_begin - a_begin) % size != 0 || stride < a.shape[1] || stride < b.shape[1]) return true;
  const int64_t distance = (b_begin - a_begin) / size;
  const int64_t nearest = distance >= 0 ? distance / stride : -((-distance + stride - 1) / stride);
  for (int64_t shift = nearest; shift <= nearest + 1; ++shift) {
    const bool rows_meet = shift < a.shape[0] && -shift < b.shape[0];
    const int64_t column = distance - shift * stride;  // where b's row starts, in columns of a
    if (rows_meet && column < a.shape[1] && -column < b.shape[1]) return true;
  }
  return false;
}

void CheckMatMul(const MatMulArgs& args) {
  using Epilogue = MatMulArgs::Epilogue;
  const Checker check("matmul", args.a.dtype);
  check.Rank("a", args.a, 2);
  check.Rank("b", args.b, 2);
  const int64_t m = args.a.shape[0], k = args.a.shape[1], n = args.b.shape[1];
  check.Shape("a", args.a, {m, k});
  check.Shape("b", args.b, {k, n});
  const bool widened = args.a.dtype == DType::kBF16 && args.c.dtype == DType::kF32;
  const DType result = widened ? DType::kF32 : args.a.dtype;
  check.Shape("c", args.c, {m, n}, result);
  check.AdjacentRowsOrColumns("a", args.a);
  check.AdjacentRowsOrColumns("b", args.b);
  check.AdjacentColumns("c", args.c);
  check.That(args.c.empty() || (args.c.data != args.a.data && args.c.data != args.b.data),
             "c overlaps an operand and may not");

  const bool biased = args.epilogue == Epilogue::kBias || args.epilogue == Epilogue::kBiasGelu;
  if (args.epilogue == Epilogue::kBias || !args.bias.empty()) {
    check.That(biased, "bias is given but the epilogue has none");
    check.Shape("bias", args.bias, {n}, ParameterType(args.a));
    check.AdjacentColumns("bias", args.bias);
  }
  if (args.epilogue == Epilogue::kBiasGelu) {
    check.Shape("gelu", args.gelu, {m, n}, result);
    check.AdjacentColumns("gelu", args.gelu);
    check.Disjoint("gelu", args.gelu, "c", args.c);
  } else {
    check.Absent("gelu", args.gelu, "the epilogue is not kBiasGelu");
  }
  if (args.epilogue == Epilogue::kGeluBackward) {
    check.Shape("z", args.z, {m, n}, result);
    check.AdjacentColumns("z", args.z);
    check.Disjoint("z", args.z, "c", args.c);
  } else {
    check.Absent("z", args.z, "the epilogue is not kGeluBackward");
  }
  check.That(!args.accumulate || args.epilogue == Epilogue::kNone, "accumulate goes with no epilogue only");
}

void CheckBiasGradient(const View& dy, const View& dbias) {
  const Checker check("bias_gradient", dy.dtype);
  check.Rank("dy", dy, 2);
  check.Shape("dy", dy, {dy.shape[0], dy.shape[1]});
  check.Shape("dbias", dbias, {dy.shape[1]}, ParameterType(dy));
  check.AdjacentColumns("dy", dy);
  check.AdjacentColumns("dbias", dbias);
  check.Disjoint("dy", dy, "dbias", dbias);
}

void CheckNormForward(const NormForwardArgs& args) {
  const Checker check("norm_forward", ParameterType(args.x));
  const NormInfo& info = InfoOf(args.spec.kind);
  CheckSpec(args.spec);
  check.Rank("x", args.x, 2);
  const int64_t rows = args.x.shape[0], cols = args.x.shape[1];
  check.That(cols > 0, "x has width 0; a norm needs at least one column");
  const bool residual = !args.residual.empty();
  check.ShapeOnly("x", args.x, {rows, cols});
  check.ShapeOnly("y", args.y, {rows, cols});
  if (residual) check.ShapeOnly("residual", args.residual, {rows, cols});
  if (!args.sum.empty() && rows > 0) {
    check.That(residual, "sum is given but there is no residual");
    check.ShapeOnly("sum", args.sum, {rows, cols});
  }
  CheckForwardTypes("norm_forward", args);
  for (const auto& [name, view] :
       {std::pair{"x", &args.x}, {"y", &args.y}, {"residual", &args.residual}, {"sum", &args.sum}})
    if (!view->empty()) check.AdjacentColumns(name, *view);
  CheckParameter(check, "weight", args.weight, info.has_gain && args.spec.gain, cols);
  CheckParameter(check, "bias", args.bias, info.has_bias && args.spec.bias, cols);
  CheckParameter(check, "alpha", args.alpha, info.has_alpha, 1);
  check.Flat("saved", args.saved);

  check.SameOrDisjoint("sum", args.sum, "x", args.x);
  check.SameOrDisjoint("sum", args.sum, "residual", args.residual);
  if (info.identity) {
    check.SameOrDisjoint("y", args.y, "x", args.x);
    check.SameOrDisjoint("y", args.y, "residual", args.residual);
    check.SameOrDisjoint("y", args.y, "sum", args.sum);
  } else if (residual) {
    check.Disjoint("y", args.y, "x", args.x);
    check.Disjoint("y", args.y, "residual", args.residual);
    check.Disjoint("y", args.y, "sum", args.sum);
  } else {
    check.SameOrDisjoint("y", args.y, "x", args.x);
  }
  for (const auto& [name, view] : {std::pair{"y", &args.y}, {"sum", &args.sum}, {"saved", &args.saved}}) {
    check.Disjoint(name, *view, "weight", args.weight);
    check.Disjoint(name, *view, "bias", args.bias);
    check.Disjoint(name, *view, "alpha", args.alpha);
  }
  for (const auto& [name, view] :
       {std::pair{"x", &args.x}, {"residual", &args.residual}, {"y", &args.y}, {"sum", &args.sum}})
    check.Disjoint("saved", args.saved, name, *view);
}

void CheckNormBackward(const NormBackwardArgs& args) {
  const Checker check("norm_backward", ParameterType(args.dy));
  const NormInfo& info = InfoOf(args.spec.kind);
  CheckSpec(args.spec);
  check.Rank("dy", args.dy, 2);
  const int64_t rows = args.dy.shape[0], cols = args.dy.shape[1];
  check.That(cols > 0, "dy has width 0; a norm needs at least one column");
  check.ShapeOnly("dy", args.dy, {rows, cols});
  check.ShapeOnly("dx", args.dx, {rows, cols});
  if (!info.identity || !args.x.empty()) check.ShapeOnly("x", args.x, {rows, cols});
  if (!args.dx_low.empty()) check.ShapeOnly("dx_low", args.dx_low, {rows, cols});
  CheckBackwardTypes("norm_backward", args);
  for (const auto& [name, view] :
       {std::pair{"x", &args.x}, {"dy", &args.dy}, {"dx", &args.dx}, {"dx_low", &args.dx_low}})
    if (!view->empty()) check.AdjacentColumns(name, *view);
  const bool gain = info.has_gain && args.spec.gain, bias = info.has_bias && args.spec.bias;
  CheckParameter(check, "weight", args.weight, gain, cols);
  CheckParameter(check, "dweight", args.dweight, gain, cols);
  CheckParameter(check, "dbias", args.dbias, bias, cols);
  CheckParameter(check, "alpha", args.alpha, info.has_alpha, 1);
  CheckParameter(check, "dalpha", args.dalpha, info.has_alpha, 1);
  check.Flat("saved", args.saved);

  if (args.accumulate_dx) {
    check.Disjoint("dx (accumulated)", args.dx, "dy", args.dy);
    check.Disjoint("dx (accumulated)", args.dx, "x", args.x);
  } else {
    check.SameOrDisjoint("dx", args.dx, "dy", args.dy);
    check.SameOrDisjoint("dx", args.dx, "x", args.x);
  }
  for (const auto& [name, view] : {std::pair{"x", &args.x}, {"dy", &args.dy}, {"dx", &args.dx}})
    check.Disjoint("dx_low", args.dx_low, name, *view);
  check.Disjoint("dweight", args.dweight, "dbias", args.dbias);
  check.Disjoint("dalpha", args.dalpha, "dweight", args.dweight);
  check.Disjoint("dalpha", args.dalpha, "dbias", args.dbias);
  for (const auto& [name, view] : {std::pair{"dx", &args.dx},
                                   {"dx_low", &args.dx_low},
                                   {"dweight", &args.dweight},
                                   {"dbias", &args.dbias},
                                   {"dalpha", &args.dalpha}}) {
    check.Disjoint(name, *view, "weight", args.weight);
    check.Disjoint(name, *view, "alpha", args.alpha);
    check.Disjoint(name, *view, "saved", args.saved);
  }
  for (const auto& [name, view] :
       {std::pair{"x", &args.x}, {"dy", &args.dy}, {"dx", &args.dx}, {"dx_low", &args.dx_low}}) {
    check.Disjoint("dweight", args.dweight, name, *view);
    check.Disjoint("dbias", args.dbias, name, *view);
    check.Disjoint("dalpha", args.dalpha, name, *view);
  }
}

void CheckAttentionForward(const AttentionForwardArgs& args) {
  const Checker check("attention_forward", args.q.dtype);
  check.Rank("q", args.q, 4);
  const int64_t b = args.q.shape[0], t = args.q.shape[1], h = args.q.shape[2], d = args.q.shape[3];
  check.That(d > 0, "q has head width 0");
  for (const auto& [name, view] : {std::pair{"q", &args.q}, {"k", &args.k}, {"v", &args.v}, {"o", &args.o}}) {
    check.Shape(name, *view, {b, t, h, d});
    check.AdjacentColumns(name, *view);
  }
  check.Shape("lse", args.lse, {b, h, t}, ParameterType(args.q));
  check.Dense("lse", args.lse);
}

void CheckAttentionBackward(const AttentionBackwardArgs& args) {
  const Checker check("attention_backward", args.q.dtype);
  check.Rank("q", args.q, 4);
  const int64_t b = args.q.shape[0], t = args.q.shape[1], h = args.q.shape[2], d = args.q.shape[3];
  check.That(d > 0, "q has head width 0");
  for (const auto& [name, view] : {std::pair{"q", &args.q},
                                   {"k", &args.k},
                                   {"v", &args.v},
                                   {"o", &args.o},
                                   {"d_o", &args.d_o},
                                   {"dq", &args.dq},
                                   {"dk", &args.dk},
                                   {"dv", &args.dv}}) {
    check.Shape(name, *view, {b, t, h, d});
    check.AdjacentColumns(name, *view);
  }
  check.Shape("lse", args.lse, {b, h, t}, ParameterType(args.q));
  check.Dense("lse", args.lse);
}

void CheckEmbeddingForward(const EmbeddingForwardArgs& args) {
  const Checker check("embedding_forward", args.token.dtype);
  check.Rank("ids", args.ids, 2);
  check.Rank("token", args.token, 2);
  check.Rank("position", args.position, 2);
  const int64_t b = args.ids.shape[0], t = args.ids.shape[1], v = args.token.shape[0],
                c = args.token.shape[1];
  check.Shape("ids", args.ids, {b, t}, DType::kI32);
  check.Dense("ids", args.ids);
  check.Shape("token", args.token, {v, c});
  check.Shape("position", args.position, {args.position.shape[0], c});
  check.That(args.position.shape[0] >= t, "position has fewer rows than the sequence is long");
  check.That(MayStandBeside(args.h.dtype, args.token.dtype),
             "h must be of the tables' type, or bf16 beside f32");
  check.Shape("h", args.h, {b * t, c}, args.h.dtype);
  for (const auto& [name, view] :
       {std::pair{"token", &args.token}, {"position", &args.position}, {"h", &args.h}})
    check.AdjacentColumns(name, *view);
}

void CheckEmbeddingBackward(const EmbeddingBackwardArgs& args) {
  const Checker check("embedding_backward", args.dtoken.dtype);
  check.Rank("ids", args.ids, 2);
  check.Rank("dtoken", args.dtoken, 2);
  check.Rank("dposition", args.dposition, 2);
  const int64_t b = args.ids.shape[0], t = args.ids.shape[1], v = args.dtoken.shape[0],
                c = args.dtoken.shape[1];
  check.Shape("ids", args.ids, {b, t}, DType::kI32);
  check.Dense("ids", args.ids);
  check.That(MayStandBeside(args.dh.dtype, args.dtoken.dtype),
             "dh must be of the tables' type, or bf16 beside f32");
  check.Shape("dh", args.dh, {b * t, c}, args.dh.dtype);
  check.Shape("dtoken", args.dtoken, {v, c});
  check.Shape("dposition", args.dposition, {args.dposition.shape[0], c});
  check.That(args.dposition.shape[0] >= t, "dposition has fewer rows than the sequence is long");
  for (const auto& [name, view] :
       {std::pair{"dh", &args.dh}, {"dtoken", &args.dtoken}, {"dposition", &args.dposition}})
    check.AdjacentColumns(name, *view);
}

void CheckCrossEntropy(const CrossEntropyArgs& args) {
  const Checker check("cross_entropy", args.logits.dtype);
  check.Rank("logits", args.logits, 2);
  const int64_t r = args.logits.shape[0], v = args.logits.shape[1];
  check.That(v > 0, "logits have width 0");
  check.Shape("logits", args.logits, {r, v});
  check.AdjacentColumns("logits", args.logits);
  check.Shape("targets", args.targets, {r}, DType::kI32);
  check.Dense("targets", args.targets);
  check.Shape("losses", args.losses, {r}, ParameterType(args.logits));
  check.Dense("losses", args.losses);
  if (!args.dlogits.empty()) {
    check.Shape("dlogits", args.dlogits, {r, v});
    check.AdjacentColumns("dlogits", args.dlogits);
    check.SameOrDisjoint("dlogits", args.dlogits, "logits", args.logits);
  }
}

void CheckAdamW(const AdamWArgs& args) {
  const Checker check("adamw", args.weight.dtype);
  const int64_t elements = args.weight.elements();
  for (const auto& [name, view] :
       {std::pair{"gradient", &args.gradient}, {"weight", &args.weight}, {"m", &args.m}, {"v", &args.v}}) {
    check.Shape(name, *view, {elements});
    check.Dense(name, *view);
  }
  check.That(0 <= args.decayed && args.decayed <= elements, "decayed lies outside the weights");
  check.That(args.step >= 1, "step counts from 1");
  if (args.low.empty()) return;
  check.Shape("low", args.low, {args.low.elements()}, DType::kBF16);
  check.Dense("low", args.low);
  check.That(
      args.low_begin >= 0 && args.low_begin % 16 == 0 && args.low.elements() <= elements - args.low_begin,
      "low must lie within the weights and begin at a multiple of 16");
}

void CheckSumSquares(const View& x, const View& to) {
  const Checker check("sum_squares", x.dtype);
  check.Shape("x", x, {x.elements()});
  check.Dense("x", x);
  check.Shape("to", to, {1}, DType::kF64);
}

void CheckCopy(const View& from, const View& to) {
  if (from.rank != to.rank || from.shape != to.shape)
    Refuse("copy",
           fmt::format("from is {} but to is {}; the shapes must be equal", from.ToString(), to.ToString()));
}

}  // namespace normlab
