// Elementwise functions of Int64, which wrap around like unsigned numbers, and of Bool. Exact, so plain loops serve:
// the compiler vectorises them.
#include "families.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

using u64 = std::uint64_t;

template <class T, class F>
UnaryRun unary_of(F) {
  return [](i64 n, const void* x_, i64 sx, void* y_, i64 sy, double p, double q) {
    const T* x = static_cast<const T*>(x_);
    T* y = static_cast<T*>(y_);
    if (sx == 1 && sy == 1)
      for (i64 i = 0; i < n; ++i) y[i] = F{}(x[i], p, q);
    else
      for (i64 i = 0; i < n; ++i) y[i * sy] = F{}(x[i * sx], p, q);
  };
}

template <class T, class F>
BinaryRun binary_of(F) {
  return [](i64 n, const void* a_, i64 sa, const void* b_, i64 sb, void* y_, i64 sy) {
    const T* a = static_cast<const T*>(a_);
    const T* b = static_cast<const T*>(b_);
    T* y = static_cast<T*>(y_);
    if (sa == 1 && sb == 1 && sy == 1)
      for (i64 i = 0; i < n; ++i) y[i] = F{}(a[i], b[i]);
    else
      for (i64 i = 0; i < n; ++i) y[i * sy] = F{}(a[i * sa], b[i * sb]);
  };
}

// The number of an op as an integer; what lies outside (a clamp without a bound is infinite) gives the nearest.
inline i64 integer(double p) {
  if (p >= 9223372036854775808.0) return INT64_MAX;
  if (p < -9223372036854775808.0) return INT64_MIN;
  return p == p ? static_cast<i64>(p) : 0;
}

inline i64 wrap(u64 x) { return static_cast<i64>(x); }
inline u64 bits(i64 x) { return static_cast<u64>(x); }

// xᵉ by squaring; of a negative exponent the fraction's integer part.
inline i64 power(i64 x, i64 e) {
  if (e < 0) {
    if (x == 1) return 1;
    if (x == -1) return e % 2 == 0 ? 1 : -1;
    return 0;
  }
  u64 result = 1;
  for (u64 base = bits(x); e != 0; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return wrap(result);
}

UnaryRun unary_int64(Unary op) {
  switch (op) {
    case Unary::Copy:
      return unary_of<i64>([](i64 x, double, double) { return x; });
    case Unary::Neg:
      return unary_of<i64>([](i64 x, double, double) { return wrap(0 - bits(x)); });
    case Unary::Abs:
      return unary_of<i64>([](i64 x, double, double) { return x < 0 ? wrap(0 - bits(x)) : x; });
    case Unary::Sign:
      return unary_of<i64>([](i64 x, double, double) { return static_cast<i64>((x > 0) - (x < 0)); });
    case Unary::Square:
      return unary_of<i64>([](i64 x, double, double) { return wrap(bits(x) * bits(x)); });
    case Unary::Relu:
      return unary_of<i64>([](i64 x, double, double) { return x > 0 ? x : 0; });
    case Unary::AddScalar:
      return unary_of<i64>([](i64 x, double p, double) { return wrap(bits(x) + bits(integer(p))); });
    case Unary::MulScalar:
      return unary_of<i64>([](i64 x, double p, double) { return wrap(bits(x) * bits(integer(p))); });
    case Unary::RSubScalar:
      return unary_of<i64>([](i64 x, double p, double) { return wrap(bits(integer(p)) - bits(x)); });
    case Unary::PowScalar:
      return unary_of<i64>([](i64 x, double p, double) { return power(x, integer(p)); });
    case Unary::Clamp:
      return unary_of<i64>([](i64 x, double p, double q) {
        const i64 low = integer(p), high = integer(q);
        x = x < low ? low : x;
        return x > high ? high : x;
      });
    default:
      return nullptr;
  }
}

BinaryRun binary_int64(Binary op) {
  switch (op) {
    case Binary::Add:
      return binary_of<i64>([](i64 a, i64 b) { return wrap(bits(a) + bits(b)); });
    case Binary::Sub:
      return binary_of<i64>([](i64 a, i64 b) { return wrap(bits(a) - bits(b)); });
    case Binary::Mul:
      return binary_of<i64>([](i64 a, i64 b) { return wrap(bits(a) * bits(b)); });
    case Binary::Pow:
      return binary_of<i64>([](i64 a, i64 b) { return power(a, b); });
    case Binary::Maximum:
      return binary_of<i64>([](i64 a, i64 b) { return a > b ? a : b; });
    case Binary::Minimum:
      return binary_of<i64>([](i64 a, i64 b) { return a < b ? a : b; });
    default:
      return nullptr;
  }
}

}  // namespace

UnaryRun unary_integer(Unary op, DType dtype) {
  if (dtype == DType::Int64) return unary_int64(op);
  return op == Unary::Copy ? unary_of<bool>([](bool x, double, double) { return x; }) : nullptr;
}

BinaryRun binary_integer(Binary op, DType dtype) {
  if (dtype == DType::Int64) return binary_int64(op);
  switch (op) {
    case Binary::Maximum:
      return binary_of<bool>([](bool a, bool b) { return static_cast<bool>(a | b); });
    case Binary::Minimum:
      return binary_of<bool>([](bool a, bool b) { return static_cast<bool>(a & b); });
    default:
      return nullptr;
  }
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
