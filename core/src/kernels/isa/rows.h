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

// Σ e^(x - top)
template <class T>
GRADUS_INLINE double sum_exp(i64 n, const T* x, T top) {
  Sum sum;
  each_vector<T>(n, [&](i64 i, i64 count)
                        GRADUS_INLINED { sum.add(exp<T>(load_up_to(x + i, count, -Lanes<T>::infinity) - top)); });
  return sum.total();
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
