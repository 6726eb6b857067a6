// Can the checker of norms fail? It is fed norms that are wrong in the ways that norms have been wrong in
// practice, and must report each; and right fp32 ones, which it must accept.

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "normlab/kernels/reference/host_row.h"
#include "normlab/testing/norm_check.h"

namespace normlab::test {
namespace {

// A float32 answer to a problem by the body of `Norm`, on host memory.
template <class Norm>
NormAnswer AnswerOf(const NormProblem& p) {
  const auto floats = [](const Values& v) { return std::vector<float>(v.begin(), v.end()); };
  const auto doubles = [](const std::vector<float>& v) { return Values(v.begin(), v.end()); };
  const auto view = [](std::vector<float>& v, int64_t rows, int64_t cols) {
    return v.empty() ? View{} : View::Dense(v.data(), DType::kF32, {rows, cols});
  };
  const auto flat = [](std::vector<float>& v) {
    return v.empty() ? View{} : View::Dense(v.data(), DType::kF32, {static_cast<int64_t>(v.size())});
  };
  std::vector<float> x = floats(p.x), residual = floats(p.residual), weight = floats(p.weight),
                     bias = floats(p.bias), alpha = floats(p.alpha);
  std::vector<float> sum(residual.size()), y(x.size()), saved(static_cast<size_t>(p.rows * 8));
  reference::RunNormForward<Norm, float>({.spec = p.spec,
                                          .x = view(x, p.rows, p.cols),
                                          .residual = view(residual, p.rows, p.cols),
                                          .weight = flat(weight),
                                          .bias = flat(bias),
                                          .alpha = flat(alpha),
                                          .sum = view(sum, p.rows, p.cols),
                                          .y = view(y, p.rows, p.cols),
                                          .saved = flat(saved)});
  std::vector<float> normalized = floats(p.Normalized()), dy = floats(p.dy), dx = floats(p.dx_before);
  std::vector<float> dweight = floats(p.dweight_before), dbias = floats(p.dbias_before),
                     dalpha = floats(p.dalpha_before);
  reference::RunNormBackward<Norm, float>({.spec = p.spec,
                                           .x = view(normalized, p.rows, p.cols),
                                           .dy = view(dy, p.rows, p.cols),
                                           .weight = flat(weight),
                                           .alpha = flat(alpha),
                                           .saved = flat(saved),
                                           .dx = view(dx, p.rows, p.cols),
                                           .dweight = flat(dweight),
                                           .dbias = flat(dbias),
                                           .dalpha = flat(dalpha),
                                           .accumulate_dx = p.accumulate_dx,
                                           .accumulate_dparams = p.accumulate_dparams});
  return {.sum = doubles(sum),
          .y = doubles(y),
          .dx = doubles(dx),
          .dweight = doubles(dweight),
          .dbias = doubles(dbias),
          .dalpha = doubles(dalpha)};
}

enum class Fault {
  kNone,
  kEps,                // a tenth of the eps that was asked for
  kSampleVariance,     // divides by cols - 1
  kOnePassVariance,    // E[x^2] - mean^2
  kPaddingInVariance,  // columns up to the next multiple of 8 count as zeros that were centred (N-12)
  kNoMeanOfGradient,   // dx without - mean(g)
  kMeanTwice,          // dx with - 2 mean(g) (N-24)
  kNoProjection,       // dx without - xhat mean(g xhat)
  kNoGainInGradient,   // g = dy
  kDweightOfX,         // dweight += dy x
  kLastColumn,         // y of the last column not written
};

// LayerNorm, or RMSNorm where kCentre is false, with one fault.
template <Fault kFault, bool kCentre>
struct FaultyNorm {
  static constexpr NormInfo kInfo{
      .name = "faulty", .formula = "", .source = "", .has_bias = kCentre, .saved_per_row = 2};
  template <class Row>
  static void Forward(Row& r, const NormNumbers<float>& numbers) {
    const float cols = static_cast<float>(r.cols());
    const float mean = kCentre ? r.Sum([&](int64_t c) { return r.x(c); }) / cols : 0;
    float sum = r.Sum([&](int64_t c) { return (r.x(c) - mean) * (r.x(c) - mean); });
    if (kFault == Fault::kOnePassVariance)
      sum = r.Sum([&](int64_t c) { return r.x(c) * r.x(c); }) - cols * mean * mean;
    if (kFault == Fault::kPaddingInVariance) sum += static_cast<float>((8 - r.cols() % 8) % 8) * mean * mean;
    const float var = sum / (kFault == Fault::kSampleVariance ? cols - 1 : cols);
    const float inv = r.Rsqrt(var + (kFault == Fault::kEps ? numbers.eps / 10 : numbers.eps));
    r.Save(0, mean);
    r.Save(1, inv);
    const int64_t written = kFault == Fault::kLastColumn ? r.cols() - 1 : r.cols();
    r.ForEach([&](int64_t c) { r.SetY(c, c < written ? (r.x(c) - mean) * inv * r.gain(c) + r.bias(c) : 0); });
  }
  template <class Row>
  static void Backward(Row& r, const NormNumbers<float>&) {
    const float cols = static_cast<float>(r.cols()), mean = r.Saved(0), inv = r.Saved(1);
    const auto g = [&](int64_t c) {
      return kFault == Fault::kNoGainInGradient ? r.dy(c) : r.dy(c) * r.gain(c);
    };
    float mean_g = kCentre ? r.Sum(g) / cols : 0;
    if (kFault == Fault::kNoMeanOfGradient) mean_g = 0;
    if (kFault == Fault::kMeanTwice) mean_g *= 2;
    float mean_gx = r.Sum([&](int64_t c) { return g(c) * ((r.x(c) - mean) * inv); }) / cols;
    if (kFault == Fault::kNoProjection) mean_gx = 0;
    r.ForEach([&](int64_t c) {
      const float xhat = (r.x(c) - mean) * inv;
      r.AddDgain(c, r.dy(c) * (kFault == Fault::kDweightOfX ? r.x(c) : xhat));
      r.AddDbias(c, r.dy(c));
      r.SetDx(c, inv * (g(c) - mean_g - xhat * mean_gx));
    });
  }
};

enum class PartialFault { kFraction, kDivisor, kProjectsAllColumns };

// Partial RMSNorm with the statistic of all columns, with the sum of k columns divided by cols, or with a dx
// that projects every column.
template <PartialFault kFault>
struct FaultyPartial {
  static constexpr NormInfo kInfo = PartialRmsNorm::kInfo;
  template <class Row>
  static void Forward(Row& r, const NormNumbers<float>& numbers) {
    NormNumbers<float> wrong = numbers;
    if (kFault == PartialFault::kFraction) wrong.partial_cols = r.cols();
    PartialRmsNorm::Forward(r, wrong);
    if (kFault != PartialFault::kDivisor) return;
    const int64_t k = numbers.partial_cols;
    const float square = r.SumFirst(k, [&](int64_t c) { return r.x(c) * r.x(c); });
    const float inv_rms = r.Rsqrt(square / static_cast<float>(r.cols()) + numbers.eps);
    r.Save(0, inv_rms);
    r.ForEach([&](int64_t c) { r.SetY(c, r.x(c) * inv_rms * r.gain(c)); });
  }
  template <class Row>
  static void Backward(Row& r, const NormNumbers<float>& numbers) {
    PartialRmsNorm::Backward(r, numbers);
    if (kFault != PartialFault::kProjectsAllColumns) return;
    const float inv_rms = r.Saved(0), k = static_cast<float>(numbers.partial_cols);
    const float mean_gx = r.Sum([&](int64_t c) { return r.dy(c) * r.gain(c) * (r.x(c) * inv_rms); }) / k;
    r.ForEach([&](int64_t c) { r.SetDx(c, inv_rms * (r.dy(c) * r.gain(c) - r.x(c) * inv_rms * mean_gx)); });
  }
};

enum class DytFault { kSlope, kAlphaOutside, kDalphaWithoutGain, kDalphaWithoutX };

// DyT without the slope of the tanh in dx, with alpha * tanh(x), or with a wrong gradient of alpha.
template <DytFault kFault>
struct FaultyDyt {
  static constexpr NormInfo kInfo = Dyt::kInfo;
  template <class Row>
  static void Forward(Row& r, const NormNumbers<float>& numbers) {
    if (kFault != DytFault::kAlphaOutside) return Dyt::Forward(r, numbers);
    r.ForEach([&](int64_t c) { r.SetY(c, r.alpha() * r.Tanh(r.x(c)) * r.gain(c) + r.bias(c)); });
  }
  template <class Row>
  static void Backward(Row& r, const NormNumbers<float>&) {
    const auto t = [&](int64_t c) { return r.Tanh(r.alpha() * r.x(c)); };
    const auto slope = [&](int64_t c) { return 1 - t(c) * t(c); };
    r.AddDalpha(r.Sum([&](int64_t c) {
      return r.dy(c) * (kFault == DytFault::kDalphaWithoutGain ? 1 : r.gain(c)) * slope(c) *
             (kFault == DytFault::kDalphaWithoutX ? 1 : r.x(c));
    }));
    r.ForEach([&](int64_t c) {
      r.AddDgain(c, r.dy(c) * t(c));
      r.AddDbias(c, r.dy(c));
      r.SetDx(c, r.alpha() * r.dy(c) * r.gain(c) * (kFault == DytFault::kSlope ? 1 : slope(c)));
    });
  }
};

// Re-centring whose gradient forgets the mean.
struct FaultyRecenter {
  static constexpr NormInfo kInfo = Recenter::kInfo;
  template <class Row>
  static void Forward(Row& r, const NormNumbers<float>& numbers) {
    Recenter::Forward(r, numbers);
  }
  template <class Row>
  static void Backward(Row& r, const NormNumbers<float>&) {
    r.ForEach([&](int64_t c) { r.SetDx(c, r.dy(c)); });
  }
};

using Answer = std::function<NormAnswer(const NormProblem&)>;

struct Candidate {
  const char* name;
  NormKind kind;
  bool right;
  Answer answer;
};

// The shapes and offsets of the conformance test, thinned: a fault has to show on one of them.
double WorstOf(const Candidate& candidate) {
  double worst = 0;
  uint64_t seed = Seed() * 1000;
  for (const int64_t cols : {3, 7, 8, 33, 128, 768}) {
    for (const double mean : {0.0, 3.0, 1000.0}) {
      const NormProblem p = RandomNormProblem(
          {.kind = candidate.kind}, 7, cols,
          {.mean = mean, .residual = true, .accumulate_dx = true, .accumulate_dparams = true}, ++seed);
      worst = std::max(worst, CheckNorm(candidate.answer(p), Expect(p)).worst());
    }
  }
  return worst;
}

template <Fault kFault>
Candidate Layer(const char* name) {
  return {name, KindOf<LayerNorm>(), kFault == Fault::kNone, AnswerOf<FaultyNorm<kFault, true>>};
}
template <Fault kFault>
Candidate Rms(const char* name) {
  return {name, KindOf<RmsNorm>(), kFault == Fault::kNone, AnswerOf<FaultyNorm<kFault, false>>};
}

// The right norm, whose answer or question is then spoiled.
Candidate Spoiled(const char* name, NormKind kind, const std::function<void(NormProblem&)>& question,
                  const std::function<void(NormAnswer&)>& spoil) {
  return {name, kind, false, [=](const NormProblem& p) {
            NormProblem asked = p;
            if (question) question(asked);
            NormAnswer answer =
                AllNorms::Visit(kind, [&](auto norm) { return AnswerOf<decltype(norm)>(asked); });
            if (spoil) spoil(answer);
            return answer;
          }};
}

std::vector<Candidate> Candidates() {
  std::vector<Candidate> list = {
      Layer<Fault::kNone>("RightLayerNormWrittenAgain"),
      Rms<Fault::kNone>("RightRmsNormWrittenAgain"),
      Layer<Fault::kEps>("LayerNormWithAnotherEps"),
      Rms<Fault::kEps>("RmsNormWithAnotherEps"),
      Layer<Fault::kSampleVariance>("LayerNormWithSampleVariance"),
      Rms<Fault::kSampleVariance>("RmsNormWithSampleVariance"),
      Layer<Fault::kOnePassVariance>("OnePassVariance"),
      Layer<Fault::kPaddingInVariance>("PaddingInTheVariance"),
      Layer<Fault::kNoMeanOfGradient>("LayerNormWithoutMeanOfGradient"),
      Layer<Fault::kMeanTwice>("LayerNormWithMeanOfGradientTwice"),
      Layer<Fault::kNoProjection>("LayerNormWithoutProjection"),
      Rms<Fault::kNoProjection>("RmsNormWithoutProjection"),
      Layer<Fault::kNoGainInGradient>("LayerNormGradientWithoutGain"),
      Rms<Fault::kNoGainInGradient>("RmsNormGradientWithoutGain"),
      Rms<Fault::kDweightOfX>("RmsNormDweightOfX"),
      Layer<Fault::kLastColumn>("LastColumnNotWritten"),
      {"LayerNormForRmsNorm", KindOf<RmsNorm>(), false, AnswerOf<LayerNorm>},
      {"StatisticOfAllColumns", KindOf<PartialRmsNorm>(), false,
       AnswerOf<FaultyPartial<PartialFault::kFraction>>},
      {"DividedByTheWidth", KindOf<PartialRmsNorm>(), false, AnswerOf<FaultyPartial<PartialFault::kDivisor>>},
      {"ProjectsAllColumns", KindOf<PartialRmsNorm>(), false,
       AnswerOf<FaultyPartial<PartialFault::kProjectsAllColumns>>},
      {"WithoutSlope", KindOf<Dyt>(), false, AnswerOf<FaultyDyt<DytFault::kSlope>>},
      {"AlphaOutside", KindOf<Dyt>(), false, AnswerOf<FaultyDyt<DytFault::kAlphaOutside>>},
      {"DalphaWithoutGain", KindOf<Dyt>(), false, AnswerOf<FaultyDyt<DytFault::kDalphaWithoutGain>>},
      {"DalphaWithoutX", KindOf<Dyt>(), false, AnswerOf<FaultyDyt<DytFault::kDalphaWithoutX>>},
      {"WithoutMeanOfGradient", KindOf<Recenter>(), false, AnswerOf<FaultyRecenter>},
  };
  const auto no_residual = [](NormProblem& p) { p.residual.assign(p.residual.size(), 0); };
  const auto set_dx = [](NormProblem& p) { p.accumulate_dx = false; };
  const auto set_dparams = [](NormProblem& p) { p.accumulate_dparams = false; };
  const auto nan = [](NormAnswer& a) { a.y.back() = kNaN; };
  const auto one_ulp = [](NormAnswer& a) { a.sum[0] = std::nextafter(static_cast<float>(a.sum[0]), 1e9f); };
  const auto missing = [](NormAnswer& a) { a.dx.pop_back(); };
  const auto touched = [](NormAnswer& a) { a.guards_intact = false; };
  for (const NormKind kind : AllKinds()) {
    list.push_back({"Right", kind, true,
                    AllNorms::Visit(kind, [](auto norm) { return Answer(AnswerOf<decltype(norm)>); })});
    list.push_back(Spoiled("ResidualDropped", kind, no_residual, nullptr));
    list.push_back(Spoiled("DxSetInsteadOfAdded", kind, set_dx, nullptr));
    list.push_back(Spoiled("ANaN", kind, nullptr, nan));
    list.push_back(Spoiled("SumOffByOneUlp", kind, nullptr, one_ulp));
    list.push_back(Spoiled("ElementMissing", kind, nullptr, missing));
    list.push_back(Spoiled("MemoryBesideTheOutputs", kind, nullptr, touched));
    if (InfoOf(kind).has_gain)
      list.push_back(Spoiled("DparamsSetInsteadOfAdded", kind, set_dparams, nullptr));
  }
  return list;
}

class NormChecker : public ::testing::TestWithParam<Candidate> {};

INSTANTIATE_TEST_SUITE_P(Meta, NormChecker, ::testing::ValuesIn(Candidates()), [](const auto& entry) {
  return std::string(InfoOf(entry.param.kind).name) + "_" + entry.param.name;
});

TEST_P(NormChecker, AcceptsTheRightAndReportsTheWrong) {
  const double worst = WorstOf(GetParam());
  std::printf("[  worst   ] error/tolerance %.3g\n", worst);
  if (GetParam().right)
    EXPECT_LE(worst, 1);
  else
    EXPECT_GT(worst, 1);
}

TEST(ErrorShare, NaNAndInfiniteErrorsFailWhateverTheTolerance) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ErrorShare(kNaN, 1, 1), inf);
  EXPECT_EQ(ErrorShare(1, kNaN, 1), inf);
  EXPECT_EQ(ErrorShare(1, 1.5, kNaN), inf);
  EXPECT_EQ(ErrorShare(inf, 1, inf), inf);
  EXPECT_EQ(ErrorShare(1, 2, 0), inf);
  EXPECT_EQ(ErrorShare(2, 2, 0), 0);
  EXPECT_DOUBLE_EQ(ErrorShare(1, 1.5, 1), 0.5);
}

TEST(Comparison, FailsWhereNothingWasCompared) { EXPECT_FALSE(Within(Comparison("empty"), "")); }

}  // namespace
}  // namespace normlab::test
