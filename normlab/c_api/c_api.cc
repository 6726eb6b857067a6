// The C functions over the CPU device: pointers become views, exceptions become a status and a message. All
// refusals come before anything runs, so a call that is refused has written nothing.
#include "normlab/c_api/normlab.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "normlab/base/error.h"
#include "normlab/base/nearest.h"
#include "normlab/base/threads.h"
#include "normlab/base/version.h"
#include "normlab/kernels/check_args.h"
#include "normlab/kernels/cpu/cpu_device.h"
#include "normlab/norms/norm_list.h"
#include "normlab/norms/norm_type.h"

using normlab::Device;
using normlab::DType;
using normlab::Error;
using normlab::Fail;
using normlab::InfoOf;
using normlab::IsFloat;
using normlab::NormBackwardArgs;
using normlab::NormForwardArgs;
using normlab::NormInfo;
using normlab::NormSpec;
using normlab::View;

// NOLINTNEXTLINE(readability-identifier-naming): a name of C
struct normlab_norm {
  NormSpec spec;
  std::unique_ptr<Device> device = normlab::MakeCpuDevice({.threads = 1});
  // What the device writes and the caller does not want.
  std::vector<float> unwanted_saved, unwanted_dweight, unwanted_dalpha;

  const NormInfo& info() const { return InfoOf(spec.kind); }
};

namespace {

constexpr int kMaxThreads = 4096;

// ---- Status and message.

thread_local char last_error[1024] = "";

normlab_status Failed(normlab_status status, const char* message) noexcept {
  std::snprintf(last_error, sizeof(last_error), "%s", message);
  return status;
}

// Error means a mistake of the caller: everything that may be refused is found out before anything runs.
// Error out of a kernel means that there was no memory for its scratch.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(const Error& error) : error_(error) {}
  const char* what() const noexcept override { return error_.what(); }

 private:
  Error error_;
};

template <class F>
normlab_status Guarded(F&& f) noexcept {
  try {
    f();
    return NORMLAB_OK;
  } catch (const std::bad_alloc& error) {
    return Failed(NORMLAB_OUT_OF_MEMORY, error.what());
  } catch (const std::length_error& error) {  // more elements than a vector can have
    return Failed(NORMLAB_OUT_OF_MEMORY, error.what());
  } catch (const Error& error) {
    return Failed(NORMLAB_INVALID_ARGUMENT, error.what());
  } catch (const std::exception& error) {
    return Failed(NORMLAB_INTERNAL_ERROR, error.what());
  } catch (...) {
    return Failed(NORMLAB_INTERNAL_ERROR, "an exception of unknown type");
  }
}

// The device calls a bad argument a bug of its caller; here the caller is a user.
template <class F>
void Check(F&& check) {
  try {
    check();
  } catch (const std::logic_error& error) {
    throw Error(error.what());
  }
}

template <class F>
void Run(F&& run) {
  try {
    run();
  } catch (const Error& error) {
    throw OutOfMemory(error);
  }
}

template <class T>
T& Given(T* pointer, const char* function, const char* name) {
  if (pointer == nullptr) Fail("{}: {} is NULL", function, name);
  return *pointer;
}

// ---- Names.

// Throws Error with the reason where there is no such norm, or no such implementation of it.
std::unique_ptr<normlab_norm> Make(std::string_view name) {
  constexpr int64_t kAnyCols = 768;  // implementations are refused for the kind, not for the width
  const normlab::NormType type = normlab::ParseNormType(name);
  auto norm = std::make_unique<normlab_norm>();
  norm->spec.kind = type.kind;
  norm->spec.implementation = type.implementation;
  norm->spec.eps = norm->info().default_eps;
  (void)norm->device->ResolveNorm(norm->spec, kAnyCols);
  return norm;
}

std::vector<std::string> NormsThatRun() {
  std::vector<std::string> names = normlab::KnownNormTypes();
  std::erase_if(names, [](const std::string& name) {
    try {
      Make(name);
      return false;
    } catch (const Error&) {
      return true;
    }
  });
  return names;
}

// ---- Arguments.

// The least size of each struct: up to the last field of the first release that had it.
constexpr size_t kFirstForwardArgs = offsetof(normlab_forward_args, saved_elements) + sizeof(int64_t);
constexpr size_t kFirstBackwardArgs =
    offsetof(normlab_backward_args, accumulate_parameters) + sizeof(int32_t);

// The caller's struct in the size of this library's: fields that an older caller does not know are zero.
// Fields of a newer caller that this library does not know must be zero.
template <class Args>
Args ReadArgs(const Args* given, const char* function, size_t first_size) {
  static_assert(std::is_trivially_copyable_v<Args>);
  size_t size = 0;
  std::memcpy(&size, &Given(given, function, "args"), sizeof(size));
  if (size < first_size || size > 64 * sizeof(Args))
    Fail("{}: struct_size is {}; it must be the sizeof of the struct, {} here", function, size, sizeof(Args));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(size, sizeof(Args)), bytes + size, [](unsigned char b) { return b != 0; }))
    Fail("{}: the struct holds a field that normlab {} does not know; update the library", function,
         NORMLAB_VERSION);
  Args args{};
  std::memcpy(&args, given, std::min(size, sizeof(Args)));
  return args;
}

// Makes the views of one call. The views of inputs are not const because a View has no such thing; the device
// writes to outputs alone.
class Views {
 public:
  Views(const char* function, int64_t rows, int64_t cols) : function_(function), rows_(rows), cols_(cols) {
    if (rows < 0) Fail("{}: rows is {}; it must be at least 0", function, rows);
    if (cols < 1) Fail("{}: cols is {}; a norm needs at least one column", function, cols);
  }

  View Matrix(const char* name, const float* data, int64_t stride) const {
    if (stride == 0) stride = cols_;
    if (stride < cols_)
      Fail("{}: {}_stride is {}; it must be at least cols, {}, or 0 for just that", function_, name, stride,
           cols_);
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;  // floats that an address can span
    if (rows_ > 0 && stride > kMost / rows_)
      Fail("{}: {} of {} rows with a stride of {} is larger than memory", function_, name, rows_, stride);
    if (data == nullptr && rows_ > 0)
      Fail("{}: {} is NULL; it must hold [{}, {}] floats", function_, name, rows_, cols_);
    View view = View::Dense(Address(name, data), DType::kF32, {rows_, cols_});
    view.strides[0] = stride;
    return view;
  }
  View OptionalMatrix(const char* name, const float* data, int64_t stride) const {
    return data == nullptr ? View() : Matrix(name, data, stride);
  }
  // Absent where data is NULL, refused where the norm has no such parameter.
  View Parameter(const char* name, const float* data, int64_t elements, bool known,
                 const NormInfo& info) const {
    if (data == nullptr) return {};
    if (!known) Fail("{}: {} is given but {} has none; pass NULL", function_, name, info.name);
    return View::Dense(Address(name, data), DType::kF32, {elements});
  }
  View Saved(const float* data, int64_t given, int64_t needed) const {
    if (given < needed)
      Fail("{}: saved_elements is {}; {} rows of {} need {} (normlab_norm_saved_elements)", function_, given,
           rows_, cols_, needed);
    if (data == nullptr && needed > 0) Fail("{}: saved is NULL; it must hold {} floats", function_, needed);
    return View::Dense(Address("saved", data), DType::kF32, {needed});
  }

 private:
  float* Address(const char* name, const float* data) const {
    if (reinterpret_cast<uintptr_t>(data) % alignof(float) != 0)
      Fail("{}: {} is not aligned to a float", function_, name);
    return const_cast<float*>(data);
  }

  const char* function_;
  int64_t rows_, cols_;
};

View Unwanted(std::vector<float>& memory, int64_t elements) {
  if (static_cast<int64_t>(memory.size()) < elements) memory.resize(static_cast<size_t>(elements));
  return View::Dense(memory.data(), DType::kF32, {elements});
}

// Whether rows x cols floats can exist, so that sizes made of them do not overflow.
int64_t SavedElements(const normlab_norm& norm, const char* function, int64_t rows, int64_t cols) {
  const Views views(function, rows, cols);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 64;
  if (rows > 0 && cols > kMost / rows)
    Fail("{}: {} rows of {} columns are larger than memory", function, rows, cols);
  return norm.device->NormSavedElements(norm.spec, rows, cols);
}

// ---- Options.

// The options that are numbers of the spec. One line here makes one known.
struct NumberOption {
  const char* name;
  double NormSpec::*field;
  bool (*ok)(double);
  const char* allowed;
};
constexpr NumberOption kNumberOptions[] = {
    {"eps", &NormSpec::eps, [](double v) { return IsFloat(v) && v >= 0; }, "finite as a float, at least 0"},
    {"weight_offset", &NormSpec::weight_offset, IsFloat, "finite as a float"},
    {"fraction", &NormSpec::fraction, [](double v) { return v > 0 && v <= 1; }, "above 0 and at most 1"},
};
constexpr const char* kThreads = "threads";

struct Fact {
  const char* name;
  bool (*of)(const NormInfo&);
};
constexpr Fact kFacts[] = {
    {"has_weight", [](const NormInfo& info) { return info.has_gain; }},
    {"has_bias", [](const NormInfo& info) { return info.has_bias; }},
    {"has_alpha", [](const NormInfo& info) { return info.has_alpha; }},
};

[[noreturn]] void UnknownOption(const char* function, const char* option, bool with_facts) {
  std::vector<std::string> names;
  for (const NumberOption& known : kNumberOptions) names.emplace_back(known.name);
  names.emplace_back(kThreads);
  if (with_facts)
    for (const Fact& fact : kFacts) names.emplace_back(fact.name);
  Fail("{}: unknown option {}", function, normlab::UnknownName(option, names));
}

void SetThreads(normlab_norm& norm, const char* function, double value) {
  if (!(value >= 0 && value <= kMaxThreads && value == std::floor(value)))
    Fail("{}: threads = {} is not allowed; it must be a whole number from 0 to {}", function, value,
         kMaxThreads);
  int threads = value == 0 ? normlab::DefaultThreads() : static_cast<int>(value);
  if (threads == norm.device->threads()) return;
  // OpenMP ends the process that cannot start the threads it is asked for.
  const int startable = 1 + normlab::StartableThreads(threads - 1);
  if (startable < threads && value != 0)
    Fail(
        "{}: threads = {}: the system lets this process start only {} (`ulimit -u`, `ulimit -v` or the "
        "cgroup); ask for fewer or raise the limit",
        function, threads, startable);
  threads = std::min(threads, startable);
  norm.device = normlab::MakeCpuDevice({.threads = threads});
}

}  // namespace

extern "C" {

const char* normlab_version(void) { return NORMLAB_VERSION; }

const char* normlab_last_error(void) { return last_error; }

const char* normlab_norm_name(size_t index) {
  const char* name = nullptr;
  Guarded([&] {
    static const std::vector<std::string> names = NormsThatRun();
    if (index < names.size()) name = names[index].c_str();
  });
  return name;
}

normlab_status normlab_norm_create(const char* name, normlab_norm** norm) {
  return Guarded([&] {
    constexpr const char* kFunction = "normlab_norm_create";
    Given(norm, kFunction, "norm") = nullptr;
    *norm = Make(&Given(name, kFunction, "name")).release();
  });
}

void normlab_norm_destroy(normlab_norm* norm) { delete norm; }

normlab_status normlab_norm_set(normlab_norm* norm, const char* option, double value) {
  return Guarded([&] {
    constexpr const char* kFunction = "normlab_norm_set";
    normlab_norm& to = Given(norm, kFunction, "norm");
    const std::string_view name = &Given(option, kFunction, "option");
    if (name == kThreads) return SetThreads(to, kFunction, value);
    for (const Fact& fact : kFacts)
      if (name == fact.name)
        Fail("{}: {} is a fact of {} and cannot be set", kFunction, name, to.info().name);
    for (const NumberOption& known : kNumberOptions) {
      if (name != known.name) continue;
      if (!known.ok(value))
        Fail("{}: {} = {} is not allowed; it must be {}", kFunction, name, value, known.allowed);
      to.spec.*known.field = value;
      return;
    }
    UnknownOption(kFunction, option, /*with_facts=*/false);
  });
}

normlab_status normlab_norm_get(const normlab_norm* norm, const char* option, double* value) {
  return Guarded([&] {
    constexpr const char* kFunction = "normlab_norm_get";
    const normlab_norm& from = Given(norm, kFunction, "norm");
    const std::string_view name = &Given(option, kFunction, "option");
    double& to = Given(value, kFunction, "value");
    if (name == kThreads) return void(to = from.device->threads());
    for (const Fact& fact : kFacts)
      if (name == fact.name) return void(to = fact.of(from.info()) ? 1 : 0);
    for (const NumberOption& known : kNumberOptions)
      if (name == known.name) return void(to = from.spec.*known.field);
    UnknownOption(kFunction, option, /*with_facts=*/true);
  });
}

normlab_status normlab_norm_saved_elements(const normlab_norm* norm, int64_t rows, int64_t cols,
                                           int64_t* elements) {
  return Guarded([&] {
    constexpr const char* kFunction = "normlab_norm_saved_elements";
    Given(elements, kFunction, "elements") =
        SavedElements(Given(norm, kFunction, "norm"), kFunction, rows, cols);
  });
}

normlab_status normlab_norm_forward(normlab_norm* norm, const normlab_forward_args* args) {
  return Guarded([&] {
    constexpr const char* kFunction = "normlab_norm_forward";
    normlab_norm& with = Given(norm, kFunction, "norm");
    const normlab_forward_args a = ReadArgs(args, kFunction, kFirstForwardArgs);
    const NormInfo& info = with.info();
    const Views views(kFunction, a.rows, a.cols);
    const int64_t saved = SavedElements(with, kFunction, a.rows, a.cols);

    NormForwardArgs to{.spec = with.spec};
    to.spec.gain = a.weight != nullptr;
    to.spec.bias = a.bias != nullptr;
    to.x = views.Matrix("x", a.x, a.x_stride);
    to.residual = views.OptionalMatrix("residual", a.residual, a.residual_stride);
    to.weight = views.Parameter("weight", a.weight, a.cols, info.has_gain, info);
    to.bias = views.Parameter("bias", a.bias, a.cols, info.has_bias, info);
    to.alpha = views.Parameter("alpha", a.alpha, 1, info.has_alpha, info);
    to.sum = views.OptionalMatrix("sum", a.sum, a.sum_stride);
    to.y = views.Matrix("y", a.y, a.y_stride);
    to.saved = a.saved != nullptr ? views.Saved(a.saved, a.saved_elements, saved)
                                  : Unwanted(with.unwanted_saved, saved);
    Check([&] { normlab::CheckNormForward(to); });
    Run([&] { with.device->NormForward(to); });
  });
}

normlab_status normlab_norm_backward(normlab_norm* norm, const normlab_backward_args* args) {
  return Guarded([&] {
    constexpr const char* kFunction = "normlab_norm_backward";
    normlab_norm& with = Given(norm, kFunction, "norm");
    const normlab_backward_args a = ReadArgs(args, kFunction, kFirstBackwardArgs);
    const NormInfo& info = with.info();
    const Views views(kFunction, a.rows, a.cols);
    const int64_t saved = SavedElements(with, kFunction, a.rows, a.cols);
    if (a.dweight != nullptr && a.weight == nullptr && info.has_gain)
      Fail("{}: dweight is given but weight is NULL: a gain of 1 that is not stored has no gradient",
           kFunction);

    NormBackwardArgs to{.spec = with.spec};
    to.spec.gain = a.weight != nullptr;
    to.spec.bias = a.dbias != nullptr;
    to.x = views.Matrix("x", a.x, a.x_stride);
    to.dy = views.Matrix("dy", a.dy, a.dy_stride);
    to.weight = views.Parameter("weight", a.weight, a.cols, info.has_gain, info);
    to.alpha = views.Parameter("alpha", a.alpha, 1, info.has_alpha, info);
    to.saved = views.Saved(a.saved, a.saved_elements, saved);
    to.dx = views.Matrix("dx", a.dx, a.dx_stride);
    to.dweight = views.Parameter("dweight", a.dweight, a.cols, info.has_gain, info);
    to.dbias = views.Parameter("dbias", a.dbias, a.cols, info.has_bias, info);
    to.dalpha = views.Parameter("dalpha", a.dalpha, 1, info.has_alpha, info);
    if (a.weight != nullptr && a.dweight == nullptr) to.dweight = Unwanted(with.unwanted_dweight, a.cols);
    if (a.alpha != nullptr && a.dalpha == nullptr) to.dalpha = Unwanted(with.unwanted_dalpha, 1);
    to.accumulate_dx = a.accumulate_dx != 0;
    to.accumulate_dparams = a.accumulate_parameters != 0;
    Check([&] { normlab::CheckNormBackward(to); });
    Run([&] { with.device->NormBackward(to); });
  });
}

}  // extern "C"
