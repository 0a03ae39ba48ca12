#pragma once
// sin and cos on vectors, in double also for floats: x = n·π/2 + r, and Taylor's series of sin r or cos r, which on
// ±π/4 needs few terms. Beyond a million π/2 would need more digits: there they are the C library's.
#include "two.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

typedef float HalfF __attribute__((vector_size(vector_bytes / 2)));

template <int... l>
GRADUS_INLINE VecF joined(HalfF a, HalfF b, Indices<l...>) {
  return __builtin_shufflevector(a, b, l...);
}

constexpr double largest_turned = 1e6;

// sin(x + turn·π/2) for |x| up to a million, right to the last places of a double or of a float.
template <bool in_double>
GRADUS_INLINE VecD turned_sin(VecD x, std::int64_t turn) {
  constexpr double round = 6755399441055744;  // 1.5·2^52: adding it rounds to an integer
  const VecD rounded = x * 0.63661977236758134308 + round, n = rounded - round;
  // π/2 in parts of 33 bits, of which n takes no digit away.
  const VecD r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69, z = r * r;
  VecD s, c;
  if constexpr (in_double) {
    s = z * (1 / 355687428096000.0) - 1 / 1307674368000.0;
    s = s * z + 1 / 6227020800.0;
    s = s * z - 1 / 39916800.0;
    s = s * z + 1 / 362880.0;
    c = z * (1 / 20922789888000.0) - 1 / 87178291200.0;
    c = c * z + 1 / 479001600.0;
    c = c * z - 1 / 3628800.0;
  } else {
    s = VecD{} + 1 / 362880.0;
    c = VecD{} - 1 / 3628800.0;
  }
  s = s * z - 1 / 5040.0;
  s = s * z + 1 / 120.0;
  s = s * z - 1 / 6.0;
  s = s * z * r + r;
  c = c * z + 1 / 40320.0;
  c = c * z - 1 / 720.0;
  c = c * z + 1 / 24.0;
  c = c * (z * z) + (1.0 - 0.5 * z);
  const VecI64 quarter = (VecI64)rounded + turn;
  const VecD value = (quarter & 1) != 0 ? c : s;
  return (VecD)((VecI64)value ^ ((quarter & 2) << 62));
}
GRADUS_INLINE VecD turned_sin(VecD x, std::int64_t turn) { return turned_sin<true>(x, turn); }
GRADUS_INLINE VecF turned_sin(VecF x, std::int64_t turn) {
  const VecD a = turned_sin<false>(lower(x), turn), b = turned_sin<false>(upper(x), turn);
  return joined(__builtin_convertvector(a, HalfF), __builtin_convertvector(b, HalfF),
                typename IndicesTo<Lanes<float>::count>::Type{});
}

// y, but where |x| is large f(x).
template <class T, class F>
GRADUS_INLINE Vec<T> but_large(Vec<T> x, Vec<T> y, F f) {
  const Int<T> large = ~(abs<T>(x) <= T(largest_turned));
  if (any(large))
    for (int j = 0; j < Lanes<T>::count; ++j)
      if (large[j] != 0) y[j] = f(x[j]);
  return y;
}

template <class T, class V>
GRADUS_INLINE V sin(V x) {
  return each(x, [](Vec<T> v) GRADUS_INLINED {
    return but_large<T>(v, turned_sin(v, 0), [](T t) { return static_cast<T>(__builtin_sin(static_cast<double>(t))); });
  });
}
template <class T, class V>
GRADUS_INLINE V cos(V x) {
  return each(x, [](Vec<T> v) GRADUS_INLINED {
    return but_large<T>(v, turned_sin(v, 1), [](T t) { return static_cast<T>(__builtin_cos(static_cast<double>(t))); });
  });
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
