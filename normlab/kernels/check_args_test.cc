// What callers of a device may not do, on both devices: the same refusals.

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "normlab/kernels/check_args.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/kernels/reference/reference_device.h"
#include "normlab/norms/norm_list.h"

namespace normlab {
namespace {

class CheckArgs : public ::testing::TestWithParam<const char*> {
 protected:
  // One block of memory from which every view of a test is cut.
  CheckArgs()
      : device_(std::string_view(GetParam()) == "cpu" ? MakeCpuDevice({.threads = 1})
                                                      : MakeReferenceDevice()),
        data_(device_->Allocate(kElements * 8)) {
    device_->Fill(Flat(0, kElements), 1);
  }
  ~CheckArgs() override { device_->Free(data_, kElements * 8); }

  View Flat(int64_t begin, int64_t count) const {
    return View::Dense(data_, device_->compute_dtype(), {kElements}).Slice(begin, begin + count);
  }
  // [rows, cols] at an element offset, rows `stride` apart.
  View Matrix(int64_t begin, int64_t rows, int64_t cols, int64_t stride = 0) const {
    View view = View::Dense(Flat(begin, 0).data, device_->compute_dtype(), {rows, cols});
    if (stride != 0) view.strides[0] = stride;
    return view;
  }
  // A valid LayerNorm call on [4, 8]; each test spoils one field.
  NormForwardArgs Forward() const {
    return {.spec = {.kind = KindOf<LayerNorm>()},
            .x = Matrix(0, 4, 8),
            .residual = {},
            .weight = Flat(100, 8),
            .bias = Flat(110, 8),
            .sum = {},
            .y = Matrix(200, 4, 8),
            .saved = Flat(300, 100)};
  }
  NormBackwardArgs Backward() const {
    return {.spec = {.kind = KindOf<LayerNorm>()},
            .x = Matrix(0, 4, 8),
            .dy = Matrix(50, 4, 8),
            .weight = Flat(100, 8),
            .saved = Flat(300, 100),
            .dx = Matrix(200, 4, 8),
            .dweight = Flat(120, 8),
            .dbias = Flat(130, 8)};
  }
  void Refuses(const NormForwardArgs& args) { EXPECT_THROW(device_->NormForward(args), std::logic_error); }
  void Accepts(const NormForwardArgs& args) { EXPECT_NO_THROW(device_->NormForward(args)); }
  void Refuses(const NormBackwardArgs& args) { EXPECT_THROW(device_->NormBackward(args), std::logic_error); }
  void Accepts(const NormBackwardArgs& args) { EXPECT_NO_THROW(device_->NormBackward(args)); }

  static bool Passes(const std::function<void()>& check) {
    try {
      check();
      return true;
    } catch (const std::logic_error&) {
      return false;
    }
  }

  static constexpr int64_t kElements = 1000;
  std::unique_ptr<Device> device_;
  void* data_;
};

INSTANTIATE_TEST_SUITE_P(Devices, CheckArgs, ::testing::Values("cpu", "reference"),
                         [](const auto& device) { return std::string(device.param); });

TEST_P(CheckArgs, NormAcceptsAPlainCall) {
  Accepts(Forward());
  Accepts(Backward());
}

// N-09: the same view or nothing in common.
TEST_P(CheckArgs, NormRefusesPartialOverlap) {
  NormForwardArgs forward = Forward();
  forward.y = forward.x;
  Accepts(forward);
  for (const int64_t shift : {1, 7, 8, 31}) {
    forward.y = Matrix(shift, 4, 8);
    Refuses(forward);
  }
  forward.y = Matrix(0, 4, 8, 9);  // the same start, another stride
  Refuses(forward);
  forward.y = Matrix(32, 4, 8);  // right behind
  Accepts(forward);

  NormBackwardArgs backward = Backward();
  Accepts(backward);
  backward.dx = backward.dy;
  Accepts(backward);
  backward.dx = backward.x;
  Accepts(backward);
  backward.dx = Matrix(1, 4, 8);
  Refuses(backward);
  backward.dx = Matrix(51, 4, 8);
  Refuses(backward);
}

TEST_P(CheckArgs, NormAcceptsColumnsOfOneMatrix) {
  NormForwardArgs args = Forward();
  args.x = Matrix(0, 4, 8, 24), args.y = Matrix(8, 4, 8, 24);
  args.weight = Flat(110, 8), args.bias = Flat(120, 8);
  Accepts(args);
  args.y = Matrix(4, 4, 8, 24);  // halfway into the columns of x
  Refuses(args);
  args.y = Matrix(20, 4, 8, 24);  // wraps into the columns of x, one row down
  Refuses(args);
}

TEST_P(CheckArgs, NormWithResidualRefusesYOnItsInputs) {
  NormForwardArgs args = Forward();
  args.residual = Matrix(400, 4, 8), args.sum = Matrix(450, 4, 8);
  Accepts(args);
  args.sum = args.x;
  Accepts(args);
  args.sum = args.residual;
  Accepts(args);
  args.sum = Matrix(401, 4, 8);
  Refuses(args);
  args.sum = {};
  Accepts(args);
  args.y = args.x;
  Refuses(args);
  args.y = args.residual;
  Refuses(args);
  args = Forward();
  args.sum = Matrix(450, 4, 8);  // without a residual
  Refuses(args);
}

TEST_P(CheckArgs, NormRefusesAccumulatingOntoAnInput) {
  NormBackwardArgs args = Backward();
  args.accumulate_dx = true;
  Accepts(args);
  args.dx = args.dy;
  Refuses(args);
  args.dx = args.x;
  Refuses(args);
}

// N-17.
TEST_P(CheckArgs, NormRefusesWidthZero) {
  NormForwardArgs forward = Forward();
  forward.x = Matrix(0, 3, 0), forward.y = Matrix(200, 3, 0), forward.weight = Flat(100, 0),
  forward.bias = Flat(110, 0);
  Refuses(forward);
  NormBackwardArgs backward = Backward();
  backward.x = backward.dy = backward.dx = Matrix(0, 3, 0);
  backward.weight = backward.dweight = backward.dbias = Flat(100, 0);
  Refuses(backward);
}

// N-15: a layout that is not supported is refused, not misread.
TEST_P(CheckArgs, NormRefusesColumnsThatAreNotAdjacent) {
  NormForwardArgs forward = Forward();
  forward.x = Matrix(0, 8, 4).Transposed();
  Refuses(forward);
  forward = Forward();
  forward.y.strides[1] = 2;
  Refuses(forward);
  NormBackwardArgs backward = Backward();
  backward.dy = Matrix(0, 8, 4).Transposed();
  Refuses(backward);
}

TEST_P(CheckArgs, NormRefusesWrongShapesAndDTypes) {
  const std::vector<std::function<void(NormForwardArgs&)>> mistakes = {
      [](NormForwardArgs& a) { a.y.shape[0] = 3; },
      [](NormForwardArgs& a) { a.y.shape[1] = 7; },
      [](NormForwardArgs& a) { a.weight = a.weight.Slice(0, 7); },
      [](NormForwardArgs& a) { a.weight = {}; },
      [](NormForwardArgs& a) { a.bias = {}; },
      [](NormForwardArgs& a) { a.spec.bias = false; },
      [](NormForwardArgs& a) { a.spec.gain = false; },
      [](NormForwardArgs& a) { a.saved = {}; },
      [](NormForwardArgs& a) { a.saved = a.saved.Slice(0, 1); },
      [](NormForwardArgs& a) { a.x.dtype = DType::kBF16; },
      [](NormForwardArgs& a) {
        a.weight = a.x.Slice(0, 1).Reshaped({8}), a.y = a.x;
      },  // y overwrites the weight
  };
  for (const auto& spoil : mistakes) {
    NormForwardArgs args = Forward();
    spoil(args);
    Refuses(args);
  }
  NormBackwardArgs backward = Backward();
  backward.dweight = {};
  Refuses(backward);
}

// N-07: eps comes from a configuration, so a bad one is the user's mistake and is named.
TEST_P(CheckArgs, NormRefusesANegativeOrNaNEps) {
  for (const double eps : {-1e-5, std::nan(""), std::numeric_limits<double>::infinity(), 1e39}) {
    NormForwardArgs args = Forward();
    args.spec.eps = eps;
    EXPECT_THROW(device_->NormForward(args), Error) << eps;
    NormBackwardArgs backward = Backward();
    backward.spec.eps = eps;
    EXPECT_THROW(device_->NormBackward(backward), Error) << eps;
  }
}

TEST_P(CheckArgs, NormRefusesAnOffsetThatNoFloatHolds) {
  for (const double offset : {std::nan(""), -std::numeric_limits<double>::infinity(), 1e39}) {
    NormForwardArgs args = Forward();
    args.spec.weight_offset = offset;
    EXPECT_THROW(device_->NormForward(args), Error) << offset;
    NormBackwardArgs backward = Backward();
    backward.spec.weight_offset = offset;
    EXPECT_THROW(device_->NormBackward(backward), Error) << offset;
  }
  NormForwardArgs args = Forward();
  args.spec.weight_offset = -3e38;
  Accepts(args);
}

TEST_P(CheckArgs, MessagesNameTheFieldAndBothShapes) {
  NormForwardArgs args = Forward();
  args.weight = Flat(100, 7);
  try {
    device_->NormForward(args);
    ADD_FAILURE() << "accepted";
  } catch (const std::logic_error& error) {
    for (const char* part : {"norm_forward", "weight", "[7]", "[8]"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// N-19: which storage types go together, against the list of device.h, for every combination.
TEST_P(CheckArgs, NormTakesTheSetsOfStorageTypesThatItNamesAndNoOther) {
  const DType kAll[] = {DType::kF32, DType::kBF16, DType::kF16};
  const auto low = [](DType d) { return d != DType::kF32; };
  const auto in = [&](View view, DType dtype) {
    view.dtype = dtype;
    return view;
  };
  for (const DType x : kAll)
    for (const DType y : kAll) {
      NormForwardArgs plain = Forward();
      plain.weight.dtype = plain.bias.dtype = plain.saved.dtype = DType::kF32;
      plain.x = in(plain.x, x), plain.y = in(plain.y, y);
      const bool fits = x == y || (x == DType::kF32 && low(y));
      EXPECT_EQ(Passes([&] { CheckNormForward(plain); }), fits) << Name(x) << " " << Name(y);
      for (const DType stream : kAll)
        for (const DType sum : kAll) {
          NormForwardArgs args = plain;
          args.residual = in(Matrix(400, 4, 8), stream), args.sum = in(Matrix(450, 4, 8), sum);
          const bool set = x == y && sum == stream && (stream == x || stream == DType::kF32);
          EXPECT_EQ(Passes([&] { CheckNormForward(args); }), set)
              << Name(x) << " " << Name(stream) << " " << Name(sum) << " " << Name(y);
        }
      for (const DType dx : kAll) {
        NormBackwardArgs args = Backward();
        args.weight.dtype = args.saved.dtype = args.dweight.dtype = args.dbias.dtype = DType::kF32;
        args.x = in(args.x, x), args.dy = in(args.dy, y), args.dx = in(args.dx, dx);
        const bool set = x == dx && (y == x || x == DType::kF32);
        EXPECT_EQ(Passes([&] { CheckNormBackward(args); }), set) << Name(x) << Name(y) << Name(dx);
        for (const DType copy : kAll) {
          args.dx_low = in(Matrix(500, 4, 8), copy);
          const bool with_copy = set && dx == DType::kF32 && low(copy) && (copy == y || !low(y));
          EXPECT_EQ(Passes([&] { CheckNormBackward(args); }), with_copy)
              << Name(x) << Name(y) << Name(dx) << Name(copy);
        }
      }
    }
  NormForwardArgs args = Forward();
  args.x = in(args.x, DType::kBF16), args.y = in(args.y, DType::kF16);
  args.weight.dtype = args.bias.dtype = args.saved.dtype = DType::kF32;
  try {
    CheckNormForward(args);
    ADD_FAILURE() << "accepted";
  } catch (const std::logic_error& error) {
    for (const char* part : {"norm_forward", "x is bf16", "y is f16", "must be of one type"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  // The parameters of 16-bit rows are fp32.
  args.y.dtype = DType::kBF16;
  EXPECT_TRUE(Passes([&] { CheckNormForward(args); }));
  args.weight.dtype = DType::kBF16;
  EXPECT_FALSE(Passes([&] { CheckNormForward(args); }));
}

TEST_P(CheckArgs, NormRefusesADxLowThatOverlaps) {
  NormBackwardArgs args = Backward();
  args.dx_low = Matrix(400, 4, 8);
  if (device_->compute_dtype() == DType::kF32) args.dx_low.dtype = DType::kBF16;
  Accepts(args);
  for (View NormBackwardArgs::*field : {&NormBackwardArgs::x, &NormBackwardArgs::dy, &NormBackwardArgs::dx}) {
    NormBackwardArgs wrong = args;
    wrong.dx_low.data = (args.*field).data;
    Refuses(wrong);
  }
}

TEST_P(CheckArgs, MatMulRefusesWrongShapes) {
  const MatMulArgs good{
      .a = Matrix(0, 4, 8), .b = Matrix(100, 8, 5), .bias = {}, .z = {}, .c = Matrix(200, 4, 5), .gelu = {}};
  EXPECT_NO_THROW(device_->MatMul(good));
  const std::vector<std::function<void(MatMulArgs&)>> mistakes = {
      [&](MatMulArgs& m) { m.b = Matrix(100, 7, 5); },
      [&](MatMulArgs& m) { m.c = Matrix(200, 5, 4); },
      [&](MatMulArgs& m) { m.c = Matrix(200, 5, 4).Transposed(); },
      [&](MatMulArgs& m) { m.c = Matrix(0, 4, 5); },
      [&](MatMulArgs& m) {
        m.a.strides = {16, 2};
      },
      [&](MatMulArgs& m) { m.bias = Flat(300, 5); },
      [&](MatMulArgs& m) { m.epilogue = MatMulArgs::Epilogue::kBias; },
      [&](MatMulArgs& m) { m.epilogue = MatMulArgs::Epilogue::kBiasGelu; },
      [&](MatMulArgs& m) { m.epilogue = MatMulArgs::Epilogue::kGeluBackward; },
      [&](MatMulArgs& m) {
        m.epilogue = MatMulArgs::Epilogue::kBias, m.bias = Flat(300, 5), m.accumulate = true;
      },
      [&](MatMulArgs& m) { m.epilogue = MatMulArgs::Epilogue::kBias, m.bias = Flat(300, 4); },
      [&](MatMulArgs& m) { m.gelu = Matrix(300, 4, 5); },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    MatMulArgs args = good;
    mistakes[i](args);
    EXPECT_THROW(device_->MatMul(args), std::logic_error) << "mistake " << i;
  }
}

TEST(Overlaps, IsExactForColumnsOfOneMatrix) {
  double data[100];
  const auto view = [&](int64_t begin, int64_t rows, int64_t cols, int64_t stride) {
    View v = View::Dense(data + begin, DType::kF64, {rows, cols});
    v.strides[0] = stride;
    return v;
  };
  // Against the definition, for every pair of small strided matrices.
  for (int64_t begin = 0; begin < 40; ++begin)
    for (int64_t a_cols = 1; a_cols <= 10; ++a_cols)
      for (int64_t b_cols = 1; b_cols <= 10; ++b_cols)
        for (const int64_t a_rows : {1, 3})
          for (const int64_t b_rows : {1, 2}) {
            const View a = view(15, a_rows, a_cols, 10), b = view(begin, b_rows, b_cols, 10);
            bool shares = false;
            for (int64_t i = 0; i < a_rows * a_cols; ++i)
              for (int64_t j = 0; j < b_rows * b_cols; ++j)
                shares |= 15 + i / a_cols * 10 + i % a_cols == begin + j / b_cols * 10 + j % b_cols;
            ASSERT_EQ(Overlaps(a, b), shares)
                << begin << " " << a_rows << "x" << a_cols << " " << b_rows << "x" << b_cols;
            ASSERT_EQ(Overlaps(b, a), shares);
          }
}

}  // namespace
}  // namespace normlab
