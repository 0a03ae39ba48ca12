#pragma once
// How the operands of products are copied, so that the tile reads them in the order in which they lie (gemm.cpp).
#include "products.h"
#include "transpose.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// Columns that are runs, as the rows of one vector of a panel: a vector full of them, or where not `whole` the first
// `count`, with 0 in place of the others.
template <class T, bool whole>
GRADUS_INLINE void pack_columns(i64 k, i64 count, const T* b, i64 b_col, T* to) {
  constexpr i64 nr = tile_cols<T>, w = Lanes<T>::count;
  Vec<T> v[w];
  i64 p = 0;
  for (; p + w <= k; p += w, to += w * nr) {
#pragma GCC unroll 16
    for (int e = 0; e < w; ++e) v[e] = whole || e < count ? load(b + e * b_col + p) : Vec<T>{};
    transpose<T>(v);
#pragma GCC unroll 16
    for (int e = 0; e < w; ++e) store<T>(to + e * nr, v[e]);
  }
  if (p < k) {
#pragma GCC unroll 16
    for (int e = 0; e < w; ++e) v[e] = whole || e < count ? load_first(b + e * b_col + p, k - p) : Vec<T>{};
    transpose<T>(v);
    for (int e = 0; e < k - p; ++e) store<T>(to + e * nr, v[e]);
  }
}

// A panel of B: k rows of tile_cols neighbours, `cols` of them from B; beyond them are 0 up to the end of the vector,
// and whatever was there. It is stored by whole vectors, so that the product can load them back at once: a load that
// spans several stores waits until they have left the core.
template <class T>
void pack_panel(i64 k, i64 cols, const T* b, i64 b_row, i64 b_col, T* panel) {
  constexpr i64 nr = tile_cols<T>, w = Lanes<T>::count;
  if (b_col == 1) {
    for (i64 p = 0; p < k; ++p, b += b_row, panel += nr) {
      if (cols == nr) {
        __builtin_prefetch(b + 8 * b_row);  // the stride is too long for the processor to see
        for (int v = 0; v < tile_vectors; ++v) store<T>(panel + v * w, load(b + v * w));
      } else {
        for (i64 v = 0; v < nr; v += w) store<T>(panel + v, cols > v ? load_up_to(b + v, cols - v) : Vec<T>{});
      }
    }
    return;
  }
  if (b_row == 1) {
    i64 j = 0;
    for (; j + w <= cols; j += w) {
      // The columns of the next vector, if it is whole.
      if (j + 2 * w <= cols)
        for (int e = 0; e < w; ++e) ask_for<0>(k, b + (j + w + e) * b_col);
      pack_columns<T, true>(k, w, b + j * b_col, b_col, panel + j);
    }
    if (j < cols) pack_columns<T, false>(k, cols - j, b + j * b_col, b_col, panel + j);
    return;
  }
  for (i64 j = 0; j < nr; ++j)
    for (i64 p = 0; p < k; ++p) panel[p * nr + j] = j < cols ? b[p * b_row + j * b_col] : T(0);
}

template <class T>
void pack_all(i64 k, i64 n, const T* b, i64 b_row, i64 b_col, T* panels, i64 panel_step) {
  constexpr i64 nr = tile_cols<T>;
  // Rows of B that are runs are read along, a few at a time, rather than in columns of one panel's width.
  const i64 rows = b_col == 1 ? 8 : k;
  for (i64 p = 0; p < k; p += rows) {
    const i64 count = k - p < rows ? k - p : rows;
    T* panel = panels + p * nr;
    for (i64 j = 0; j < n; j += nr, panel += panel_step)
      pack_panel(count, n - j < nr ? n - j : nr, b + p * b_row + j * b_col, b_row, b_col, panel);
  }
}

// Rows of A as bands of tile_rows: k columns of tile_rows neighbours each, and `band` elements from one to the next, a
// vector more than that takes.
template <class T>
constexpr i64 band_size(i64 k) {
  return k * tile_rows + Lanes<T>::count;
}
template <class T>
void pack_rows(i64 k, i64 rows, const T* a, i64 a_row, i64 a_col, T* out) {
  constexpr i64 w = Lanes<T>::count;
  const i64 band = band_size<T>(k);
  if (a_row == 1) {
    constexpr i64 ahead = 16;
    // Whole columns, which are runs: what a vector writes beyond its band's column is written over by the next one.
    for (i64 p = 0; p < k; ++p, a += a_col, out += tile_rows) {
      T* to = out;
      ask_for<0>(rows, a + ahead * a_col);
      for (i64 i = 0; i < rows; i += tile_rows, to += band)
        for (i64 r = 0; r < tile_rows && i + r < rows; r += w) store<T>(to + r, load_up_to(a + i + r, rows - i - r));
    }
  } else {
    for (i64 i = 0; i < rows; i += tile_rows, out += band) {
      const i64 count = rows - i < tile_rows ? rows - i : tile_rows;
      for (i64 p = 0; p < k; ++p)
        for (i64 r = 0; r < count; ++r) out[p * tile_rows + r] = a[(i + r) * a_row + p * a_col];
    }
  }
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
