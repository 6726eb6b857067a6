#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "normlab/kernels/cpu/stream.cc"
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

#include <type_traits>

#include "normlab/base/threads.h"
#include "normlab/kernels/cpu/norm_rows.h"
#include "normlab/kernels/cpu/stream.h"

HWY_BEFORE_NAMESPACE();
namespace normlab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements of either width as lanes of D: the wider half of a 32-bit float is a bfloat16.
template <class D, class T>
HWY_INLINE auto Read(D d, const T* from) {
  if constexpr (sizeof(T) == sizeof(hn::TFromD<D>)) {
    return hn::LoadU(d, from);
  } else {
    const hn::Rebind<T, D> narrow;
    return hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(narrow, from)));
  }
}

template <class D, class V, class T>
HWY_INLINE void Write(D d, V v, T* to) {
  if constexpr (sizeof(T) == sizeof(hn::TFromD<D>)) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Rebind<T, D> narrow;
    hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(v)), narrow, to);
  }
}

template <StreamMix kMix, class A, class B, class C, class Other>
struct Stream {
  const A* HWY_RESTRICT a;
  const B* HWY_RESTRICT b;
  C* HWY_RESTRICT c;
  Other* HWY_RESTRICT other;

  template <class D>
  HWY_INLINE void Step(D d, int64_t i) const {
    auto v = Read(d, a + i);
    if constexpr (kMix != StreamMix::kCopy) v = hn::Max(v, Read(d, b + i));
    if constexpr (kMix == StreamMix::kTwoIntoOneInPlace) v = hn::Max(v, Read(d, c + i));
    Write(d, v, c + i);
    if constexpr (kMix == StreamMix::kTwoToTwo) Write(d, v, other + i);
  }

  HWY_ATTR void Run(int64_t begin, int64_t end) const {
    using Lane =
        std::conditional_t<sizeof(A) + sizeof(B) + sizeof(C) + sizeof(Other) == 8, uint16_t, uint32_t>;
    const hn::ScalableTag<Lane> d;
    const hn::CappedTag<Lane, 1> one;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) Step(d, i), Step(d, i + lanes);
    for (; i < end; ++i) Step(one, i);
  }
};

template <StreamMix kMix, class A, class B, class C, class Other>
HWY_ATTR void RunAs(const StreamArgs& s, int64_t begin, int64_t end) {
  const auto pointer = [](const View& view, auto* null) {
    return view.empty() ? null : view.as<std::remove_pointer_t<decltype(null)>>();
  };
  Stream<kMix, A, B, C, Other>{.a = pointer(s.a, static_cast<A*>(nullptr)),
                               .b = pointer(s.b, static_cast<B*>(nullptr)),
                               .c = pointer(s.c, static_cast<C*>(nullptr)),
                               .other = pointer(s.d, static_cast<Other*>(nullptr))}
      .Run(begin, end);
}

// Absent streams take the type of the first.
template <StreamMix kMix>
HWY_ATTR void RunMix(const StreamArgs& s, int64_t begin, int64_t end) {
  using Wide = uint32_t;
  using Narrow = uint16_t;
  const auto narrow = [](const View& view, const View& otherwise) {
    return SizeOf((view.empty() ? otherwise : view).dtype) == 2;
  };
  const bool a = narrow(s.a, s.a), b = narrow(s.b, s.a), c = narrow(s.c, s.a), d = narrow(s.d, s.a);
  const auto with_d = [&]<class A, class B, class C>() HWY_ATTR {
    d ? RunAs<kMix, A, B, C, Narrow>(s, begin, end) : RunAs<kMix, A, B, C, Wide>(s, begin, end);
  };
  const auto with_c = [&]<class A, class B>() HWY_ATTR {
    c ? with_d.template operator()<A, B, Narrow>() : with_d.template operator()<A, B, Wide>();
  };
  const auto with_b = [&]<class A>() HWY_ATTR {
    b ? with_c.template operator()<A, Narrow>() : with_c.template operator()<A, Wide>();
  };
  a ? with_b.template operator()<Narrow>() : with_b.template operator()<Wide>();
}

HWY_ATTR void StreamElements(const StreamArgs& s, int64_t begin, int64_t end) {
  switch (s.mix) {
    case StreamMix::kCopy:
      return RunMix<StreamMix::kCopy>(s, begin, end);
    case StreamMix::kTwoToOne:
      return RunMix<StreamMix::kTwoToOne>(s, begin, end);
    case StreamMix::kTwoToTwo:
      return RunMix<StreamMix::kTwoToTwo>(s, begin, end);
    case StreamMix::kTwoIntoOneInPlace:
      return RunMix<StreamMix::kTwoIntoOneInPlace>(s, begin, end);
  }
}

}  // namespace normlab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include "normlab/base/memory.h"

namespace normlab {
namespace {

HWY_EXPORT(StreamElements);

struct Fields {
  const View* reads[3];
  const View* writes[2];
};

Fields FieldsOf(const StreamArgs& args) {
  switch (args.mix) {
    case StreamMix::kCopy:
      return {{&args.a}, {&args.c}};
    case StreamMix::kTwoToOne:
      return {{&args.a, &args.b}, {&args.c}};
    case StreamMix::kTwoToTwo:
      return {{&args.a, &args.b}, {&args.c, &args.d}};
    case StreamMix::kTwoIntoOneInPlace:
      return {{&args.a, &args.b, &args.c}, {&args.c}};
  }
  return {};
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string_view Name(StreamMix mix) {
  switch (mix) {
    case StreamMix::kCopy:
      return "1r1w";
    case StreamMix::kTwoToOne:
      return "2r1w";
    case StreamMix::kTwoToTwo:
      return "2r2w";
    case StreamMix::kTwoIntoOneInPlace:
      return "2r+rw";
  }
  return "?";
}

void RunStream(int threads, const StreamArgs& args) {
  const Fields fields = FieldsOf(args);
  const auto check = [&](const View* view) {
    if (view == nullptr) return;
    NL_CHECK(!view->empty() && view->rank == 2 && view->IsDense());
    NL_CHECK(view->rows() == args.a.rows() && view->cols() == args.a.cols());
    NL_CHECK(SizeOf(view->dtype) == 2 || SizeOf(view->dtype) == 4);
  };
  for (const View* view : fields.reads) check(view);
  for (const View* view : fields.writes) check(view);

  const int64_t rows = args.a.rows(), cols = args.a.cols();
  const int64_t chunks = cpu::RowChunks(threads, rows, cols);
  const auto run = HWY_DYNAMIC_DISPATCH(StreamElements);
  ParallelFor(threads, chunks, [&](int64_t chunk, int) {
    run(args, cpu::ChunkBegin(rows, chunks, chunk) * cols, cpu::ChunkBegin(rows, chunks, chunk + 1) * cols);
  });
}

size_t StreamBytes(const StreamArgs& args) {
  const Fields fields = FieldsOf(args);
  size_t bytes = 0;
  for (const View* view : fields.reads) bytes += view == nullptr ? 0 : view->bytes();
  for (const View* view : fields.writes) bytes += view == nullptr ? 0 : view->bytes();
  return bytes;
}

std::optional<size_t> LastLevelCacheBytes() {
  size_t most = 0;
  for (const int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE})
    if (const long bytes = ::sysconf(name); bytes > 0) most = std::max(most, static_cast<size_t>(bytes));
  if (most > 0) return most;
  for (int index = 0; index < 8; ++index) {  // where the C library does not know: "32768K"
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    size_t kibibytes = 0;
    if (file >> kibibytes) most = std::max(most, kibibytes << 10);
  }
  return most > 0 ? std::optional(most) : std::nullopt;
}

size_t ColdBytes() { return std::max(size_t{1} << 30, 2 * LastLevelCacheBytes().value_or(0)); }

CopySpeed MeasureCopySpeed(int threads, size_t bytes) {
  constexpr int64_t kCols = 1024;
  constexpr int kFewestPasses = 3;
  constexpr double kSeconds = 0.1;
  const int64_t rows = std::max<int64_t>(1, static_cast<int64_t>(bytes / 2 / (kCols * sizeof(float))));
  const size_t half = static_cast<size_t>(rows * kCols) * sizeof(float);
  const AlignedMemory from(half), to(half);
  const StreamArgs copy{.a = View::Dense(from.data(), DType::kF32, {rows, kCols}),
                        .c = View::Dense(to.data(), DType::kF32, {rows, kCols})};
  // Each page is touched first by the thread that streams it; pages that were never written are all one page
  // of zeros, so both halves are written once before a pass is timed.
  RunStream(threads, {.a = copy.c, .c = copy.a});
  RunStream(threads, copy);
  std::vector<double> seconds;
  for (double total = 0; static_cast<int>(seconds.size()) < kFewestPasses || total < kSeconds;) {
    const double start = Now();
    RunStream(threads, copy);
    seconds.push_back(Now() - start);
    total += seconds.back();
  }
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return {.bytes_per_s = static_cast<double>(2 * half) / *middle, .bytes = 2 * half};
}

}  // namespace normlab
#endif  // HWY_ONCE
