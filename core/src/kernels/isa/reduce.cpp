// Sums and extremes along one dimension of a contiguous [outer, n, inner] block. Sums of floats are taken in double, so
// that they are right to the last place of a float whatever their length.
#include "columns.h"
#include "families.h"
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// ---- one run of neighbours

template <class T>
double sum_of(i64 n, const T* x) {
  constexpr i64 w = Lanes<T>::count, ahead = 2048 / sizeof(T);
  Sum a, b, c, d;  // four chains hide the latency of an addition
  i64 i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    __builtin_prefetch(x + i + ahead);  // far memory, sooner than the processor itself does
    __builtin_prefetch(x + i + ahead + 2 * w);
    a.add(load(x + i));
    b.add(load(x + i + w));
    c.add(load(x + i + 2 * w));
    d.add(load(x + i + 3 * w));
  }
  for (; i < n; i += w) a.add(load_up_to(x + i, n - i, T(0)));
  a.even = (a.even + b.even) + (c.even + d.even);
  a.odd = (a.odd + b.odd) + (c.odd + d.odd);
  return a.total();
}
// Integers wrap around.
i64 sum_of(i64 n, const i64* x) {
  std::uint64_t s = 0;
  for (i64 i = 0; i < n; ++i) s += static_cast<std::uint64_t>(x[i]);
  return static_cast<i64>(s);
}

// Whether a replaces b as the extreme; NaN wins.
template <class T>
GRADUS_INLINE bool beats(Reduce op, T a, T b) {
  return (op == Reduce::Max ? a > b : a < b) || a != a;
}

template <Reduce op, class T>
T extreme_of(i64 n, const T* x) {
  constexpr i64 w = Lanes<T>::count;
  Vec<T> m = splat(x[0]);
  for (i64 i = 0; i < n; i += w) {
    const Vec<T> v = load_up_to(x + i, n - i, x[0]);
    m = ((op == Reduce::Max ? v > m : v < m) | (v != v)) ? v : m;
  }
  T best = m[0];
  for (int j = 1; j < w; ++j)
    if (beats(op, T(m[j]), best)) best = m[j];
  return best;
}
template <Reduce op>
i64 extreme_of(i64 n, const i64* x) {
  i64 best = x[0];
  for (i64 i = 1; i < n; ++i) best = (op == Reduce::Max ? x[i] > best : x[i] < best) ? x[i] : best;
  return best;
}

// ---- columns: rows of `inner` neighbours are folded into accumulators, a tile of columns at a time

constexpr i64 tile = 256;

template <class T, class Acc>
void sum_columns(i64 n, i64 inner, i64 i0, i64 i1, const T* x, T* y) {
  for (i64 t = i0; t < i1; t += tile) {
    const i64 width = i1 - t < tile ? i1 - t : tile;
    alignas(64) Acc acc[tile] = {};
    if constexpr (T(0.5) != T(0)) {  // a float
      add_columns(n, width, inner, x + t, acc);
    } else {
      for (i64 r = 0; r < n; ++r) {
        const T* row = x + r * inner + t;
        for (i64 j = 0; j < width; ++j) acc[j] += static_cast<Acc>(row[j]);
      }
    }
    for (i64 j = 0; j < width; ++j) y[t + j] = static_cast<T>(acc[j]);
  }
}

template <class T>
void add_rows_of(i64 n, i64 inner, const void* x, double* y) {
  add_columns(n, inner, inner, static_cast<const T*>(x), y);
}

template <Reduce op, class T>
void extreme_columns(i64 n, i64 inner, i64 i0, i64 i1, const T* x, T* y) {
  for (i64 t = i0; t < i1; t += tile) {
    const i64 width = i1 - t < tile ? i1 - t : tile;
    alignas(64) T best[tile];
    for (i64 j = 0; j < width; ++j) best[j] = x[t + j];
    for (i64 r = 1; r < n; ++r) {
      const T* row = x + r * inner + t;
      for (i64 j = 0; j < width; ++j) {
        const T v = row[j];
        best[j] = ((op == Reduce::Max ? v > best[j] : v < best[j]) | (v != v)) ? v : best[j];
      }
    }
    for (i64 j = 0; j < width; ++j) y[t + j] = best[j];
  }
}

template <class T, class Acc>
void reduce_of(Reduce op, i64 outer, i64 n, i64 inner, i64 i0, i64 i1, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  for (i64 o = 0; o < outer; ++o, x += n * inner, y += inner) {
    if (op == Reduce::Sum) {
      if (inner == 1)
        *y = static_cast<T>(sum_of(n, x));
      else
        sum_columns<T, Acc>(n, inner, i0, i1, x, y);
    } else if (inner == 1) {
      *y = op == Reduce::Max ? extreme_of<Reduce::Max>(n, x) : extreme_of<Reduce::Min>(n, x);
    } else {
      op == Reduce::Max ? extreme_columns<Reduce::Max>(n, inner, i0, i1, x, y)
                        : extreme_columns<Reduce::Min>(n, inner, i0, i1, x, y);
    }
  }
}

// ---- argmax

// The largest is found first, by vectors, and then its first place.
template <class T>
void argmax_of(i64 rows, i64 n, const void* x_, i64* y) {
  const T* x = static_cast<const T*>(x_);
  for (i64 r = 0; r < rows; ++r, x += n) {
    const T best = extreme_of<Reduce::Max>(n, x);
    i64 i = 0;
    if (best != best)
      while (x[i] == x[i]) ++i;
    else
      while (x[i] != best) ++i;
    y[r] = i;
  }
}

}  // namespace

void reduce(Reduce op, DType dtype, i64 outer, i64 n, i64 inner, i64 i0, i64 i1, const void* x, void* y) {
  switch (dtype) {
    case DType::Float32:
      return reduce_of<float, double>(op, outer, n, inner, i0, i1, x, y);
    case DType::Float64:
      return reduce_of<double, double>(op, outer, n, inner, i0, i1, x, y);
    case DType::Int64:
      return reduce_of<i64, std::uint64_t>(op, outer, n, inner, i0, i1, x, y);
    case DType::Bool:
      return;
  }
}

double sum_run(DType dtype, i64 n, const void* x) {
  switch (dtype) {
    case DType::Float32:
      return sum_of(n, static_cast<const float*>(x));
    case DType::Float64:
      return sum_of(n, static_cast<const double*>(x));
    case DType::Int64:
      return static_cast<double>(sum_of(n, static_cast<const i64*>(x)));
    case DType::Bool:
      break;
  }
  return 0;
}

void add_rows(DType dtype, i64 n, i64 inner, const void* x, double* y) {
  GRADUS_FLOATS(add_rows_of, dtype, n, inner, x, y);
}

void argmax_rows(DType dtype, i64 rows, i64 n, const void* x, i64* y) {
  switch (dtype) {
    case DType::Float32:
      return argmax_of<float>(rows, n, x, y);
    case DType::Float64:
      return argmax_of<double>(rows, n, x, y);
    case DType::Int64:
      return argmax_of<i64>(rows, n, x, y);
    case DType::Bool:
      return;
  }
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
