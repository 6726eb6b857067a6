#pragma once
// Element types of tensors. kF64 belongs to the reference device; kBF16 and kF16 are storage types.

#include <cstddef>
#include <string_view>

namespace normlab {

enum class DType { kF32, kF64, kBF16, kF16, kI32 };

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF64:
      return 8;
    case DType::kBF16:
      return 2;
    case DType::kF16:
      return 2;
    case DType::kI32:
      return 4;
  }
  return 0;
}

constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
  }
  return "?";
}

}  // namespace normlab
