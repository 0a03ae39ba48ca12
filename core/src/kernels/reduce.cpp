// Reductions and running sums, cut into pieces.
#include <algorithm>
#include <cmath>
#include <vector>

#include "column_sums.h"
#include "kernels.h"
#include "parallel.h"
#include "scratch.h"

namespace gradus::kernels {
namespace {

constexpr i64 long_run = 65536;  // elements of a piece of one long sum
constexpr i64 columns = 512;     // columns of a piece

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

// The same for moments: those of the pieces are put together in order (Chan, Golub, LeVeque 1979).
Moments moments_of_run(DType dtype, i64 n, const void* x) {
  std::vector<Moments> parts(static_cast<std::size_t>((n + long_run - 1) / long_run));
  const auto length = [n](i64 i) { return n - i * long_run < long_run ? n - i * long_run : long_run; };
  parallel(static_cast<i64>(parts.size()), [&](i64 i) {
    parts[static_cast<std::size_t>(i)] = table().moments_run(dtype, length(i), at(x, i * long_run, dtype));
  });
  Moments all = parts[0];
  for (i64 i = 1; i < static_cast<i64>(parts.size()); ++i) {
    const Moments& next = parts[static_cast<std::size_t>(i)];
    const double before = static_cast<double>(i * long_run), more = static_cast<double>(length(i));
    const double step = next.mean - all.mean, share = more / (before + more);
    all.mean += step * share;
    all.squares += next.squares + step * step * before * share;
  }
  return all;
}

// One [n, inner] block of many rows: the results of bundles of them, reduced in order.
void reduce_rows(Reduce op, DType dtype, i64 n, i64 inner, const void* x, void* y) {
  if (op == Reduce::Sum && is_floating(dtype)) {
    const double* sums = column_sums(n, inner, inner, [&](i64 r, i64 rows, double* to) {
      table().add_rows(dtype, rows, inner, at(x, r * inner, dtype), to);
    });
    return store_sums(dtype, inner, sums, y);
  }
  const i64 rows = rows_of_bundle(inner), bundles = (n + rows - 1) / rows;
  void* partial = scratch(2, static_cast<std::size_t>(bundles * inner * 8));
  parallel(bundles, [&](i64 i) {
    table().reduce(op, dtype, 1, std::min(rows, n - i * rows), inner, 0, inner, at(x, i * rows * inner, dtype),
                   at(partial, i * inner, dtype));
  });
  table().reduce(op, dtype, 1, bundles, inner, 0, inner, partial, y);
}

// Cuts a job on [outer, n, inner] into pieces of about equal work: part(first, count, i0, i1) does columns [i0, i1) of
// `count` blocks, and run(o) one long run of neighbours.
template <class Part, class Run>
void in_pieces(i64 outer, i64 n, i64 inner, Part part, Run run) {
  if (outer == 0 || inner == 0) return;
  const i64 block = n * inner;
  if (outer * block <= piece) return part(i64{0}, outer, i64{0}, inner);
  if (block <= piece) {  // some blocks a piece
    const i64 bundle = (piece + block - 1) / (block > 0 ? block : 1);
    return parallel((outer + bundle - 1) / bundle, [&](i64 i) {
      const i64 first = i * bundle;
      part(first, outer - first < bundle ? outer - first : bundle, i64{0}, inner);
    });
  }
  if (inner == 1 && n > long_run) {
    for (i64 o = 0; o < outer; ++o) run(o);
    return;
  }
  const i64 tiles = (inner + columns - 1) / columns;
  parallel(outer * tiles, [&](i64 i) {
    const i64 i0 = i % tiles * columns;
    part(i / tiles, i64{1}, i0, inner - i0 < columns ? inner : i0 + columns);
  });
}

template <class T, class Acc>
void cumsum_of(i64 count, i64 n, i64 inner, i64 i0, i64 i1, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  for (i64 o = 0; o < count; ++o, x += n * inner, y += n * inner) {
    if (inner == 1) {
      Acc sum = 0;
      for (i64 r = 0; r < n; ++r) y[r] = static_cast<T>(sum += static_cast<Acc>(x[r]));
      continue;
    }
    for (i64 t = i0; t < i1; t += columns) {
      const i64 width = i1 - t < columns ? i1 - t : columns;
      Acc sum[columns] = {};
      for (i64 r = 0; r < n; ++r)
        for (i64 j = 0; j < width; ++j) {
          sum[j] += static_cast<Acc>(x[r * inner + t + j]);
          y[r * inner + t + j] = static_cast<T>(sum[j]);
        }
    }
  }
}

}  // namespace

void reduce(Reduce op, DType dtype, i64 outer, i64 n, i64 inner, const void* x, void* y) {
  if (inner > 1 && many_rows(n, inner)) {
    for (i64 o = 0; o < outer; ++o)
      reduce_rows(op, dtype, n, inner, at(x, o * n * inner, dtype), at(y, o * inner, dtype));
    return;
  }
  in_pieces(
      outer, n, inner,
      [&](i64 o, i64 count, i64 i0, i64 i1) {
        table().reduce(op, dtype, count, n, inner, i0, i1, at(x, o * n * inner, dtype), at(y, o * inner, dtype));
      },
      [&](i64 o) { reduce_run(op, dtype, n, at(x, o * n, dtype), at(y, o, dtype)); });
}

void variance(DType dtype, i64 outer, i64 n, i64 inner, double divisor, bool root, const void* x, void* y) {
  in_pieces(
      outer, n, inner,
      [&](i64 o, i64 count, i64 i0, i64 i1) {
        table().variance(dtype, count, n, inner, i0, i1, divisor, root, at(x, o * n * inner, dtype),
                         at(y, o * inner, dtype));
      },
      [&](i64 o) {
        double value = moments_of_run(dtype, n, at(x, o * n, dtype)).squares / divisor;
        if (root) value = std::sqrt(value);
        if (dtype == DType::Float32)
          static_cast<float*>(y)[o] = static_cast<float>(value);
        else
          static_cast<double*>(y)[o] = value;
      });
}

void cumsum(DType dtype, i64 outer, i64 n, i64 inner, const void* x, void* y) {
  const auto part = [&](i64 o, i64 count, i64 i0, i64 i1) {
    const void* from = at(x, o * n * inner, dtype);
    void* to = at(y, o * n * inner, dtype);
    if (dtype == DType::Float32) cumsum_of<float, double>(count, n, inner, i0, i1, from, to);
    if (dtype == DType::Float64) cumsum_of<double, double>(count, n, inner, i0, i1, from, to);
    if (dtype == DType::Int64) cumsum_of<i64, std::uint64_t>(count, n, inner, i0, i1, from, to);  // wraps around
  };
  in_pieces(outer, n, inner, part, [&](i64 o) { part(o, 1, 0, 1); });
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
