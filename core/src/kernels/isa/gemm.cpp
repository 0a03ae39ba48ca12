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
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// The tile: rows × (2 vectors). All of it, two vectors of B and one of A must fit the registers: 16, or 32 of AVX-512.
#if defined(__AVX512F__)
constexpr int tile_rows = 14;
#elif defined(__AVX2__)
constexpr int tile_rows = 6;
#else
constexpr int tile_rows = 4;
#endif
constexpr int tile_vectors = 2;
template <class T>
constexpr i64 tile_cols = tile_vectors* Lanes<T>::count;

constexpr i64 block_k = 256;               // a panel of B, block_k × tile_cols, fits the first cache
constexpr i64 block_rows = 8 * tile_rows;  // a block of A, block_rows × block_k, fits the second
template <class T>
constexpr i64 block_cols = 64 * tile_cols<T>;  // a block of B, block_k × block_cols, fits the third

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
  const T* b = job.b;
  const T* a = job.a;
  const i64 a_row = job.a_row, a_col = job.a_col, b_row = job.b_row;
  for (i64 p = job.k; p > 0; --p) {
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
#pragma GCC unroll 14
  for (int r = 0; r < rows; ++r) {
    T* c = job.c + r * job.c_row;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      const i64 left = job.cols - v * w;
      if (left <= 0) break;
      Vec<T> sum = acc[r][v];
      if (job.bias) sum += load_up_to(job.bias + v * w, left);
      if (job.add) sum += load_up_to(c + v * w, left);
      store_up_to<T>(c + v * w, sum, left);
    }
  }
}

template <class T>
using TileFunction = void (*)(const TileJob<T>&);
template <class T, int rows>
constexpr TileFunction<T> tile_for(bool narrow) {
  return narrow ? tile<T, rows, 1> : tile<T, rows, tile_vectors>;
}
template <class T>
TileFunction<T> tile_of(i64 rows, bool narrow) {
  switch (rows) {
    case 1:
      return tile_for<T, 1>(narrow);
    case 2:
      return tile_for<T, 2>(narrow);
    case 3:
      return tile_for<T, 3>(narrow);
    case 4:
      return tile_for<T, 4>(narrow);
#if defined(__AVX2__)
    case 5:
      return tile_for<T, 5>(narrow);
    case 6:
      return tile_for<T, 6>(narrow);
#endif
#if defined(__AVX512F__)
    case 7:
      return tile_for<T, 7>(narrow);
    case 8:
      return tile_for<T, 8>(narrow);
    case 9:
      return tile_for<T, 9>(narrow);
    case 10:
      return tile_for<T, 10>(narrow);
    case 11:
      return tile_for<T, 11>(narrow);
    case 12:
      return tile_for<T, 12>(narrow);
    case 13:
      return tile_for<T, 13>(narrow);
    case 14:
      return tile_for<T, 14>(narrow);
#endif
    default:
      return nullptr;
  }
}

// Panel of B: k rows of tile_cols neighbours, `cols` of them from B and the rest 0.
template <class T>
void pack_panel(i64 k, i64 cols, const T* b, i64 b_row, i64 b_col, T* panel) {
  constexpr i64 nr = tile_cols<T>;
  for (i64 p = 0; p < k; ++p, b += b_row, panel += nr) {
    if (b_col == 1 && cols == nr) {
      for (int v = 0; v < tile_vectors; ++v) store<T>(panel + v * Lanes<T>::count, load(b + v * Lanes<T>::count));
    } else {
      for (i64 j = 0; j < cols; ++j) panel[j] = b[j * b_col];
      for (i64 j = cols; j < nr; ++j) panel[j] = 0;
    }
  }
}

template <class T>
void gemm_of(const Gemm& g) {
  constexpr i64 nr = tile_cols<T>;
  const T* a = static_cast<const T*>(g.a);
  const T* b = static_cast<const T*>(g.b);
  T* c = static_cast<T*>(g.c);
  const T* bias = static_cast<const T*>(g.bias);
  const i64 widest = g.n < block_cols<T> ? (g.n + nr - 1) / nr * nr : block_cols<T>;
  const i64 deepest = g.k < block_k ? g.k : block_k;
  T* packed = static_cast<T*>(scratch(0, static_cast<std::size_t>(widest * deepest + nr) * sizeof(T)));
  T* rows = static_cast<T*>(scratch(1, static_cast<std::size_t>(block_rows * deepest + tile_rows) * sizeof(T)));
  for (i64 j0 = 0; j0 < g.n; j0 += block_cols<T>) {
    const i64 j1 = g.n - j0 < block_cols<T> ? g.n : j0 + block_cols<T>;
    i64 p0 = 0;
    do {
      const i64 k = g.k - p0 < block_k ? g.k - p0 : block_k;
      for (i64 j = j0; j < j1; j += nr)
        pack_panel(k, j1 - j < nr ? j1 - j : nr, b + p0 * g.b_row + j * g.b_col, g.b_row, g.b_col,
                   packed + (j - j0) * k);
      for (i64 i0 = 0; i0 < g.m; i0 += block_rows) {
        const i64 i1 = g.m - i0 < block_rows ? g.m : i0 + block_rows;
        const T* ar = a + i0 * g.a_row + p0 * g.a_col;
        i64 a_row = g.a_row, a_col = g.a_col;
        if (a_col != 1) {
          for (i64 i = 0; i < i1 - i0; i += tile_rows)
            for (i64 p = 0; p < k; ++p)
              for (i64 r = 0; r < tile_rows && i + r < i1 - i0; ++r)
                rows[i * k + p * tile_rows + r] = ar[(i + r) * a_row + p * a_col];
        }
        for (i64 j = j0; j < j1; j += nr) {
          for (i64 i = i0; i < i1; i += tile_rows) {
            const bool packed_a = g.a_col != 1;
            TileJob<T> job{k,
                           packed_a ? rows + (i - i0) * k : ar + (i - i0) * a_row,
                           packed_a ? 1 : a_row,
                           packed_a ? tile_rows : a_col,
                           packed + (j - j0) * k,
                           nr,
                           c + i * g.c_row + j,
                           g.c_row,
                           j1 - j < nr ? j1 - j : nr,
                           g.accumulate || p0 > 0,
                           bias && p0 == 0 ? bias + j : nullptr};
            tile_of<T>(i1 - i < tile_rows ? i1 - i : tile_rows, job.cols <= Lanes<T>::count)(job);
          }
        }
      }
      p0 += k;
    } while (p0 < g.k);
  }
}

}  // namespace

void gemm(DType dtype, const Gemm& g) { GRADUS_FLOATS(gemm_of, dtype, g); }

}  // namespace gradus::kernels::GRADUS_ISA_NS
