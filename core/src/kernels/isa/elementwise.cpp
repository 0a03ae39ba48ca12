// Elementwise functions of Float32 and Float64 along one run, two vectors of elements at a time. The value of an
// element never depends on its place.
#include "families.h"
#include "math.h"
#include "trig.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// A run goes by pairs of vectors. Whatever does not lie as one in memory goes through a buffer, so that there is one
// loop an op, and every element meets the same instructions.
template <class T>
constexpr i64 pair = 2 * Lanes<T>::count;

// How fast a run reads: where an element takes long, the processor works on few of them at once and so asks for too few
// lines of far memory. A long run of such an op asks for them itself; others would only lose by that.
enum class Pace : bool { Fast, Slow };

// Moves elements between strides 1 and `stride`.
template <class T>
[[gnu::noinline]] void gather(const T* x, i64 stride, i64 count, T* buffer) {
  for (i64 j = 0; j < count; ++j) buffer[j] = x[j * stride];
}
template <class T>
[[gnu::noinline]] void scatter(const T* buffer, i64 count, T* y, i64 stride) {
  for (i64 j = 0; j < count; ++j) y[j * stride] = buffer[j];
}

template <class T, Pace pace>
class Source {
 public:
  // The places beyond a short run are none of its business.
  GRADUS_INLINE Source(i64 n, const void* p, i64 stride)
      : p_(static_cast<const T*>(p)), stride_(stride), ahead_(n > 2 * far ? far : 0) {
    if (stride == 0)
      for (T& x : buffer_) x = *p_;
  }
  GRADUS_INLINE Two<Vec<T>> at(i64 i, i64 count) {
    if (stride_ == 1 && count == pair<T>) {
      if constexpr (pace == Pace::Slow) ask_for<0>(pair<T>, p_ + i + ahead_);
      return load_two(p_ + i);
    }
    if (stride_ != 0) gather(p_ + i * stride_, stride_, count, buffer_);
    return load_two(buffer_);
  }

 private:
  static constexpr i64 far = 2048 / sizeof(T);

  const T* p_;
  i64 stride_, ahead_;
  alignas(64) T buffer_[pair<T>] = {};
};

template <class T>
GRADUS_INLINE void put(T* y, i64 stride, i64 i, i64 count, Two<Vec<T>> v) {
  if (stride == 1 && count == pair<T>) return store_two(y + i, v);
  alignas(64) T buffer[pair<T>];
  store_two(buffer, v);
  scatter(buffer, count, y + i * stride, stride);
}

template <class T, Pace pace, class Op>
void unary_run(i64 n, const void* x_, i64 sx, void* y, i64 sy, double p_, double q_) {
  const T p = static_cast<T>(p_), q = static_cast<T>(q_);
  Source<T, pace> x(n, x_, sx);
  for (i64 i = 0; i < n; i += pair<T>) {
    const i64 count = n - i < pair<T> ? n - i : pair<T>;
    put<T>(static_cast<T*>(y), sy, i, count, Op{}(x.at(i, count), p, q));
  }
}

template <class T, Pace pace, class Op>
void binary_run(i64 n, const void* a_, i64 sa, const void* b_, i64 sb, void* y, i64 sy) {
  Source<T, pace> a(n, a_, sa), b(n, b_, sb);
  for (i64 i = 0; i < n; i += pair<T>) {
    const i64 count = n - i < pair<T> ? n - i : pair<T>;
    put<T>(static_cast<T*>(y), sy, i, count, Op{}(a.at(i, count), b.at(i, count)));
  }
}

template <class T, Pace pace, class Op>
UnaryRun unary_of(Op) {
  return unary_run<T, pace, Op>;
}
template <class T, Pace pace, class Op>
BinaryRun binary_of(Op) {
  return binary_run<T, pace, Op>;
}

GRADUS_INLINE float pow_of(float x, float y) { return __builtin_powf(x, y); }
GRADUS_INLINE double pow_of(double x, double y) { return __builtin_pow(x, y); }

// x^p; the powers that training uses are products, quotients and roots.
template <class T, class V>
GRADUS_INLINE V power(V x, T p) {
  constexpr T infinity = Lanes<T>::infinity;
  if (p == T(2)) return x * x;
  if (p == T(3)) return x * x * x;
  if (p == T(1)) return x;
  if (p == T(-1)) return T(1) / x;
  if (p == T(0.5)) return select(x == -infinity, filled<V>(infinity), sqrt(x + T(0)));
  return each_lane<T>(x, [p](T v) { return pow_of(v, p); });
}
template <class T>
GRADUS_INLINE Vec<T> power_each(Vec<T> x, Vec<T> p) {
  for (int j = 0; j < Lanes<T>::count; ++j) x[j] = pow_of(x[j], p[j]);
  return x;
}

template <class T, class V>
GRADUS_INLINE V clamp(V x, T low, T high) {
  return at_most(at_least(x, low), high);
}

// x·Φ(x): the tail is what is missing of x, or there of 0. (The formula gives NaN at -inf.)
template <class T, class V>
GRADUS_INLINE V gelu(V x) {
  const Normal<V> at = normal<T>(x);
  return at_least(x, T(0)) - max<T>(-x, at.size) * at.tail;
}

// The slopes below meet 0·inf at infinite x, where the function is flat or straight: x is clamped where that changes
// nothing else.
template <class T, class V>
GRADUS_INLINE V gelu_slope(V x) {
  const Normal<V> at = normal<T>(x);
  return select(x > T(0), T(1) - at.tail, at.tail) + clamp<T>(x, T(-40), T(40)) * at.density;
}
// s = sigmoid(2u): d(x·s)/dx = s + x·s·(1 - s)·2u'.
template <class T, class V>
GRADUS_INLINE V gelu_tanh_slope(V x) {
  const Sigmoid<V> at = sigmoid_and_rest<T>(T(2) * gelu_tanh_inner<T>(x));
  const V t = clamp<T>(x, T(-30), T(30));
  return at.s + t * at.s * at.rest * (T(2) * gelu_tanh_inner_slope<T>(t));
}
template <class T, class V>
GRADUS_INLINE V silu_slope(V x) {
  const Sigmoid<V> at = sigmoid_and_rest<T>(x);
  return at.s * (T(1) + clamp<T>(x, T(-1e4), T(1e4)) * at.rest);
}

#define GRADUS_UNARY(pace, ...)                                                                                \
  unary_of<T, Pace::pace>(                                                                                     \
      []([[maybe_unused]] V x, [[maybe_unused]] T p, [[maybe_unused]] T q) __attribute__((always_inline))->V { \
        return __VA_ARGS__;                                                                                    \
      })
#define GRADUS_BINARY(pace, ...) \
  binary_of<T, Pace::pace>([](V a, V b) __attribute__((always_inline))->V { return __VA_ARGS__; })

template <class T>
UnaryRun unary_float_of(Unary op) {
  using V = Two<Vec<T>>;
  switch (op) {
    case Unary::Copy:
      return GRADUS_UNARY(Fast, x);
    case Unary::Neg:
      return GRADUS_UNARY(Fast, -x);
    case Unary::Abs:
      return GRADUS_UNARY(Fast, abs<T>(x));
    case Unary::Sign:
      return GRADUS_UNARY(Fast, select(x > T(0), filled<V>(T(1)), select(x < T(0), filled<V>(T(-1)), x)));
    case Unary::Exp:
      return GRADUS_UNARY(Slow, exp<T>(x));
    case Unary::Log:
      return GRADUS_UNARY(Slow, log<T>(x));
    case Unary::Sqrt:
      return GRADUS_UNARY(Fast, sqrt(x));
    case Unary::Rsqrt:
      return GRADUS_UNARY(Fast, T(1) / sqrt(x));
    case Unary::Square:
      return GRADUS_UNARY(Fast, x * x);
    case Unary::Reciprocal:
      return GRADUS_UNARY(Fast, T(1) / x);
    case Unary::Sin:
      return GRADUS_UNARY(Slow, sin<T>(x));
    case Unary::Cos:
      return GRADUS_UNARY(Slow, cos<T>(x));
    case Unary::Tanh:
      return GRADUS_UNARY(Slow, tanh<T>(x));
    case Unary::Sigmoid:
      return GRADUS_UNARY(Slow, sigmoid<T>(x));
    case Unary::Relu:
      return GRADUS_UNARY(Fast, select(x <= T(0), V{}, x));
    case Unary::Gelu:
      return GRADUS_UNARY(Slow, gelu<T>(x));
    case Unary::GeluTanh:
      return GRADUS_UNARY(Slow, x * gelu_tanh_gate<T>(x));
    case Unary::Silu:
      return GRADUS_UNARY(Slow, x * sigmoid<T>(x));
    case Unary::Softplus:
      return GRADUS_UNARY(Slow, max<T>(x, V{}) + log_plus_one<T>(exp_of_negative<T>(-abs<T>(x))));
    case Unary::AddScalar:
      return GRADUS_UNARY(Fast, x + p);
    case Unary::MulScalar:
      return GRADUS_UNARY(Fast, x * p);
    case Unary::DivScalar:
      return GRADUS_UNARY(Fast, x / p);
    case Unary::RSubScalar:
      return GRADUS_UNARY(Fast, p - x);
    case Unary::RDivScalar:
      return GRADUS_UNARY(Fast, p / x);
    case Unary::PowScalar:
      return GRADUS_UNARY(Slow, power<T>(x, p));
    case Unary::Clamp:
      return GRADUS_UNARY(Fast, clamp<T>(x, p, q));
  }
  return nullptr;
}

template <class T>
BinaryRun binary_float_of(Binary op) {
  using V = Two<Vec<T>>;
  switch (op) {
    case Binary::Add:
      return GRADUS_BINARY(Fast, a + b);
    case Binary::Sub:
      return GRADUS_BINARY(Fast, a - b);
    case Binary::Mul:
      return GRADUS_BINARY(Fast, a * b);
    case Binary::Div:
      return GRADUS_BINARY(Fast, a / b);
    case Binary::Pow:
      return GRADUS_BINARY(Slow, {power_each<T>(a.a, b.a), power_each<T>(a.b, b.b)});
    case Binary::Maximum:
      return GRADUS_BINARY(Fast, select((a > b) | (a != a), a, b));  // NaN of either
    case Binary::Minimum:
      return GRADUS_BINARY(Fast, select((a < b) | (a != a), a, b));
    case Binary::TanhBackward:
      return GRADUS_BINARY(Fast, a * (T(1) - b * b));
    case Binary::SigmoidBackward:
      return GRADUS_BINARY(Fast, a * (b * (T(1) - b)));
    case Binary::ReluBackward:
      return GRADUS_BINARY(Fast, select(b > T(0), a, V{}));
    case Binary::GeluBackward:
      return GRADUS_BINARY(Slow, a * gelu_slope<T>(b));
    case Binary::GeluTanhBackward:
      return GRADUS_BINARY(Slow, a * gelu_tanh_slope<T>(b));
    case Binary::SiluBackward:
      return GRADUS_BINARY(Slow, a * silu_slope<T>(b));
  }
  return nullptr;
}

#undef GRADUS_UNARY
#undef GRADUS_BINARY

}  // namespace

UnaryRun unary_float(Unary op, DType dtype) { return GRADUS_FLOATS(unary_float_of, dtype, op); }

BinaryRun binary_float(Binary op, DType dtype) { return GRADUS_FLOATS(binary_float_of, dtype, op); }

}  // namespace gradus::kernels::GRADUS_ISA_NS
