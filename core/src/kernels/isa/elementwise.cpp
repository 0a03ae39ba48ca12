// Elementwise functions of Float32 and Float64 along one run, a vector of elements at a time. The last, partial vector
// and strided elements go through the same instructions, so the value of an element never depends on its place.
#include "families.h"
#include "math.h"
#include "trig.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

template <class T, class Op>
void unary_run(i64 n, const void* x_, i64 sx, void* y_, i64 sy, double p_, double q_) {
  constexpr i64 w = Lanes<T>::count;
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  const T p = static_cast<T>(p_), q = static_cast<T>(q_);
  i64 i = 0;
  if (sx == 1 && sy == 1)
    for (; i + w <= n; i += w) store<T>(y + i, Op{}(load(x + i), p, q));
  for (; i < n; i += w) store_strided<T>(y + i * sy, sy, Op{}(load_strided(x + i * sx, sx, n - i), p, q), n - i);
}

template <class T, class Op>
void binary_run(i64 n, const void* a_, i64 sa, const void* b_, i64 sb, void* y_, i64 sy) {
  constexpr i64 w = Lanes<T>::count;
  const T* a = static_cast<const T*>(a_);
  const T* b = static_cast<const T*>(b_);
  T* y = static_cast<T*>(y_);
  i64 i = 0;
  if (sa == 1 && sb == 1 && sy == 1)
    for (; i + w <= n; i += w) store<T>(y + i, Op{}(load(a + i), load(b + i)));
  for (; i < n; i += w) {
    const Vec<T> va = load_strided(a + i * sa, sa, n - i);
    const Vec<T> vb = load_strided(b + i * sb, sb, n - i);
    store_strided<T>(y + i * sy, sy, Op{}(va, vb), n - i);
  }
}

template <class T, class Op>
UnaryRun unary_of(Op) {
  return unary_run<T, Op>;
}
template <class T, class Op>
BinaryRun binary_of(Op) {
  return binary_run<T, Op>;
}

GRADUS_INLINE float pow_of(float x, float y) { return __builtin_powf(x, y); }
GRADUS_INLINE double pow_of(double x, double y) { return __builtin_pow(x, y); }

// x^p; the powers that training uses are products, quotients and roots.
template <class T>
GRADUS_INLINE Vec<T> power(Vec<T> x, T p) {
  constexpr T infinity = Lanes<T>::infinity;
  if (p == T(2)) return x * x;
  if (p == T(3)) return x * x * x;
  if (p == T(1)) return x;
  if (p == T(-1)) return T(1) / x;
  if (p == T(0.5)) return x == -infinity ? splat<T>(infinity) : sqrt(x + T(0));
  return each_lane<T>(x, [p](T v) { return pow_of(v, p); });
}

template <class T>
GRADUS_INLINE Vec<T> clamp(Vec<T> x, T low, T high) {
  x = x < low ? splat<T>(low) : x;
  return x > high ? splat<T>(high) : x;
}

// The slopes below meet 0·inf at infinite x, where the function is flat or straight: x is clamped where that changes
// nothing else.
template <class T>
GRADUS_INLINE Vec<T> gelu_slope(Vec<T> x) {
  const Normal<T> at = normal(x);
  return at.distribution + clamp<T>(x, T(-40), T(40)) * at.density;
}
// s = sigmoid(2u): d(x·s)/dx = s + x·s·(1 - s)·2u'.
template <class T>
GRADUS_INLINE Vec<T> gelu_tanh_slope(Vec<T> x) {
  const Sigmoid<T> at = sigmoid_and_rest<T>(T(2) * gelu_tanh_inner<T>(x));
  const Vec<T> t = clamp<T>(x, T(-30), T(30));
  return at.s + t * at.s * at.rest * (T(2) * gelu_tanh_inner_slope<T>(t));
}
template <class T>
GRADUS_INLINE Vec<T> silu_slope(Vec<T> x) {
  const Sigmoid<T> at = sigmoid_and_rest<T>(x);
  return at.s * (T(1) + clamp<T>(x, T(-1e4), T(1e4)) * at.rest);
}

#define GRADUS_UNARY(...)                                                                                              \
  unary_of<T>([]([[maybe_unused]] Vec<T> x, [[maybe_unused]] T p, [[maybe_unused]] T q) __attribute__((always_inline)) \
                  ->Vec<T> { return __VA_ARGS__; })
#define GRADUS_BINARY(...) \
  binary_of<T>([](Vec<T> a, Vec<T> b) __attribute__((always_inline))->Vec<T> { return __VA_ARGS__; })

template <class T>
UnaryRun unary_float_of(Unary op) {
  switch (op) {
    case Unary::Copy:
      return GRADUS_UNARY(x);
    case Unary::Neg:
      return GRADUS_UNARY(-x);
    case Unary::Abs:
      return GRADUS_UNARY(abs<T>(x));
    case Unary::Sign:
      return GRADUS_UNARY(x > T(0) ? splat<T>(T(1)) : (x < T(0) ? splat<T>(T(-1)) : x));
    case Unary::Exp:
      return GRADUS_UNARY(exp<T>(x));
    case Unary::Log:
      return GRADUS_UNARY(log<T>(x));
    case Unary::Sqrt:
      return GRADUS_UNARY(sqrt(x));
    case Unary::Rsqrt:
      return GRADUS_UNARY(T(1) / sqrt(x));
    case Unary::Square:
      return GRADUS_UNARY(x * x);
    case Unary::Reciprocal:
      return GRADUS_UNARY(T(1) / x);
    case Unary::Sin:
      return GRADUS_UNARY(sin<T>(x));
    case Unary::Cos:
      return GRADUS_UNARY(cos<T>(x));
    case Unary::Tanh:
      return GRADUS_UNARY(tanh<T>(x));
    case Unary::Sigmoid:
      return GRADUS_UNARY(sigmoid<T>(x));
    case Unary::Relu:
      return GRADUS_UNARY(x <= T(0) ? splat<T>(T(0)) : x);
    case Unary::Gelu:
      return GRADUS_UNARY(x * normal(x).distribution);
    case Unary::GeluTanh:
      return GRADUS_UNARY(x * gelu_tanh_gate(x));
    case Unary::Silu:
      return GRADUS_UNARY(x * sigmoid<T>(x));
    case Unary::Softplus:
      return GRADUS_UNARY(max<T>(x, Vec<T>{}) + log_plus_one<T>(exp<T>(-abs<T>(x))));
    case Unary::AddScalar:
      return GRADUS_UNARY(x + p);
    case Unary::MulScalar:
      return GRADUS_UNARY(x * p);
    case Unary::DivScalar:
      return GRADUS_UNARY(x / p);
    case Unary::RSubScalar:
      return GRADUS_UNARY(p - x);
    case Unary::RDivScalar:
      return GRADUS_UNARY(p / x);
    case Unary::PowScalar:
      return GRADUS_UNARY(power<T>(x, p));
    case Unary::Clamp:
      return GRADUS_UNARY(clamp<T>(x, p, q));
  }
  return nullptr;
}

template <class T>
BinaryRun binary_float_of(Binary op) {
  switch (op) {
    case Binary::Add:
      return GRADUS_BINARY(a + b);
    case Binary::Sub:
      return GRADUS_BINARY(a - b);
    case Binary::Mul:
      return GRADUS_BINARY(a * b);
    case Binary::Div:
      return GRADUS_BINARY(a / b);
    case Binary::Pow:
      return binary_of<T>([](Vec<T> a, Vec<T> b) __attribute__((always_inline))->Vec<T> {
        for (int j = 0; j < Lanes<T>::count; ++j) a[j] = pow_of(a[j], b[j]);
        return a;
      });
    case Binary::Maximum:
      return GRADUS_BINARY(((a > b) | (a != a)) ? a : b);  // NaN of either
    case Binary::Minimum:
      return GRADUS_BINARY(((a < b) | (a != a)) ? a : b);
    case Binary::TanhBackward:
      return GRADUS_BINARY(a * (T(1) - b * b));
    case Binary::SigmoidBackward:
      return GRADUS_BINARY(a * (b * (T(1) - b)));
    case Binary::ReluBackward:
      return GRADUS_BINARY(b > T(0) ? a : splat<T>(T(0)));
    case Binary::GeluBackward:
      return GRADUS_BINARY(a * gelu_slope<T>(b));
    case Binary::GeluTanhBackward:
      return GRADUS_BINARY(a * gelu_tanh_slope<T>(b));
    case Binary::SiluBackward:
      return GRADUS_BINARY(a * silu_slope<T>(b));
  }
  return nullptr;
}

#undef GRADUS_UNARY
#undef GRADUS_BINARY

}  // namespace

UnaryRun unary_float(Unary op, DType dtype) { return GRADUS_FLOATS(unary_float_of, dtype, op); }

BinaryRun binary_float(Binary op, DType dtype) { return GRADUS_FLOATS(binary_float_of, dtype, op); }

}  // namespace gradus::kernels::GRADUS_ISA_NS
