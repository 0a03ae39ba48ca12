// Variances along one dimension of a contiguous [outer, n, inner] block, in double and by distances from the first
// element, so that equal elements give exactly 0. Of doubles and columns in two passes: the mean first, then the
// squares around it, less what the rounding of the mean has added to them.
#include "families.h"
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// Σ d² less (Σ d)²/n, where d are the distances from a number near the mean.
GRADUS_INLINE double around_mean(double squares, double rest, double n) {
  if (!(squares < __builtin_inf())) return squares;  // NaN, or too large for a number
  const double around = squares - rest * rest / n;
  return around < 0 ? 0 : around;
}

Moments moments_of(i64 n, const double* x) {
  constexpr i64 w = Lanes<double>::count;
  const i64 whole = n - n % w;
  const double first = x[0], count = static_cast<double>(n);
  Sum distances;
  for (i64 i = 0; i < whole; i += w) distances.add(load(x + i) - first);
  double total = distances.total();
  for (i64 i = whole; i < n; ++i) total += x[i] - first;

  const double mean = first + total / count;
  Sum squared, left;
  for (i64 i = 0; i < whole; i += w) {
    const VecD d = load(x + i) - mean;
    squared.add(d * d);
    left.add(d);
  }
  double squares = squared.total(), rest = left.total();
  for (i64 i = whole; i < n; ++i) {
    const double d = x[i] - mean;
    squares += d * d;
    rest += d;
  }
  return {mean + rest / count, around_mean(squares, rest, count)};
}

// Of floats one pass will do, by the distances from the first one: the square of its own distance from the mean is at
// most n times the mean square, and a double has digits to spare for that.
Moments moments_of(i64 n, const float* x) {
  const double first = static_cast<double>(x[0]), count = static_cast<double>(n);
  Sum sum, square;
  each_vector<float>(n, [&](i64 i, i64 some) GRADUS_INLINED {
    const VecF v = load_up_to(x + i, some, x[0]);
    const VecD a = lower(v) - first, b = upper(v) - first;
    sum.even += a;
    sum.odd += b;
    square.even += a * a;
    square.odd += b * b;
  });
  const double total = sum.total();
  return {first + total / count, around_mean(square.total(), total, count)};
}

template <class T>
GRADUS_INLINE T finished(double squares, double divisor, bool root) {
  const double variance = squares / divisor;
  return static_cast<T>(root ? __builtin_sqrt(variance) : variance);
}

// Columns, a tile of them at a time.
template <class T>
void variance_columns(i64 n, i64 inner, i64 i0, i64 i1, double divisor, bool root, const T* x, T* y) {
  constexpr i64 tile = 128;
  const double count = static_cast<double>(n);
  for (i64 t = i0; t < i1; t += tile) {
    const i64 width = i1 - t < tile ? i1 - t : tile;
    const T* first = x + t;
    alignas(64) double mean[tile] = {}, squares[tile] = {}, rest[tile] = {};
    for (i64 r = 0; r < n; ++r) {
      const T* row = first + r * inner;
      for (i64 j = 0; j < width; ++j) mean[j] += static_cast<double>(row[j]) - static_cast<double>(first[j]);
    }
    for (i64 j = 0; j < width; ++j) mean[j] = static_cast<double>(first[j]) + mean[j] / count;
    for (i64 r = 0; r < n; ++r) {
      const T* row = first + r * inner;
      for (i64 j = 0; j < width; ++j) {
        const double d = static_cast<double>(row[j]) - mean[j];
        squares[j] += d * d;
        rest[j] += d;
      }
    }
    for (i64 j = 0; j < width; ++j) y[t + j] = finished<T>(around_mean(squares[j], rest[j], count), divisor, root);
  }
}

template <class T>
void variance_of(i64 outer, i64 n, i64 inner, i64 i0, i64 i1, double divisor, bool root, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  for (i64 o = 0; o < outer; ++o, x += n * inner, y += inner) {
    if (inner == 1)
      *y = finished<T>(moments_of(n, x).squares, divisor, root);
    else
      variance_columns(n, inner, i0, i1, divisor, root, x, y);
  }
}

}  // namespace

void variance(DType dtype, i64 outer, i64 n, i64 inner, i64 i0, i64 i1, double divisor, bool root, const void* x,
              void* y) {
  GRADUS_FLOATS(variance_of, dtype, outer, n, inner, i0, i1, divisor, root, x, y);
}

Moments moments_run(DType dtype, i64 n, const void* x) {
  return dtype == DType::Float32 ? moments_of(n, static_cast<const float*>(x))
                                 : moments_of(n, static_cast<const double*>(x));
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
