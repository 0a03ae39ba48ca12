#pragma once
// Sums over the rows of a matrix, in double: of bundles of rows, so that each thread reads memory as it lies, and then
// of their results in order. What is a bundle depends on the sizes alone.
#include <algorithm>

#include "kernels.h"
#include "parallel.h"
#include "scratch.h"

namespace gradus::kernels {

inline i64 rows_of_bundle(i64 n) { return std::max<i64>(16, 65536 / n); }

/// Whether `rows` rows of n columns are worth bundles; else one piece has all rows of some columns.
inline bool many_rows(i64 rows, i64 n) { return rows >= 2 * rows_of_bundle(n); }

/// The `width` sums that add(first row, rows, sums) adds up, over `rows` rows of n numbers. They lie in this thread's
/// scratch memory.
template <class Add>
const double* column_sums(i64 rows, i64 n, i64 width, Add add) {
  const i64 bundle = many_rows(rows, n) ? rows_of_bundle(n) : std::max<i64>(rows, 1);
  const i64 bundles = std::max<i64>(1, (rows + bundle - 1) / bundle);
  auto* sums = static_cast<double*>(scratch(2, static_cast<std::size_t>(bundles * width) * sizeof(double)));
  parallel(bundles, [&](i64 i) {
    std::fill_n(sums + i * width, width, 0.0);
    add(i * bundle, std::min(bundle, rows - i * bundle), sums + i * width);
  });
  table().add_rows(DType::Float64, bundles - 1, width, sums + width, sums);
  return sums;
}

/// n sums as numbers of dtype.
inline void store_sums(DType dtype, i64 n, const double* sums, void* y) {
  table().cast(DType::Float64, dtype)(n, sums, 1, y, 1, 0, 0);
}

}  // namespace gradus::kernels
