#pragma once
#include <gradus/dtype.h>

#include <cstdint>
#include <type_traits>

namespace gradus {

/// A C++ number as an operand. It never promotes a float tensor; a floating number makes an integer tensor Float32.
class Scalar {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value)
      : floating_(std::is_floating_point_v<T>), bool_(std::is_same_v<T, bool>) {
    number_ = static_cast<double>(value);
    if constexpr (!std::is_floating_point_v<T>) integer_ = static_cast<std::int64_t>(value);
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::int64_t)) floating_ = integer_ < 0;  // too large
  }

  bool is_floating() const { return floating_; }
  bool is_bool() const { return bool_; }
  double to_double() const { return number_; }
  /// The exact integer; of a floating number its truncation.
  /// Error where the number is NaN, infinite or outside 64 bits.
  std::int64_t to_int() const { return floating_ ? truncated() : integer_; }

 private:
  GRADUS_API std::int64_t truncated() const;

  double number_;
  std::int64_t integer_ = 0;
  bool floating_;
  bool bool_;
};

}  // namespace gradus
