#pragma once
// Two vectors that go through the same instructions side by side: a chain of dependent ones leaves a processor idle,
// two chains much less so. What is written for a type V serves for one vector and for two.
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

template <class E>
struct Two {
  E a, b;
};

// The number type of a vector, and the integers of the same width.
template <class V>
struct PartsOf;
template <>
struct PartsOf<VecF> {
  using Number = float;
  using Ints = VecI32;
};
template <>
struct PartsOf<VecD> {
  using Number = double;
  using Ints = VecI64;
};
template <>
struct PartsOf<VecI32> {
  using Number = std::int32_t;
  using Ints = VecI32;
};
template <>
struct PartsOf<VecI64> {
  using Number = std::int64_t;
  using Ints = VecI64;
};
template <class E>
struct PartsOf<Two<E>> {
  using Number = typename PartsOf<E>::Number;
  using Ints = Two<typename PartsOf<E>::Ints>;
};
template <class V>
using Number = typename PartsOf<V>::Number;
template <class V>
using Ints = typename PartsOf<V>::Ints;

#define GRADUS_TWO(op)                                        \
  template <class E>                                          \
  GRADUS_INLINE auto operator op(Two<E> x, Two<E> y) {        \
    return Two<decltype(x.a op y.a)>{x.a op y.a, x.b op y.b}; \
  }                                                           \
  template <class E>                                          \
  GRADUS_INLINE auto operator op(Two<E> x, Number<E> y) {     \
    return Two<decltype(x.a op y)>{x.a op y, x.b op y};       \
  }                                                           \
  template <class E>                                          \
  GRADUS_INLINE auto operator op(Number<E> x, Two<E> y) {     \
    return Two<decltype(x op y.a)>{x op y.a, x op y.b};       \
  }
GRADUS_TWO(+)
GRADUS_TWO(-)
GRADUS_TWO(*)
GRADUS_TWO(/)
GRADUS_TWO(&)
GRADUS_TWO(|)
GRADUS_TWO(^)
GRADUS_TWO(<<)
GRADUS_TWO(>>)
GRADUS_TWO(<)
GRADUS_TWO(>)
GRADUS_TWO(<=)
GRADUS_TWO(>=)
GRADUS_TWO(==)
GRADUS_TWO(!=)
#undef GRADUS_TWO
template <class E>
GRADUS_INLINE Two<E> operator-(Two<E> x) {
  return {-x.a, -x.b};
}

// Vectors full of one number; -0 stays.
template <class V>
GRADUS_INLINE V filled(Number<V> x) {
  return x - V{};
}

template <class M, class V>
GRADUS_INLINE V select(M mask, V x, V y) {
  return mask ? x : y;
}
template <class M, class E>
GRADUS_INLINE Two<E> select(Two<M> mask, Two<E> x, Two<E> y) {
  return {mask.a ? x.a : y.a, mask.b ? x.b : y.b};
}

// The bits of floating numbers as integers, and back.
template <class V>
GRADUS_INLINE Ints<V> bits_of(V x) {
  return (Ints<V>)x;
}
template <class E>
GRADUS_INLINE Two<Ints<E>> bits_of(Two<E> x) {
  return {(Ints<E>)x.a, (Ints<E>)x.b};
}
template <class V>
struct FromBits {
  GRADUS_INLINE static V of(Ints<V> k) { return (V)k; }
};
template <class E>
struct FromBits<Two<E>> {
  GRADUS_INLINE static Two<E> of(Two<Ints<E>> k) { return {(E)k.a, (E)k.b}; }
};
template <class V>
GRADUS_INLINE V from_bits(Ints<V> k) {
  return FromBits<V>::of(k);
}

// f of each vector.
template <class V, class F>
GRADUS_INLINE V each(V x, F f) {
  return f(x);
}
template <class E, class F>
GRADUS_INLINE Two<E> each(Two<E> x, F f) {
  return {f(x.a), f(x.b)};
}

template <class T>
GRADUS_INLINE Two<Vec<T>> abs(Two<Vec<T>> x) {
  return {abs<T>(x.a), abs<T>(x.b)};
}
template <class T>
GRADUS_INLINE Two<Vec<T>> copy_sign(Two<Vec<T>> x, Two<Vec<T>> s) {
  return {copy_sign<T>(x.a, s.a), copy_sign<T>(x.b, s.b)};
}
template <class T>
GRADUS_INLINE Two<Vec<T>> max(Two<Vec<T>> a, Two<Vec<T>> b) {
  return {max<T>(a.a, b.a), max<T>(a.b, b.b)};
}
template <class E>
GRADUS_INLINE Two<E> sqrt(Two<E> x) {
  return {sqrt(x.a), sqrt(x.b)};
}
template <class T, class F>
GRADUS_INLINE Two<Vec<T>> each_lane(Two<Vec<T>> x, F f) {
  return {each_lane<T>(x.a, f), each_lane<T>(x.b, f)};
}

// The larger and the smaller of a number and a bound; NaN stays. (The instructions of x86 give the second of two where
// one is NaN.)
GRADUS_INLINE VecF at_least(VecF x, float bound) {
#if defined(__AVX512F__)
  return (VecF)_mm512_max_ps((__m512)splat(bound), (__m512)x);
#elif defined(__AVX2__)
  return (VecF)_mm256_max_ps((__m256)splat(bound), (__m256)x);
#elif defined(__SSE2__)
  return (VecF)_mm_max_ps((__m128)splat(bound), (__m128)x);
#else
  return x < bound ? splat(bound) : x;
#endif
}
GRADUS_INLINE VecF at_most(VecF x, float bound) {
#if defined(__AVX512F__)
  return (VecF)_mm512_min_ps((__m512)splat(bound), (__m512)x);
#elif defined(__AVX2__)
  return (VecF)_mm256_min_ps((__m256)splat(bound), (__m256)x);
#elif defined(__SSE2__)
  return (VecF)_mm_min_ps((__m128)splat(bound), (__m128)x);
#else
  return x > bound ? splat(bound) : x;
#endif
}
GRADUS_INLINE VecD at_least(VecD x, double bound) { return x < bound ? splat(bound) : x; }
GRADUS_INLINE VecD at_most(VecD x, double bound) { return x > bound ? splat(bound) : x; }
template <class E>
GRADUS_INLINE Two<E> at_least(Two<E> x, Number<E> bound) {
  return {at_least(x.a, bound), at_least(x.b, bound)};
}
template <class E>
GRADUS_INLINE Two<E> at_most(Two<E> x, Number<E> bound) {
  return {at_most(x.a, bound), at_most(x.b, bound)};
}

// Whether a comparison holds in any lane.
template <class M>
GRADUS_INLINE bool any(M mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_testz_si256((__m256i)mask, (__m256i)mask) == 0;
#elif defined(__SSE2__)
  return _mm_movemask_epi8((__m128i)mask) != 0;
#else
  const VecI64 lanes = (VecI64)mask;
  bool result = false;
  for (int j = 0; j < Lanes<double>::count; ++j) result = result || lanes[j] != 0;
  return result;
#endif
}
template <class M>
GRADUS_INLINE bool any(Two<M> mask) {
  return any(mask.a | mask.b);
}

template <class T>
GRADUS_INLINE Two<Vec<T>> load_two(const T* p) {
  return {load(p), load(p + Lanes<T>::count)};
}
template <class T>
GRADUS_INLINE void store_two(T* p, Two<Vec<T>> v) {
  store<T>(p, v.a);
  store<T>(p + Lanes<T>::count, v.b);
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
