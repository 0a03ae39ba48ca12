// The matrix product C = A·B of Float32 and Float64, on operands with any strides.
//
// The method is that of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): a tile of C
// as large as the registers hold is kept there while k runs; B is copied ("packed") into panels as wide as the tile, in
// the order in which they are read, and A likewise where its rows are not neighbours. Since every operand is packed or
// read by its strides, transposed and sliced views cost nothing extra.
//
// An element of C is the sum over k in ascending order, in blocks of `block_k`, whatever tile it falls into: the result
// does not depend on how the rows were cut.
#include "../scratch.h"
#include "families.h"
#include "packing.h"
#include "products.h"
#include "tile.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

constexpr i64 block_k = 256;               // a panel of B, block_k × tile_cols, fits the first cache
constexpr i64 block_rows = 8 * tile_rows;  // a block of A, block_rows × block_k, fits the second
template <class T>
constexpr i64 block_cols = 32 * tile_cols<T>;  // a block of C, block_rows × block_cols, fits the second too
template <class T>
constexpr i64 near_rows = 256 / sizeof(T);  // rows of B so few elements apart are read in place as fast as packed

template <class T>
struct TileJob {
  i64 k;
  const T* a;
  i64 a_row, a_col;
  const T* b;
  i64 b_row;
  T* c;
  i64 c_row;
  i64 cols;  // that are stored
  bool add;  // onto what C holds
  const T* bias;
};

// rows × vectors of C in registers while k runs.
template <class T, int rows, int vectors>
void tile(const TileJob<T>& job) {
  constexpr i64 w = Lanes<T>::count;
  Vec<T> acc[rows][vectors] = {};
  multiply_onto<T, rows, vectors>(job.k, job.a, job.a_row, job.a_col, job.b, job.b_row, acc);
  T* c = job.c;
  if (job.cols >= vectors * w) {
    if (job.bias) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        const Vec<T> bias = load(job.bias + v * w);
#pragma GCC unroll 14
        for (int r = 0; r < rows; ++r) acc[r][v] += bias;
      }
    }
    const bool add = job.add;
#pragma GCC unroll 14
    for (int r = 0; r < rows; ++r, c += job.c_row) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) store<T>(c + v * w, add ? acc[r][v] + load(c + v * w) : acc[r][v]);
    }
    return;
  }
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) {
    const i64 left = job.cols - v * w;
    if (left <= 0) break;
    const Vec<T> bias = job.bias ? load_up_to(job.bias + v * w, left) : Vec<T>{};
    c = job.c + v * w;
#pragma GCC unroll 14
    for (int r = 0; r < rows; ++r, c += job.c_row) {
      Vec<T> sum = acc[r][v] + bias;
      if (job.add) sum += load_up_to(c, left);
      store_up_to<T>(c, sum, left);
    }
  }
}

template <class T>
using Tile = void (*)(const TileJob<T>&);

// By vectors - 1 and rows - 1.
template <class T>
constexpr Tile<T> tiles[tile_vectors][tile_rows] = {
#if defined(__AVX512F__)
    {tile<T, 1, 1>, tile<T, 2, 1>, tile<T, 3, 1>, tile<T, 4, 1>, tile<T, 5, 1>, tile<T, 6, 1>, tile<T, 7, 1>,
     tile<T, 8, 1>, tile<T, 9, 1>, tile<T, 10, 1>, tile<T, 11, 1>, tile<T, 12, 1>, tile<T, 13, 1>, tile<T, 14, 1>},
    {tile<T, 1, 2>, tile<T, 2, 2>, tile<T, 3, 2>, tile<T, 4, 2>, tile<T, 5, 2>, tile<T, 6, 2>, tile<T, 7, 2>,
     tile<T, 8, 2>, tile<T, 9, 2>, tile<T, 10, 2>, tile<T, 11, 2>, tile<T, 12, 2>, tile<T, 13, 2>, tile<T, 14, 2>},
#elif defined(__AVX2__)
    {tile<T, 1, 1>, tile<T, 2, 1>, tile<T, 3, 1>, tile<T, 4, 1>, tile<T, 5, 1>, tile<T, 6, 1>},
    {tile<T, 1, 2>, tile<T, 2, 2>, tile<T, 3, 2>, tile<T, 4, 2>, tile<T, 5, 2>, tile<T, 6, 2>},
#else
    {tile<T, 1, 1>, tile<T, 2, 1>, tile<T, 3, 1>, tile<T, 4, 1>},
    {tile<T, 1, 2>, tile<T, 2, 2>, tile<T, 3, 2>, tile<T, 4, 2>},
#endif
};

// ---- blocks

// Columns [j0, j1) and rows [p0, p0 + k) of B, panel by panel.
template <class T>
void pack_block(const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, T* packed) {
  pack_panels(k, j1 - j0, static_cast<const T*>(g.b) + p0 * g.b_row + j0 * g.b_col, g.b_row, g.b_col, packed,
              tile_cols<T> * k);
}

// A product whose k is one block. Within a block of rows each panel meets all rows while it is in the first cache.
template <class T>
void multiply_block(const PanelProduct<T>& g) {
  constexpr i64 nr = tile_cols<T>, w = Lanes<T>::count;
  // Where the rows of A are not neighbours' runs, reading them once for each panel of B would cost more than packing.
  const bool pack = g.a_col != 1 && g.n > 4 * nr;
  T* rows = nullptr;
  if (pack) {
    constexpr i64 bands = block_rows / tile_rows;
    rows = static_cast<T*>(scratch(1, static_cast<std::size_t>(bands * band_size<T>(g.k)) * sizeof(T)));
  }
  TileJob<T> job{.k = g.k,
                 .a = nullptr,
                 .a_row = pack ? 1 : g.a_row,
                 .a_col = pack ? tile_rows : g.a_col,
                 .b = nullptr,
                 .b_row = g.b_row,
                 .c = nullptr,
                 .c_row = g.c_row,
                 .cols = 0,
                 .add = g.add,
                 .bias = nullptr};
  const i64 a_band = pack ? band_size<T>(g.k) : tile_rows * g.a_row, c_band = tile_rows * g.c_row;
  for (i64 t0 = 0; t0 < g.m; t0 += block_rows) {
    const i64 t1 = g.m - t0 < block_rows ? g.m : t0 + block_rows;
    if (pack) pack_rows(g.k, t1 - t0, g.a + t0 * g.a_row, g.a_row, g.a_col, rows);
    job.b = g.b;
    for (i64 j = 0; j < g.n; j += nr, job.b += g.b_panel) {
      job.cols = g.n - j < nr ? g.n - j : nr;
      job.bias = g.bias ? g.bias + j : nullptr;
      const Tile<T>* run = tiles<T>[job.cols > w];
      const T* a = pack ? rows : g.a + t0 * g.a_row;
      T* c = g.c + t0 * g.c_row + j;
      for (i64 left = t1 - t0; left > 0; left -= tile_rows, a += a_band, c += c_band) {
        job.a = a;
        job.c = c;
        run[(left < tile_rows ? left : tile_rows) - 1](job);
      }
    }
  }
}

template <class T>
void multiply_blocks(const PanelProduct<T>& product) {
  if (product.k <= block_k) return multiply_block(product);
  PanelProduct<T> block = product;
  for (i64 p0 = 0; p0 < product.k; p0 += block_k) {
    block.k = product.k - p0 < block_k ? product.k - p0 : block_k;
    block.a = product.a + p0 * product.a_col;
    block.b = product.b + p0 * product.b_row;
    if (p0 > 0) {
      block.add = true;
      block.bias = nullptr;
    }
    multiply_block(block);
  }
}

// Rows [i0, i1) of C, its columns [j0, j1): the share of [p0, p0 + k) in the sums. `packed` holds that block of B;
// where it is null, B is read in place.
template <class T>
void share(const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, const T* packed, i64 i0, i64 i1) {
  constexpr i64 nr = tile_cols<T>;
  multiply_block<T>({.m = i1 - i0,
                     .n = j1 - j0,
                     .k = k,
                     .a = static_cast<const T*>(g.a) + p0 * g.a_col + i0 * g.a_row,
                     .a_row = g.a_row,
                     .a_col = g.a_col,
                     .b = packed ? packed : static_cast<const T*>(g.b) + p0 * g.b_row + j0,
                     .b_row = packed ? nr : g.b_row,
                     .b_panel = packed ? nr * k : nr,
                     .c = static_cast<T*>(g.c) + i0 * g.c_row + j0,
                     .c_row = g.c_row,
                     .add = g.accumulate || p0 > 0,
                     .bias = p0 == 0 && g.bias ? static_cast<const T*>(g.bias) + j0 : nullptr});
}

// ---- products with few rows or one column

// Up to 4 rows of C where the rows of A and the columns of B are runs of neighbours: scalar products, four columns of
// B at a time, each read once and in place.
template <class T, int rows>
void dot_rows(const Gemm& g) {
  constexpr i64 w = Lanes<T>::count;
  const T* a = static_cast<const T*>(g.a);
  const T* bias = static_cast<const T*>(g.bias);
  T* c = static_cast<T*>(g.c);
  for (i64 j = 0; j < g.n; j += 4) {
    // The last columns are repeated rather than left out, so that all are computed alike.
    const T* b[4];
    for (int q = 0; q < 4; ++q) b[q] = static_cast<const T*>(g.b) + (j + q < g.n ? j + q : g.n - 1) * g.b_col;
    Vec<T> acc[rows][4] = {};
    for (i64 p = 0; p < g.k; p += w) {
      Vec<T> bv[4];
      for (int q = 0; q < 4; ++q) bv[q] = load_up_to(b[q] + p, g.k - p);
      for (int r = 0; r < rows; ++r) {
        const Vec<T> av = load_up_to(a + r * g.a_row + p, g.k - p);
        for (int q = 0; q < 4; ++q) acc[r][q] += av * bv[q];
      }
    }
    for (int r = 0; r < rows; ++r)
      for (int q = 0; q < 4 && j + q < g.n; ++q) {
        T sum = 0;
        for (int l = 0; l < w; ++l) sum += acc[r][q][l];
        if (bias) sum += bias[j + q];
        T& to = c[r * g.c_row + j + q];
        to = g.accumulate ? to + sum : sum;
      }
  }
}

template <class T>
void gemm_of(const Gemm& g);

// One column, as the row Cᵀ = Bᵀ·Aᵀ.
template <class T>
void one_column(const Gemm& g) {
  T* row = static_cast<T*>(scratch(2, static_cast<std::size_t>(g.m) * sizeof(T)));
  gemm_of<T>({.m = 1,
              .n = g.m,
              .k = g.k,
              .a = g.b,
              .a_row = g.b_col,
              .a_col = g.b_row,
              .b = g.a,
              .b_row = g.a_col,
              .b_col = g.a_row,
              .c = row,
              .c_row = g.m,
              .accumulate = false,
              .bias = nullptr});
  T* c = static_cast<T*>(g.c);
  const T bias = g.bias ? *static_cast<const T*>(g.bias) : T(0);
  for (i64 i = 0; i < g.m; ++i) c[i * g.c_row] = (g.accumulate ? c[i * g.c_row] : T(0)) + (row[i] + bias);
}

template <class T>
void gemm_of(const Gemm& g) {
  constexpr i64 nr = tile_cols<T>;
  if (g.n == 1 && g.m > 1) return one_column<T>(g);
  if (g.m <= 4 && g.a_col == 1 && g.b_row == 1 && g.k >= 2 * Lanes<T>::count) {
    switch (g.m) {
      case 1:
        return dot_rows<T, 1>(g);
      case 2:
        return dot_rows<T, 2>(g);
      case 3:
        return dot_rows<T, 3>(g);
      default:
        return dot_rows<T, 4>(g);
    }
  }
  const i64 depth = g.k < block_k ? g.k : block_k;
  const i64 width = g.n < block_cols<T> ? (g.n + nr - 1) / nr * nr : block_cols<T>;
  // B is read in place but for a partial panel where it has to meet few rows only, or its own follow one another
  // closely.
  const bool in_place = g.b_col == 1 && (g.m <= 2 * tile_rows || g.b_row <= near_rows<T>);
  const i64 panels_end = in_place ? g.n / nr * nr : 0;
  T* packed = nullptr;
  if (panels_end < g.n)
    packed = static_cast<T*>(scratch(0, static_cast<std::size_t>((in_place ? nr : width) * depth) * sizeof(T)));
  i64 p0 = 0;
  do {  // also for k = 0, which gives zeros
    const i64 k = g.k - p0 < block_k ? g.k - p0 : block_k;
    if (panels_end > 0) share<T>(g, p0, k, 0, panels_end, nullptr, 0, g.m);
    for (i64 j0 = panels_end; j0 < g.n; j0 += block_cols<T>) {
      const i64 j1 = g.n - j0 < block_cols<T> ? g.n : j0 + block_cols<T>;
      pack_block(g, p0, k, j0, j1, packed);
      share<T>(g, p0, k, j0, j1, packed, 0, g.m);
    }
    p0 += k;
  } while (p0 < g.k);
}

}  // namespace

void multiply(const PanelProduct<float>& product) { multiply_blocks(product); }
void multiply(const PanelProduct<double>& product) { multiply_blocks(product); }

void pack_panels(i64 k, i64 n, const float* b, i64 b_row, i64 b_col, float* panels, i64 panel_step) {
  pack_all(k, n, b, b_row, b_col, panels, panel_step);
}
void pack_panels(i64 k, i64 n, const double* b, i64 b_row, i64 b_col, double* panels, i64 panel_step) {
  pack_all(k, n, b, b_row, b_col, panels, panel_step);
}

void gemm(DType dtype, const Gemm& g) { GRADUS_FLOATS(gemm_of, dtype, g); }

GemmBlocks gemm_blocks(DType dtype) {
  if (dtype == DType::Float32) return {tile_rows, tile_cols<float>, block_k, block_cols<float>, near_rows<float>};
  return {tile_rows, tile_cols<double>, block_k, block_cols<double>, near_rows<double>};
}

void gemm_pack(DType dtype, const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, void* packed) {
  if (dtype == DType::Float32) return pack_block(g, p0, k, j0, j1, static_cast<float*>(packed));
  pack_block(g, p0, k, j0, j1, static_cast<double*>(packed));
}

void gemm_multiply(DType dtype, const Gemm& g, i64 p0, i64 k, i64 j0, i64 j1, const void* packed, i64 i0, i64 i1) {
  if (dtype == DType::Float32) return share(g, p0, k, j0, j1, static_cast<const float*>(packed), i0, i1);
  share(g, p0, k, j0, j1, static_cast<const double*>(packed), i0, i1);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
