#pragma once
// Sums of columns, in double, over rows that are read as they lie: a few rows at a time, so that a sum is loaded and
// stored once for them, in tiles of columns whose sums stay in the first cache. The processor does not foresee the next
// rows: they are asked for.
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

constexpr i64 column_tile = 1024;
constexpr int rows_at_once = 4;

// The sums of as many columns as a vector has lanes.
template <class T>
GRADUS_INLINE Sum load_sum(const double* p, i64 count) {
  constexpr i64 w = Lanes<double>::count;
  Sum s;
  s.even = load_up_to(p, count);
  if constexpr (sizeof(T) == 4) {
    if (count > w) s.odd = load_up_to(p + w, count - w);
  }
  return s;
}
template <class T>
GRADUS_INLINE void store_sum(double* p, const Sum& s, i64 count) {
  constexpr i64 w = Lanes<double>::count;
  store_up_to<double>(p, s.even, count);
  if constexpr (sizeof(T) == 4) {
    if (count > w) store_up_to<double>(p + w, s.odd, count - w);
  }
}

// Calls add(r, rows, i, count) for `rows` rows from r on (rows_at_once or 1) and `count` columns from i on.
template <class T, class Add>
GRADUS_INLINE void each_column_block(i64 n, i64 inner, Add add) {
  for (i64 t = 0; t < inner; t += column_tile) {
    const i64 width = inner - t < column_tile ? inner - t : column_tile;
    i64 r = 0;
    for (; r + rows_at_once <= n; r += rows_at_once)
      each_vector<T>(width, [&](i64 i, i64 count) GRADUS_INLINED { add(r, i64{rows_at_once}, t + i, count); });
    for (; r < n; ++r) each_vector<T>(width, [&](i64 i, i64 count) GRADUS_INLINED { add(r, i64{1}, t + i, count); });
  }
}

// y[i] += Σ x[r, i] over n rows of `inner` columns, `stride` apart.
template <class T>
GRADUS_INLINE void add_columns(i64 n, i64 inner, i64 stride, const T* x, double* y) {
  each_column_block<T>(n, inner, [&](i64 r, i64 rows, i64 i, i64 count) GRADUS_INLINED {
    const T* p = x + r * stride + i;
    Sum sum = load_sum<T>(y + i, count);
#pragma GCC unroll 4
    for (i64 k = 0; k < rows; ++k) {
      __builtin_prefetch(p + (k + rows_at_once) * stride);
      sum.add(load_up_to(p + k * stride, count));
    }
    store_sum<T>(y + i, sum, count);
  });
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
