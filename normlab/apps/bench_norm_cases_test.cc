#include "normlab/apps/bench_norm_cases.h"

#include <gtest/gtest.h>

#include "normlab/base/error.h"
#include "normlab/norms/norm_list.h"

namespace normlab::apps {
namespace {

TEST(BenchNormCasesTest, EveryCombinationOnce) {
  const auto cases = NormCases({.norms = "rmsnorm,fused_layernorm,rmsnorm",
                                .dtypes = "f32,mixed",
                                .shapes = "4x8,1x16",
                                .ops = "forward,accumulate",
                                .caches = "cold"});
  ASSERT_EQ(cases.size(), 2u * 2 * 2 * 2);
  EXPECT_EQ(cases[0].norm, (NormType{KindOf<RmsNorm>()}));
  EXPECT_EQ(cases.back().norm, (NormType{KindOf<LayerNorm>(), NormImplementation::kFused}));
  EXPECT_EQ(cases[1].shape, (NormShape{1, 16}));
  EXPECT_TRUE(cases[1].decode());
  EXPECT_FALSE(cases[0].decode());
  EXPECT_TRUE(cases[0].cold);
  EXPECT_EQ(NormCases({.norms = "all", .dtypes = "f32", .shapes = "2x2", .ops = "forward", .caches = "warm"})
                .size(),
            AllNorms::kInfos.size());
}

// The definition of GB/s: each input once and each output once.
TEST(BenchNormCasesTest, BytesAreInputsAndOutputs) {
  const auto bytes = [](RowTypes types, NormOp op) {
    return BytesOf({.types = types, .shape = {10, 100}, .op = op});
  };
  EXPECT_EQ(bytes(RowTypes::kF32, NormOp::kForward), 8000u);
  EXPECT_EQ(bytes(RowTypes::kF32, NormOp::kResidualForward), 16000u);
  EXPECT_EQ(bytes(RowTypes::kF32, NormOp::kBackward), 12000u);
  EXPECT_EQ(bytes(RowTypes::kF32, NormOp::kBackwardAccumulate), 16000u);
  EXPECT_EQ(bytes(RowTypes::kF16, NormOp::kBackward), 6000u);
  EXPECT_EQ(bytes(RowTypes::kMixed, NormOp::kForward), 6000u);           // x 4, y 2
  EXPECT_EQ(bytes(RowTypes::kMixed, NormOp::kResidualForward), 12000u);  // residual 4, x 2, sum 4, y 2
  EXPECT_EQ(bytes(RowTypes::kMixed, NormOp::kBackwardAccumulate), 14000u);
}

TEST(BenchNormCasesTest, TheStreamReadsAndWritesTheSameBytes) {
  std::vector<float> memory(4000);
  for (const RowTypes types : {RowTypes::kF32, RowTypes::kBF16, RowTypes::kF16, RowTypes::kMixed})
    for (const NormOp op :
         {NormOp::kForward, NormOp::kResidualForward, NormOp::kBackward, NormOp::kBackwardAccumulate}) {
      StreamArgs stream{.mix = MixOf(op)};
      for (const NormMatrix& matrix : MatricesOf(types, op)) {
        View& view = matrix.stream == 'a'   ? stream.a
                     : matrix.stream == 'b' ? stream.b
                     : matrix.stream == 'c' ? stream.c
                                            : stream.d;
        view = View::Dense(memory.data(), matrix.dtype, {10, 100});
      }
      EXPECT_EQ(StreamBytes(stream), BytesOf({.types = types, .shape = {10, 100}, .op = op}))
          << Name(types) << " " << Name(op);
    }
}

TEST(BenchNormCasesTest, RefusesWhatItDoesNotUnderstand) {
  const auto message = [](const NormCaseRequest& request) -> std::string {
    try {
      NormCases(request);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message({.norms = "rmsnrom"}).find("\"rmsnorm\""), std::string::npos);
  EXPECT_NE(message({.dtypes = "f23"}).find("\"f32\""), std::string::npos);
  EXPECT_NE(message({.ops = "forwrd"}).find("\"forward\""), std::string::npos);
  EXPECT_NE(message({.caches = "hot"}).find("--caches"), std::string::npos);
  for (const char* shape : {"2048", "2048x", "x768", "0x768", "2048x0", "-1x4", "2048x768x2", "4x2000000",
                            "2000000x1000000", "99999999999999999999x4", ""})
    EXPECT_NE(message({.shapes = shape}).find("--shapes"), std::string::npos) << shape;
  EXPECT_NE(message({.shapes = "4x4,,4x5"}).find("empty"), std::string::npos);
}

TEST(BenchNormCasesTest, WidthsOfASweep) {
  EXPECT_EQ(ParseWidths("8,4,8"), (std::vector<int64_t>{4, 8}));
  EXPECT_THROW(ParseWidths("8"), UsageError);
  EXPECT_THROW(ParseWidths("8,x"), UsageError);
  EXPECT_THROW(ParseWidths("8,0"), UsageError);
  const auto shapes = SweepShapes(ParseWidths(kSweepWidths));
  ASSERT_EQ(shapes.size(), 11u);
  for (const NormShape& shape : shapes)
    EXPECT_NEAR(static_cast<double>(shape.rows * shape.cols), 2048 * 768, static_cast<double>(shape.cols));
}

TEST(BenchNormCasesTest, ACliffIsAWidthMuchSlowerThanANeighbour) {  // N-23
  EXPECT_EQ(Cliffs({10, 9, 10, 11}), (std::vector<size_t>{}));
  EXPECT_EQ(Cliffs({10, 5, 10, 11}), (std::vector<size_t>{1}));
  EXPECT_EQ(Cliffs({10, 10, 4, 4}), (std::vector<size_t>{2}));  // the first of the slow ones
  EXPECT_EQ(Cliffs({4, 10}), (std::vector<size_t>{0}));
  EXPECT_EQ(Cliffs({10, 6.1, 10}), (std::vector<size_t>{}));
  EXPECT_EQ(Cliffs({10, 0, 10}), (std::vector<size_t>{}));  // not measured
}

TEST(BenchNormCasesTest, WhatLimits) {
  EXPECT_EQ(LimitOf({.seconds = 1e-6, .overhead_s = 5e-7, .share = 0.9}), "the call");
  EXPECT_EQ(LimitOf({.seconds = 1e-4, .overhead_s = 5e-7, .share = 0.9}), "memory");
  EXPECT_EQ(LimitOf({.seconds = 1e-4, .overhead_s = 5e-7, .share = 0.9, .in_cache = true}), "cache");
  EXPECT_EQ(LimitOf({.seconds = 1e-4, .overhead_s = 5e-7, .share = 0.5}), "compute");
  EXPECT_EQ(LimitOf({.seconds = 1e-4, .share = 0.5, .implementation = NormImplementation::kHandrolled}),
            "its passes");
}

}  // namespace
}  // namespace normlab::apps
