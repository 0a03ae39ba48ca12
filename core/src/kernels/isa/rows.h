#pragma once
// What softmax and cross entropy ask of a row first.
#include "math.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// The largest element. A NaN may be passed over: it reaches the result through the sum of exponentials.
template <class T>
GRADUS_INLINE T row_max(i64 n, const T* x) {
  constexpr i64 w = Lanes<T>::count;
  constexpr T lowest = -Lanes<T>::infinity;
  Vec<T> a = splat<T>(lowest), b = a;
  i64 i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    a = max<T>(load(x + i), a);
    b = max<T>(load(x + i + w), b);
  }
  for (; i < n; i += w) a = max<T>(load_up_to(x + i, n - i, lowest), a);
  return largest_lane<T>(max<T>(a, b));
}

// Σ e^(x - top), where top is the largest: so small that its power of two would be subnormal, a term is nothing beside
// the largest, 1.
template <class T>
GRADUS_INLINE double sum_exp(i64 n, const T* x, T top) {
  constexpr T lowest = sizeof(T) == 4 ? T(-87) : T(-708);
  if (top == Lanes<T>::infinity || top == -Lanes<T>::infinity) return static_cast<double>(top - top);  // NaN
  Sum sum;
  each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    const Vec<T> v = load_up_to(x + i, count, -Lanes<T>::infinity);
    __builtin_prefetch(x + i + n);  // the next row, while this one is worked on
    const Reduced<Vec<T>> at = reduce_by_ln2<T>(at_least(v - top, lowest), T(0));
    sum.add(exp_reduced<T>(at.r) * at.power);
  });
  return sum.total();
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
