#pragma once
// Vectors of the widest registers of one instruction set, written with the vector types of g++ and clang++: `a + b`,
// `a < b` and `mask ? a : b` work lane by lane, and a*b + c becomes one fused instruction where there is one.
//
// Everything here is in an unnamed namespace: an inline function that stays out of line must not be shared with the
// objects of another instruction set. For the same reason nothing of the standard library is used in this folder.
#include <cstdint>

#include "../table.h"

// <immintrin.h> has the instructions of every set, and takes the compiler longer than many a kernel.
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define GRADUS_INLINE [[gnu::always_inline]] inline

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

typedef float VecF __attribute__((vector_size(vector_bytes)));
typedef double VecD __attribute__((vector_size(vector_bytes)));
typedef std::int32_t VecI32 __attribute__((vector_size(vector_bytes)));
typedef std::uint32_t VecU32 __attribute__((vector_size(vector_bytes)));
typedef std::int64_t VecI64 __attribute__((vector_size(vector_bytes)));
typedef std::uint64_t VecU64 __attribute__((vector_size(vector_bytes)));

// What belongs to a float type: its vector, and the integers of the same width (which comparisons give).
template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  using Vec = VecF;
  using Int = VecI32;
  using Word = std::int32_t;
  static constexpr int count = vector_bytes / 4;
  static constexpr int mantissa_bits = 23;
  static constexpr Word exponent_bias = 127;
  static constexpr float infinity = __builtin_inff();
};
template <>
struct Lanes<double> {
  using Vec = VecD;
  using Int = VecI64;
  using Word = std::int64_t;
  static constexpr int count = vector_bytes / 8;
  static constexpr int mantissa_bits = 52;
  static constexpr Word exponent_bias = 1023;
  static constexpr double infinity = __builtin_inf();
};

template <class T>
using Vec = typename Lanes<T>::Vec;
template <class T>
using Int = typename Lanes<T>::Int;

template <class T>
GRADUS_INLINE Vec<T> splat(T x) {
  return x - Vec<T>{};  // keeps -0 (x + 0 would not)
}
template <class T>
GRADUS_INLINE Int<T> splat_int(typename Lanes<T>::Word x) {
  return x - Int<T>{};
}

template <class T>
GRADUS_INLINE Vec<T> load(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
GRADUS_INLINE void store(T* p, Vec<T> v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// Asks for the lines of n numbers that are soon read, or (write = 1) overwritten.
template <int write, class T>
GRADUS_INLINE void ask_for(i64 n, const T* p) {
  for (i64 i = 0; i < n; i += 64 / static_cast<i64>(sizeof(T))) __builtin_prefetch(p + i, write);
}

#if defined(__AVX512F__)
GRADUS_INLINE VecF load_first(const float* p, i64 count) {
  return (VecF)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), p);
}
GRADUS_INLINE VecD load_first(const double* p, i64 count) {
  return (VecD)_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1u), p);
}
GRADUS_INLINE void store_first(float* p, VecF v, i64 count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1u), (__m512)v);
}
GRADUS_INLINE void store_first(double* p, VecD v, i64 count) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << count) - 1u), (__m512d)v);
}
#elif defined(__AVX2__)
GRADUS_INLINE __m256i first_lanes(const float*, i64 count) {
  const VecI32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return (__m256i)(lane < static_cast<std::int32_t>(count));
}
GRADUS_INLINE __m256i first_lanes(const double*, i64 count) {
  const VecI64 lane = {0, 1, 2, 3};
  return (__m256i)(lane < count);
}
GRADUS_INLINE VecF load_first(const float* p, i64 count) { return (VecF)_mm256_maskload_ps(p, first_lanes(p, count)); }
GRADUS_INLINE VecD load_first(const double* p, i64 count) { return (VecD)_mm256_maskload_pd(p, first_lanes(p, count)); }
// By halves: a masked store takes many cycles on AMD's processors.
GRADUS_INLINE void store_first(float* p, VecF v, i64 count) {
  __m128 rest = _mm256_castps256_ps128((__m256)v);
  if ((count & 4) != 0) {
    _mm_storeu_ps(p, rest);
    rest = _mm256_extractf128_ps((__m256)v, 1);
    p += 4;
  }
  if ((count & 2) != 0) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), rest);
    rest = _mm_movehl_ps(rest, rest);
    p += 2;
  }
  if ((count & 1) != 0) _mm_store_ss(p, rest);
}
GRADUS_INLINE void store_first(double* p, VecD v, i64 count) {
  __m128d rest = _mm256_castpd256_pd128((__m256d)v);
  if ((count & 2) != 0) {
    _mm_storeu_pd(p, rest);
    rest = _mm256_extractf128_pd((__m256d)v, 1);
    p += 2;
  }
  if ((count & 1) != 0) _mm_store_sd(p, rest);
}
#else
template <class T>
GRADUS_INLINE Vec<T> load_first(const T* p, i64 count) {
  Vec<T> v{};
  for (int j = 0; j < Lanes<T>::count - 1; ++j)
    if (j < count) v[j] = p[j];
  return v;
}
template <class T>
GRADUS_INLINE void store_first(T* p, Vec<T> v, i64 count) {
  for (int j = 0; j < Lanes<T>::count - 1; ++j)
    if (j < count) p[j] = v[j];
}
#endif

// Lane numbers as template arguments, for shuffles.
template <int... l>
struct Indices {};
template <int n, int... l>
struct IndicesTo : IndicesTo<n - 1, n - 1, l...> {};
template <int... l>
struct IndicesTo<0, l...> {
  using Type = Indices<l...>;
};

// The first `count` elements, at most a vector full; the other lanes are `fill`.
template <class T>
GRADUS_INLINE Vec<T> load_up_to(const T* p, i64 count) {
  return count >= Lanes<T>::count ? load(p) : load_first(p, count);
}

// Calls f(first, count) for each vector full of n elements, and once for what is left. For full vectors the count is a
// constant, once f is inlined.
#define GRADUS_INLINED __attribute__((always_inline))
template <class T, class F>
GRADUS_INLINE void each_vector(i64 n, F f) {
  constexpr i64 w = Lanes<T>::count;
  i64 i = 0;
  for (; i + w <= n; i += w) f(i, w);
  if (i < n) f(i, n - i);
}

template <class T>
GRADUS_INLINE Int<T> lane_numbers() {
  Int<T> lane{};
  for (int j = 0; j < Lanes<T>::count; ++j) lane[j] = j;
  return lane;
}
template <class T>
GRADUS_INLINE Vec<T> load_up_to(const T* p, i64 count, T fill) {
  if (count >= Lanes<T>::count) return load(p);
  const Vec<T> v = load_first(p, count);
  return lane_numbers<T>() < static_cast<typename Lanes<T>::Word>(count) ? v : splat<T>(fill);
}
template <class T>
GRADUS_INLINE void store_up_to(T* p, Vec<T> v, i64 count) {
  if (count >= Lanes<T>::count)
    store(p, v);
  else
    store_first(p, v, count);
}

// Loads and stores along a stride: 1 neighbours, 0 one element for all lanes.
template <class T>
GRADUS_INLINE Vec<T> load_strided(const T* p, i64 stride, i64 count) {
  if (stride == 1) return load_up_to(p, count);
  if (stride == 0) return splat<T>(*p);
  Vec<T> v{};
  if (count >= Lanes<T>::count) count = Lanes<T>::count;
  alignas(vector_bytes) T lanes[Lanes<T>::count] = {};
  for (i64 j = 0; j < count; ++j) lanes[j] = p[j * stride];
  __builtin_memcpy(&v, lanes, sizeof v);
  return v;
}
template <class T>
GRADUS_INLINE void store_strided(T* p, i64 stride, Vec<T> v, i64 count) {
  if (stride == 1) return store_up_to(p, v, count);
  if (count >= Lanes<T>::count) count = Lanes<T>::count;
  alignas(vector_bytes) T lanes[Lanes<T>::count];
  __builtin_memcpy(lanes, &v, sizeof v);
  for (i64 j = 0; j < count; ++j) p[j * stride] = lanes[j];
}

// Sums are taken in double: a vector of floats is added as two halves. (What compilers make of shuffling and converting
// is three times as long as these instructions.)
#if defined(__AVX512F__)
GRADUS_INLINE VecD lower(VecF v) { return (VecD)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v)); }
GRADUS_INLINE VecD upper(VecF v) { return (VecD)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1)); }
#elif defined(__AVX2__)
GRADUS_INLINE VecD lower(VecF v) { return (VecD)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v)); }
GRADUS_INLINE VecD upper(VecF v) { return (VecD)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1)); }
#elif defined(__SSE2__)
GRADUS_INLINE VecD lower(VecF v) { return (VecD)_mm_cvtps_pd((__m128)v); }
GRADUS_INLINE VecD upper(VecF v) { return (VecD)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v)); }
#else
template <int from, int... l>
GRADUS_INLINE VecD half(VecF v, Indices<l...>) {
  return __builtin_convertvector(__builtin_shufflevector(v, v, (from + l)...), VecD);
}
GRADUS_INLINE VecD lower(VecF v) { return half<0>(v, IndicesTo<Lanes<double>::count>::Type{}); }
GRADUS_INLINE VecD upper(VecF v) { return half<Lanes<double>::count>(v, IndicesTo<Lanes<double>::count>::Type{}); }
#endif

// Folds the lanes of a vector: halves onto each other, again and again. `folded` has the result in all lanes, `fold` is
// that number.
template <class T, int d, int... l>
GRADUS_INLINE Vec<T> swapped(Vec<T> v, Indices<l...>) {
  return __builtin_shufflevector(v, v, (l ^ d)...);
}
template <class T, int d = Lanes<T>::count / 2, class F>
GRADUS_INLINE Vec<T> folded(Vec<T> v, F f) {
  if constexpr (d == 0) {
    return v;
  } else {
    return folded<T, d / 2>(f(v, swapped<T, d>(v, typename IndicesTo<Lanes<T>::count>::Type{})), f);
  }
}
template <class T, class F>
GRADUS_INLINE T fold(Vec<T> v, F f) {
  return folded<T>(v, f)[0];
}

// A running sum of vectors, in double.
struct Sum {
  VecD even{}, odd{};
  GRADUS_INLINE void add(VecF v) {
    even += lower(v);
    odd += upper(v);
  }
  GRADUS_INLINE void add(VecD v) { even += v; }
  GRADUS_INLINE double total() const {
    return fold<double>(even + odd, [](VecD a, VecD b) { return a + b; });
  }
};

template <class T>
GRADUS_INLINE Vec<T> abs(Vec<T> x) {
  const auto sign = static_cast<typename Lanes<T>::Word>(typename Lanes<T>::Word{1} << (sizeof(T) * 8 - 1));
  return (Vec<T>)((Int<T>)x & ~splat_int<T>(sign));
}
// |x| with the sign of s.
template <class T>
GRADUS_INLINE Vec<T> copy_sign(Vec<T> x, Vec<T> s) {
  const Int<T> sign =
      splat_int<T>(static_cast<typename Lanes<T>::Word>(typename Lanes<T>::Word{1} << (sizeof(T) * 8 - 1)));
  return (Vec<T>)(((Int<T>)x & ~sign) | ((Int<T>)s & sign));
}
// The larger; b where one is NaN (the instruction of x86).
template <class T>
GRADUS_INLINE Vec<T> max(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}
template <class T>
GRADUS_INLINE Vec<T> largest_in_all(Vec<T> v) {
  return folded<T>(v, [](Vec<T> a, Vec<T> b) { return max<T>(a, b); });
}
template <class T>
GRADUS_INLINE T largest_lane(Vec<T> v) {
  return largest_in_all<T>(v)[0];
}
GRADUS_INLINE VecF sqrt(VecF x) {
#if defined(__AVX512F__)
  return (VecF)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
  return (VecF)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (VecF)_mm_sqrt_ps((__m128)x);
#else
  for (int j = 0; j < Lanes<float>::count; ++j) x[j] = __builtin_sqrtf(x[j]);
  return x;
#endif
}
GRADUS_INLINE VecD sqrt(VecD x) {
#if defined(__AVX512F__)
  return (VecD)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__)
  return (VecD)_mm256_sqrt_pd((__m256d)x);
#elif defined(__SSE2__)
  return (VecD)_mm_sqrt_pd((__m128d)x);
#else
  for (int j = 0; j < Lanes<double>::count; ++j) x[j] = __builtin_sqrt(x[j]);
  return x;
#endif
}

// A function of one number, lane by lane.
template <class T, class F>
GRADUS_INLINE Vec<T> each_lane(Vec<T> x, F f) {
  for (int j = 0; j < Lanes<T>::count; ++j) x[j] = f(x[j]);
  return x;
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
