// Attention of the CPU device against the reference: odd lengths and widths, q, k and v as thirds of one
// matrix or dense, every instruction set, equal bits on any number of threads.
//
// Bounds, u = 2^-24. A score s = q.k / sqrt(D) has an error of es = (4 + sqrt D) u sum|q k| / sqrt(D) + 2 u
// |s|. exp(s - m) adds u |s - m| for the difference and 2e-7 = 3.4 u for the function. Let E[i] = max_j (es +
// u |s - m|) + 4 u.
//   forward   p = exp / sum has a relative error of 2 E + (4 + sqrt T) u;  o adds (4 + sqrt T) u for its own
//   sum over j
//             lse: E + (4 + sqrt T) u + 2 u |lse|
//   backward  (given the same fp32 o and lse)  p: P = E with m = lse, + u;  dp = do.v and delta = do.o: (4 +
//   sqrt D) u sum| |
//             ds = p (dp - delta) / sqrt(D): |ds| (P + 3 u) + p (e_dp + e_delta) / sqrt(D);  each of dq, dk,
//             dv carries these through its sum and adds (4 + sqrt T) u of the sum of magnitudes.
// What is stored as bf16 is rounded once more, w = 2^-8; and in bf16 the probabilities and the gradients of
// scores may be rounded to bf16 before the products that read them: p and ds each have a relative error of w
// more there.
// Below e^-87 = 1.6e-38 an exponential is 0 (denormals are flushed everywhere): kTiny covers that in every p.

#include <algorithm>
#include <cmath>

#include "normlab/testing/cpu_against_reference.h"

namespace normlab::test {
namespace {

constexpr double kU = kUnitF32;
constexpr double kTiny = 2e-38;
constexpr double kUnitBf16 = 0x1p-8;
constexpr double kCoarseExp = 6e-5;  // relative error of an exponential whose result is rounded to bf16

struct Shape {
  int64_t b, t, h, d;
  int64_t elements() const { return b * t * h * d; }
};

// q, k and v next to each other in the rows of one matrix [B T, 3 H D], or each alone.
class Heads {
 public:
  Heads(Device& device, const Shape& s, const Values& q, const Values& k, const Values& v, bool thirds,
        DType type = DType::kF32)
      : Heads(device, s, thirds, type) {
    device.Upload(q, view(0)), device.Upload(k, view(1)), device.Upload(v, view(2));
  }
  Heads(Device& device, const Shape& s, bool thirds, DType type = DType::kF32)
      : shape_(s), thirds_(thirds), data_(device, {3 * s.elements()}, device.StorageType(type)) {}

  View view(int which) const {
    const auto& [b, t, h, d] = shape_;
    const int64_t begin = thirds_ ? which * h * d : which * shape_.elements();
    View view = View::Dense(data_.view().Slice(begin, begin).data, data_.view().dtype, {b, t, h, d});
    if (thirds_) view.strides = {t * 3 * h * d, 3 * h * d, d, 1};
    return view;
  }
  Values Read(int which) const { return data_.Read(view(which)); }

 private:
  Shape shape_;
  bool thirds_;
  Tensor data_;
};

// Element [b, t, h, :] of dense values.
const double* Row(const Values& v, const Shape& s, int64_t b, int64_t t, int64_t h) {
  return v.data() + ((b * s.t + t) * s.h + h) * s.d;
}
double* Row(Values& v, const Shape& s, int64_t b, int64_t t, int64_t h) {
  return v.data() + ((b * s.t + t) * s.h + h) * s.d;
}

struct Dot {
  double sum = 0, magnitude = 0;
  Dot(const double* x, const double* y, int64_t d) {
    for (int64_t c = 0; c < d; ++c) sum += x[c] * y[c], magnitude += std::abs(x[c] * y[c]);
  }
};

class CpuAttention : public CpuAgainstReference {
 protected:
  void CheckBoth(const Shape& s, bool thirds, double spread = 1) {
    CheckBoth(s, thirds, spread, DType::kF32);
  }
  void CheckBothBf16(const Shape& s, bool thirds, double spread = 1) {
    CheckBoth(s, thirds, spread, DType::kBF16);
  }

  void CheckBoth(const Shape& s, bool thirds, double spread, DType type) {
    const double stored = type == DType::kBF16 ? kUnitBf16 : 0;
    const auto random = [&](const char* name, double width = 1) {
      Values values = RandomValues({s.b, s.t, s.h, s.d}, name, 0, width);
      return stored == 0 ? values : RoundedToBf16(std::move(values));
    };
    // A number beside a power of two may be rounded to its other side.
    const auto rounded = [&](Values tolerance, const Values& want) {
      for (size_t i = 0; i < want.size(); ++i)
        tolerance[i] = (1 + stored) * (tolerance[i] + stored * std::abs(want[i]));
      return tolerance;
    };
    const Values q = random("q", spread), k = random("k"), v = random("v"), d_o = random("do");
    const std::string text =
        fmt::format("{} B{} T{} H{} D{} thirds {} spread {}", Name(type), s.b, s.t, s.h, s.d, thirds, spread);
    Values o, lse;  // of the reference, rounded to what is stored: what both backward passes are given
    Check(
        [&](Device& device) {
          const Heads in(device, s, q, k, v, thirds, type);
          const Tensor out(device, {s.b, s.t, s.h, s.d}, device.StorageType(type)),
              out_lse(device, {s.b, s.h, s.t});
          device.AttentionForward(
              {.q = in.view(0), .k = in.view(1), .v = in.view(2), .o = out.view(), .lse = out_lse.view()});
          return std::vector<Values>{out.Read(), out_lse.Read()};
        },
        [&](const std::vector<Values>& want) {
          o = want[0], lse = want[1];
          for (double& value : lse) value = RoundToF32(value);
          std::vector<Expected> expected = ForwardTolerance(s, q, k, v, want[1], stored);
          expected[0].tolerance = rounded(expected[0].tolerance, o);
          for (double& value : o) value = RoundToF32(value);
          if (stored != 0) o = RoundedToBf16(std::move(o));
          return expected;
        },
        text);
    Check(
        [&](Device& device) {
          const DType storage = device.StorageType(type);
          const Heads in(device, s, q, k, v, thirds, type), gradient(device, s, thirds, type);
          const Tensor to(device, {s.b, s.t, s.h, s.d}, o, storage), tlse(device, {s.b, s.h, s.t}, lse),
              tdo(device, {s.b, s.t, s.h, s.d}, d_o, storage);
          device.AttentionBackward({.q = in.view(0),
                                    .k = in.view(1),
                                    .v = in.view(2),
                                    .o = to.view(),
                                    .lse = tlse.view(),
                                    .d_o = tdo.view(),
                                    .dq = gradient.view(0),
                                    .dk = gradient.view(1),
                                    .dv = gradient.view(2)});
          return std::vector<Values>{gradient.Read(0), gradient.Read(1), gradient.Read(2)};
        },
        [&](const std::vector<Values>& want) {
          std::vector<Expected> expected = BackwardTolerance(s, q, k, v, o, lse, d_o, want, stored);
          for (size_t i = 0; i < want.size(); ++i)
            expected[i].tolerance = rounded(expected[i].tolerance, want[i]);
          return expected;
        },
        text);
  }

  struct Scores {
    std::vector<double> s;  // of keys 0 .. i
    double error = 0;       // E, with m = `center`
  };
  static Scores ScoresOf(const Shape& s, const Values& q, const Values& k, int64_t b, int64_t h, int64_t i,
                         double center) {
    const double root = std::sqrt(static_cast<double>(s.d));
    Scores scores;
    for (int64_t j = 0; j <= i; ++j) {
      const Dot dot(Row(q, s, b, i, h), Row(k, s, b, j, h), s.d);
      scores.s.push_back(dot.sum / root);
      const double es = SumBound(s.d) * dot.magnitude / root + 2 * kU * std::abs(scores.s.back());
      scores.error = std::max(scores.error, es + kU * std::abs(scores.s.back() - center));
    }
    scores.error += 4 * kU;
    return scores;
  }

  // `rounding` is that of p and ds before they are multiplied.
  static std::vector<Expected> ForwardTolerance(const Shape& s, const Values& q, const Values& k,
                                                const Values& v, const Values& lse, double rounding) {
    Values to(s.elements()), tlse(lse.size());
    for (int64_t b = 0; b < s.b; ++b)
      for (int64_t h = 0; h < s.h; ++h)
        for (int64_t i = 0; i < s.t; ++i) {
          const int64_t at = (b * s.h + h) * s.t + i;
          const Scores scores = ScoresOf(s, q, k, b, h, i, lse[at]);
          tlse[at] = scores.error + SumBound(i + 1) + 2 * kU * std::abs(lse[at]);
          const double relative = 2 * scores.error + 2 * SumBound(i + 1) + 2 * kU + rounding;
          for (int64_t j = 0; j <= i; ++j)
            for (int64_t c = 0; c < s.d; ++c)
              Row(to, s, b, i, h)[c] +=
                  (relative * std::exp(scores.s[j] - lse[at]) + kTiny) * std::abs(Row(v, s, b, j, h)[c]);
        }
    return {{"o", to}, {"lse", tlse}};
  }

  static std::vector<Expected> BackwardTolerance(const Shape& s, const Values& q, const Values& k,
                                                 const Values& v, const Values& o, const Values& lse,
                                                 const Values& d_o, const std::vector<Values>& want,
                                                 double rounding) {
    Values tq(s.elements()), tk(s.elements()), tv(s.elements());
    const double root = std::sqrt(static_cast<double>(s.d)), own = SumBound(s.t);
    for (int64_t b = 0; b < s.b; ++b)
      for (int64_t h = 0; h < s.h; ++h)
        for (int64_t i = 0; i < s.t; ++i) {
          const double center = lse[(b * s.h + h) * s.t + i];
          const Scores scores = ScoresOf(s, q, k, b, h, i, center);
          const double* const do_row = Row(d_o, s, b, i, h);
          const Dot delta(do_row, Row(o, s, b, i, h), s.d);
          for (int64_t j = 0; j <= i; ++j) {
            const double p = std::exp(scores.s[j] - center);
            const double p_error = scores.error + kU + (rounding > 0 ? kCoarseExp : 0);
            const Dot dp(do_row, Row(v, s, b, j, h), s.d);
            const double ds = p * std::abs(dp.sum - delta.sum) / root;
            const double ds_error = ds * (p_error + 3 * kU) +
                                    (p * SumBound(s.d) + kTiny) * (dp.magnitude + delta.magnitude) / root;
            for (int64_t c = 0; c < s.d; ++c) {
              Row(tq, s, b, i, h)[c] +=
                  (ds_error + (own + 2 * kU + rounding) * ds) * std::abs(Row(k, s, b, j, h)[c]);
              Row(tk, s, b, j, h)[c] +=
                  (ds_error + (own + 2 * kU + rounding) * ds) * std::abs(Row(q, s, b, i, h)[c]);
              Row(tv, s, b, j, h)[c] += (p * (p_error + own + rounding) + kTiny) * std::abs(do_row[c]);
            }
          }
        }
    for (int64_t e = 0; e < s.elements(); ++e)
      tq[e] += kU * std::abs(want[0][e]), tk[e] += kU * std::abs(want[1][e]),
          tv[e] += kU * std::abs(want[2][e]);
    return {{"dq", tq}, {"dk", tk}, {"dv", tv}};
  }
};

TEST_F(CpuAttention, AgreesAtEveryLengthAndWidth) {
  for (const int64_t t : {1, 2, 31, 32, 33, 65})
    for (const int64_t d : {8, 32, 64, 80}) CheckBoth({1, t, 2, d}, true);
}

TEST_F(CpuAttention, AgreesOnDenseAndOnManyHeads) {
  CheckBoth({3, 33, 5, 8}, false);
  CheckBoth({2, 40, 3, 16}, true);
  CheckBoth({1, 5, 1, 1}, false);
  CheckBoth({1, 7, 1, 300}, true);  // wider than one block of outputs
}

// One block of queries and several, whole and in part; heads wider than a vector and narrower.
TEST_F(CpuAttention, Bf16AgreesAtEveryLengthAndWidth) {
  for (const int64_t t : {1, 2, 31, 32, 33, 128, 130})
    for (const int64_t d : {8, 32, 64, 80}) CheckBothBf16({1, t, 2, d}, true);
  CheckBothBf16({1, 300, 1, 16}, true);
  CheckBothBf16({3, 33, 5, 8}, false);
  CheckBothBf16({2, 40, 3, 16}, true);
  CheckBothBf16({1, 5, 1, 1}, false);
  CheckBothBf16({1, 7, 1, 300}, true);
  CheckBothBf16({1, 33, 2, 32}, true, 100);
}

// Scores up to some hundred: the maximum is subtracted before the exponential.
TEST_F(CpuAttention, LargeScoresStayFinite) { CheckBoth({1, 33, 2, 32}, true, 100); }

// The future is not seen at all, whatever finite values it holds. (0 * NaN is NaN, so a NaN among the keys of
// a block of queries shows in all of it, as it does where an eager framework multiplies by masked
// probabilities.)
TEST_F(CpuAttention, NothingOfTheFutureIsSeen) {
  const Shape s{1, 40, 2, 8};
  const Values q = RandomValues({1, 40, 2, 8}, "q"), d_o = RandomValues({1, 40, 2, 8}, "do");
  const Values k = RandomValues({1, 40, 2, 8}, "k"), v = RandomValues({1, 40, 2, 8}, "v");
  for (const double bad : {1e30, -1e30}) {
    for (const int64_t from : {5, 20, 39}) {
      Values bad_k = k, bad_v = v;
      for (int64_t i = from * s.h * s.d; i < s.elements(); ++i) bad_k[i] = bad_v[i] = bad;
      std::vector<Values> out;
      for (const bool spoiled : {false, true}) {
        const Heads in(*devices_[0], s, q, spoiled ? bad_k : k, spoiled ? bad_v : v, true);
        const Tensor o(*devices_[0], {1, 40, 2, 8}), lse(*devices_[0], {1, 2, 40});
        devices_[0]->AttentionForward(
            {.q = in.view(0), .k = in.view(1), .v = in.view(2), .o = o.view(), .lse = lse.view()});
        out.push_back(o.Read());
      }
      const auto past = [&](const Values& x) { return Values(x.begin(), x.begin() + from * s.h * s.d); };
      EXPECT_TRUE(SameBits(past(out[1]), past(out[0]), "o")) << "from " << from << " on " << bad;
    }
  }
}

// T-11: and a NaN of the past is not lost.
TEST_F(CpuAttention, NaNOfThePastIsSeen) {
  const Shape s{1, 40, 2, 8};
  const Values k = RandomValues({1, 40, 2, 8}, "k"), v = RandomValues({1, 40, 2, 8}, "v");
  Values q = RandomValues({1, 40, 2, 8}, "q");
  Row(q, s, 0, 7, 1)[3] = kNaN;
  const Heads in(*devices_[0], s, q, k, v, true);
  const Tensor o(*devices_[0], {1, 40, 2, 8}), lse(*devices_[0], {1, 2, 40});
  devices_[0]->AttentionForward(
      {.q = in.view(0), .k = in.view(1), .v = in.view(2), .o = o.view(), .lse = lse.view()});
  const Values out = o.Read();
  for (int64_t i = 0; i < s.elements(); ++i) {
    const int64_t t = i / (s.h * s.d), h = i / s.d % s.h;
    ASSERT_EQ(std::isnan(out[i]), t == 7 && h == 1) << "position " << t << " head " << h;
  }
}

}  // namespace
}  // namespace normlab::test
