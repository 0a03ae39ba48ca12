// Matrix products, cut into pieces.
#include <algorithm>

#include "kernels.h"
#include "parallel.h"
#include "scratch.h"
#include "typed.h"

namespace gradus::kernels {
namespace {

constexpr i64 small = 1 << 17;  // multiplications that are worth sharing among threads

// One large product: the threads pack B together, as many whole columns as fit a bound (or a part of them, where k is
// very long), and then multiply bundles of rows with it. A bundle goes through all that is packed of k before it leaves
// a block of columns of C, which so stays near.
void large(const Table& t, DType dtype, const Gemm& g) {
  const GemmBlocks blocks = t.gemm_blocks(dtype);
  const i64 panel = blocks.tile_cols;
  constexpr i64 most_packed = i64{1} << 20;  // elements
  const i64 all = (g.n + panel - 1) / panel * panel;
  const i64 width = std::min(all, std::max<i64>(1, most_packed / g.k / blocks.cols) * blocks.cols);
  const i64 depth = std::min(g.k, std::max<i64>(1, most_packed / width / blocks.k) * blocks.k);
  // Read in place are only whole panels: beyond the last column lies what is not ours.
  const bool in_place = g.b_col == 1 && g.n % panel == 0 && g.b_row <= blocks.near_rows;
  char* packed =
      in_place ? nullptr : static_cast<char*>(scratch(3, static_cast<std::size_t>(width * depth * size_of(dtype))));
  // As many rows as let a panel of B, once it is in the first cache, meet several tiles of A; but enough pieces to keep
  // a few threads busy to the end. (More would leave small products little between one piece and the next.)
  constexpr i64 most_tiles = 8, pieces = 16;
  const i64 tiles = (g.m + pieces * blocks.tile_rows - 1) / (pieces * blocks.tile_rows);
  const i64 rows = std::min(most_tiles, tiles) * blocks.tile_rows;
  for (i64 j0 = 0; j0 < g.n; j0 += width) {
    const i64 j1 = std::min(g.n, j0 + width), columns = (j1 - j0 + panel - 1) / panel * panel;
    for (i64 d0 = 0; d0 < g.k; d0 += depth) {
      const i64 d1 = std::min(g.k, d0 + depth), deep = (d1 - d0 + blocks.k - 1) / blocks.k;
      // The block of k from p0 on begins at (p0 - d0)·columns; its panels follow one another.
      const i64 step = std::max<i64>(1, piece / (std::min(g.k, blocks.k) * panel)) * panel;  // columns of a piece
      const i64 steps = (columns + step - 1) / step;
      if (!in_place) {
        parallel(deep * steps, [&](i64 i) {
          const i64 p0 = d0 + i / steps * blocks.k, k = std::min(blocks.k, d1 - p0), from = i % steps * step;
          t.gemm_pack(dtype, g, p0, k, j0 + from, std::min(j1, j0 + from + step),
                      packed + ((p0 - d0) * columns + from * k) * size_of(dtype));
        });
      }
      parallel((g.m + rows - 1) / rows, [&](i64 i) {
        for (i64 j = j0; j < j1; j += blocks.cols) {
          for (i64 p0 = d0; p0 < d1; p0 += blocks.k) {
            const i64 k = std::min(blocks.k, d1 - p0);
            const void* block = in_place ? nullptr : packed + ((p0 - d0) * columns + (j - j0) * k) * size_of(dtype);
            t.gemm_multiply(dtype, g, p0, k, j, std::min(j1, j + blocks.cols), block, i * rows,
                            std::min(g.m, (i + 1) * rows));
          }
        }
      });
    }
  }
}

}  // namespace

void gemm(DType dtype, i64 batch, const Gemm& first, const i64* a_offsets, const i64* b_offsets, i64 c_step) {
  if (batch == 0 || first.m == 0 || first.n == 0) return;
  const Table& t = table();
  const auto product = [&](i64 i) {
    Gemm g = first;
    g.a = at(first.a, a_offsets[i], dtype);
    g.b = at(first.b, b_offsets[i], dtype);
    g.c = at(first.c, i * c_step, dtype);
    return g;
  };
  const i64 work = std::max<i64>(1, first.m * first.n * first.k);
  // A few large products are cut one by one; of many, or of small ones, each is done by one thread.
  if (work > small && batch < 8 && first.m > 4 && first.n > 1) {
    for (i64 i = 0; i < batch; ++i) large(t, dtype, product(i));
    return;
  }
  const i64 bundle = (small + work - 1) / work;
  parallel((batch + bundle - 1) / bundle, [&](i64 part) {
    const i64 end = std::min(batch, (part + 1) * bundle);
    for (i64 i = part * bundle; i < end; ++i) t.gemm(dtype, product(i));
  });
}

}  // namespace gradus::kernels
