#pragma once
// The loop that products spend their time in.
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// acc += A·B for a tile of rows × vectors, which stays in registers: A is rows × k with any strides, the rows of B are
// b_row apart.
template <class T, int rows, int vectors>
GRADUS_INLINE void multiply_onto(i64 k, const T* a, i64 a_row, i64 a_col, const T* b, i64 b_row,
                                 Vec<T> (&acc)[rows][vectors]) {
  constexpr i64 w = Lanes<T>::count;
#pragma GCC unroll 2
  for (i64 p = k; p > 0; --p) {
    Vec<T> bv[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) bv[v] = load(b + v * w);
#pragma GCC unroll 14
    for (int r = 0; r < rows; ++r) {
      const Vec<T> av = splat(a[r * a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) acc[r][v] += av * bv[v];
    }
    a += a_col;
    b += b_row;
  }
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
