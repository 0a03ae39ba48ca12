#pragma once
#include <gradus/export.h>

#include <cstdint>
#include <iosfwd>

namespace gradus {

/// The element types. Only the two floats carry gradients.
enum class DType : std::uint8_t { Float32, Float64, Int64, Bool };

inline constexpr DType Float32 = DType::Float32;
inline constexpr DType Float64 = DType::Float64;
inline constexpr DType Int64 = DType::Int64;
inline constexpr DType Bool = DType::Bool;

GRADUS_API const char* name(DType dtype);
GRADUS_API std::ostream& operator<<(std::ostream& os, DType dtype);

constexpr bool is_floating(DType dtype) { return dtype == DType::Float32 || dtype == DType::Float64; }

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return 4;
    case DType::Float64:
    case DType::Int64:
      return 8;
    case DType::Bool:
      return 1;
  }
  return 0;
}

/// The type in which two operands meet: Bool < Int64 < Float32 < Float64.
constexpr DType promote(DType a, DType b) {
  constexpr int rank[] = {2, 3, 1, 0};
  return rank[static_cast<int>(a)] >= rank[static_cast<int>(b)] ? a : b;
}

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::Float32;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::Float64;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::Int64;
};
template <>
struct dtype_of<bool> {
  static constexpr DType value = DType::Bool;
};

}  // namespace gradus
