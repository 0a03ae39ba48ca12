#pragma once
// How the operands of elementwise ops meet.
#include <gradus/elementwise.h>

#include <optional>

#include "internal.h"

namespace gradus::detail {

/// The dtype in which two operands meet, where they have to be converted.
inline std::optional<DType> meeting(const Tensor& a, const Tensor& b, const char* op) {
  check_defined(a, op, "the first operand");
  check_defined(b, op, "the second operand");
  if (a.dtype() == b.dtype()) return {};
  return promote(a.dtype(), b.dtype());
}

/// x in the dtype that it has beside a C++ number: floats stay, a floating number makes integers Float32.
inline Tensor beside(const Tensor& x, Scalar number, const char* op) {
  check_defined(x, op, "the tensor");
  if (is_floating(x.dtype())) return x;
  if (number.is_floating()) return to(x, Float32);
  return x.dtype() == Bool && !number.is_bool() ? to(x, Int64) : x;
}

/// Integers become Float32: for ops whose results are not whole numbers.
inline Tensor as_float(const Tensor& x, const char* op) {
  check_defined(x, op, "the tensor");
  return is_floating(x.dtype()) ? x : to(x, Float32);
}

}  // namespace gradus::detail
