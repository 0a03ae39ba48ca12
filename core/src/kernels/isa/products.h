#pragma once
// The product of a matrix with panels: what gemm.cpp is made of, for kernels that pack their own operands.
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {

// The tile of C that is kept in registers: rows × (2 vectors). All of it, two vectors of B and one of A must fit the
// registers: 16, or 32 of AVX-512.
#if defined(__AVX512F__)
inline constexpr int tile_rows = 14;
#elif defined(__AVX2__)
inline constexpr int tile_rows = 6;
#else
inline constexpr int tile_rows = 4;
#endif
inline constexpr int tile_vectors = 2;
template <class T>
inline constexpr i64 tile_cols = tile_vectors* Lanes<T>::count;

// C = A·B (+ C where add) + bias: A is m×k with any strides, C m×n with neighbouring columns. B lies in panels of
// tile_cols columns: panel p begins at b + p·b_panel, and its rows are b_row apart.
template <class T>
struct PanelProduct {
  i64 m, n, k;
  const T* a;
  i64 a_row, a_col;
  const T* b;
  i64 b_row, b_panel;
  T* c;
  i64 c_row;
  bool add = false;
  const T* bias = nullptr;  // n numbers, or null
};

// In blocks of k, so that a panel stays in the first cache: an element of C is the sum of its blocks in ascending
// order.
void multiply(const PanelProduct<float>& product);
void multiply(const PanelProduct<double>& product);

// B (k×n, any strides) as panels with rows tile_cols apart, panel p from `panels` + p·panel_step on. Columns beyond the
// last are filled with what may be computed with, and does not count.
void pack_panels(i64 k, i64 n, const float* b, i64 b_row, i64 b_col, float* panels, i64 panel_step);
void pack_panels(i64 k, i64 n, const double* b, i64 b_row, i64 b_col, double* panels, i64 panel_step);

}  // namespace gradus::kernels::GRADUS_ISA_NS
