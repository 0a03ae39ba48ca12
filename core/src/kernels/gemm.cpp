// Matrix products, cut into pieces.
#include <algorithm>

#include "kernels.h"
#include "parallel.h"

namespace gradus::kernels {
namespace {

const void* at(const void* p, i64 elements, DType dtype) {
  return static_cast<const char*>(p) + elements * size_of(dtype);
}
void* at(void* p, i64 elements, DType dtype) { return static_cast<char*>(p) + elements * size_of(dtype); }

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
  constexpr i64 small = 1 << 18;  // multiplications of a piece
  const i64 work = std::max<i64>(1, first.m * first.n * first.k);
  if (work <= 2 * small) {
    const i64 bundle = (small + work - 1) / work;
    return parallel((batch + bundle - 1) / bundle, [&](i64 part) {
      for (i64 i = part * bundle; i < std::min(batch, (part + 1) * bundle); ++i) t.gemm(dtype, product(i));
    });
  }
  const i64 rows = std::max<i64>(48, (small / std::max<i64>(1, first.n * first.k) + 47) / 48 * 48);
  const i64 cuts = (first.m + rows - 1) / rows;
  parallel(batch * cuts, [&](i64 part) {
    Gemm g = product(part / cuts);
    const i64 r = part % cuts * rows;
    g.m = std::min(rows, first.m - r);
    g.a = at(g.a, r * g.a_row, dtype);
    g.c = at(g.c, r * g.c_row, dtype);
    t.gemm(dtype, g);
  });
}

}  // namespace gradus::kernels
