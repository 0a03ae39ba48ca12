// Reductions, cut into pieces.
#include "kernels.h"
#include "parallel.h"
#include "scratch.h"

namespace gradus::kernels {
namespace {

constexpr i64 long_run = 65536;  // elements of a piece of one long sum
constexpr i64 columns = 128;     // columns of a piece

const char* at(const void* p, i64 elements, DType dtype) {
  return static_cast<const char*>(p) + elements * size_of(dtype);
}
char* at(void* p, i64 elements, DType dtype) { return static_cast<char*>(p) + elements * size_of(dtype); }

// One long run: the results of its pieces, reduced in order.
void reduce_run(Reduce op, DType dtype, i64 n, const void* x, void* y) {
  const i64 pieces = (n + long_run - 1) / long_run;
  void* partial = scratch(2, static_cast<std::size_t>(pieces * 8));
  const bool in_double = op == Reduce::Sum && is_floating(dtype);
  parallel(pieces, [&](i64 i) {
    const i64 length = n - i * long_run < long_run ? n - i * long_run : long_run;
    const void* from = at(x, i * long_run, dtype);
    if (in_double)
      static_cast<double*>(partial)[i] = table().sum_run(dtype, length, from);
    else
      table().reduce(op, dtype, 1, length, 1, 0, 1, from, at(partial, i, dtype));
  });
  if (!in_double) return table().reduce(op, dtype, 1, pieces, 1, 0, 1, partial, y);
  const double sum = table().sum_run(DType::Float64, pieces, partial);
  if (dtype == DType::Float32)
    *static_cast<float*>(y) = static_cast<float>(sum);
  else
    *static_cast<double*>(y) = sum;
}

}  // namespace

void reduce(Reduce op, DType dtype, i64 outer, i64 n, i64 inner, const void* x, void* y) {
  const Table& t = table();
  if (outer == 0 || inner == 0) return;
  const i64 block = n * inner;
  if (outer * block <= piece) return t.reduce(op, dtype, outer, n, inner, 0, inner, x, y);
  if (block <= piece) {  // some blocks a piece
    const i64 bundle = (piece + block - 1) / (block > 0 ? block : 1);
    return parallel((outer + bundle - 1) / bundle, [&](i64 i) {
      const i64 first = i * bundle;
      const i64 count = outer - first < bundle ? outer - first : bundle;
      t.reduce(op, dtype, count, n, inner, 0, inner, at(x, first * block, dtype), at(y, first * inner, dtype));
    });
  }
  if (inner == 1 && n > long_run) {
    for (i64 o = 0; o < outer; ++o) reduce_run(op, dtype, n, at(x, o * n, dtype), at(y, o, dtype));
    return;
  }
  const i64 tiles = (inner + columns - 1) / columns;
  parallel(outer * tiles, [&](i64 i) {
    const i64 o = i / tiles, i0 = i % tiles * columns;
    const i64 i1 = inner - i0 < columns ? inner : i0 + columns;
    t.reduce(op, dtype, 1, n, inner, i0, i1, at(x, o * block, dtype), at(y, o * inner, dtype));
  });
}

void argmax_rows(DType dtype, i64 rows, i64 n, const void* x, i64* y) {
  if (rows == 0 || n == 0) return;
  const i64 bundle = (piece + n - 1) / n;
  parallel((rows + bundle - 1) / bundle, [&](i64 i) {
    const i64 first = i * bundle;
    table().argmax_rows(dtype, rows - first < bundle ? rows - first : bundle, n, at(x, first * n, dtype), y + first);
  });
}

}  // namespace gradus::kernels
