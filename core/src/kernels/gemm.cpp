// Matrix products, cut into pieces.
#include <algorithm>

#include "kernels.h"
#include "parallel.h"
#include "scratch.h"

namespace gradus::kernels {
namespace {

const void* at(const void* p, i64 elements, DType dtype) {
  return static_cast<const char*>(p) + elements * size_of(dtype);
}
void* at(void* p, i64 elements, DType dtype) { return static_cast<char*>(p) + elements * size_of(dtype); }

constexpr i64 small = 1 << 18;  // multiplications that are worth a piece

// One large product: the threads pack a block of B together, and then multiply bundles of rows with it.
void large(const Table& t, DType dtype, const Gemm& g) {
  const GemmBlocks blocks = t.gemm_blocks(dtype);
  const i64 panel = blocks.tile_cols;
  const i64 width = std::min(blocks.cols, (g.n + panel - 1) / panel * panel);
  const i64 depth = std::min(blocks.k, g.k);
  char* packed = static_cast<char*>(scratch(3, static_cast<std::size_t>(width * depth * size_of(dtype))));
  for (i64 j0 = 0; j0 < g.n; j0 += width) {
    const i64 j1 = std::min(g.n, j0 + width);
    for (i64 p0 = 0; p0 < g.k; p0 += depth) {
      const i64 k = std::min(depth, g.k - p0);
      const i64 columns = (piece / k + panel) / panel * panel;  // of a piece of packing
      parallel((j1 - j0 + columns - 1) / columns, [&](i64 i) {
        const i64 from = j0 + i * columns;
        t.gemm_pack(dtype, g, p0, k, from, std::min(j1, from + columns), packed + i * columns * k * size_of(dtype));
      });
      // As many rows as let a panel of B, once it is in the first cache, meet several tiles of A; but enough pieces
      // to keep all threads busy to the end.
      constexpr i64 pieces = 32, most_tiles = 8;
      const i64 tiles = (g.m + pieces * blocks.tile_rows - 1) / (pieces * blocks.tile_rows);
      const i64 rows = std::min(most_tiles, tiles) * blocks.tile_rows;
      parallel((g.m + rows - 1) / rows, [&](i64 i) {
        t.gemm_multiply(dtype, g, p0, k, j0, j1, packed, i * rows, std::min(g.m, (i + 1) * rows));
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
  if (work > 2 * small && batch < 8 && first.m > 4 && first.n > 1) {
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
