// Layer normalisation of rows of neighbours, and its gradients.
#include "columns.h"
#include "families.h"
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// A row's mean as an unevaluated sum of two numbers: x - high is exact for x near the mean, so that the differences
// from a mean far greater than the deviation keep their digits.
template <class T>
struct Mean {
  T high, low;
};

GRADUS_INLINE Mean<double> mean_of(i64 n, const double* x) {
  Sum sum, rest;
  VecI64 differs{};
  each_vector<double>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    sum.add(load_up_to(x + i, count, 0.0));
    differs |= load_up_to(x + i, count, x[0]) != splat(x[0]);
  });
  const double mean = sum.total() / static_cast<double>(n);
  // A second pass finds what the rounding of the first left over; a constant row must be exactly its own mean.
  bool constant = true;
  for (int j = 0; j < Lanes<double>::count; ++j) constant = constant && differs[j] == 0;
  if (constant) return {x[0], 0};
  each_vector<double>(n, [&](i64 i, i64 count) GRADUS_INLINED { rest.add(load_up_to(x + i, count, mean) - mean); });
  return {mean, rest.total() / static_cast<double>(n)};
}

// 1/√(Σ(x - mean)²/n) where the squares are too large for T: of the differences divided by the largest of them. (eps is
// nothing beside them.) NaN where x holds NaN or infinities.
template <class T>
double rstd_of_large(i64 n, const T* x, Mean<T> mean) {
  const auto difference = [&](i64 i) {
    return static_cast<double>(x[i]) - static_cast<double>(mean.high) - static_cast<double>(mean.low);
  };
  double largest = 0, squares = 0;
  for (i64 i = 0; i < n; ++i) largest = __builtin_fmax(largest, __builtin_fabs(difference(i)));
  for (i64 i = 0; i < n; ++i) squares += difference(i) / largest * (difference(i) / largest);
  return 1 / largest / __builtin_sqrt(squares / static_cast<double>(n));
}

// The mean of floats and Σ(x - mean)², in double and in one pass: of the distances from the first number, the square of
// whose own distance from the mean is at most n times the mean square, so that few digits cancel.
GRADUS_INLINE Mean<float> moments_of(i64 n, const float* x, double& squares) {
  const double first = static_cast<double>(x[0]), count = static_cast<double>(n);
  Sum sum, square;
  each_vector<float>(n, [&](i64 i, i64 some) GRADUS_INLINED {
    const VecF v = load_up_to(x + i, some, x[0]);
    __builtin_prefetch(x + i + n);  // the next row, while this one is worked on
    const VecD a = lower(v) - first, b = upper(v) - first;
    sum.even += a;
    sum.odd += b;
    square.even += a * a;
    square.odd += b * b;
  });
  const double total = sum.total(), mean = first + total / count;
  squares = square.total() - total * total / count;
  if (squares < 0) squares = 0;
  const float high = static_cast<float>(mean);
  return {high, static_cast<float>(mean - static_cast<double>(high))};
}

// In double the same takes two passes.
GRADUS_INLINE Mean<double> moments_of(i64 n, const double* x, double& squares) {
  const Mean<double> mean = mean_of(n, x);
  Sum sum;
  each_vector<double>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    // Lanes beyond the end must not count.
    const VecD d = load_up_to(x + i, count) - mean.high - mean.low;
    sum.add(count >= Lanes<double>::count ? d * d : (lane_numbers<double>() < count ? d * d : VecD{}));
  });
  squares = sum.total();
  return mean;
}

// y = (x - mean)·rstd·γ + β with rstd = 1/√(var + eps)
template <class T>
void layer_norm_of(i64 rows, i64 n, const void* x_, const void* gamma_, const void* beta_, double eps, void* y_,
                   void* mean_, void* rstd_) {
  const T* x = static_cast<const T*>(x_);
  const T* gamma = static_cast<const T*>(gamma_);
  const T* beta = static_cast<const T*>(beta_);
  T* y = static_cast<T*>(y_);
  T* means = static_cast<T*>(mean_);
  T* rstds = static_cast<T*>(rstd_);
  for (i64 r = 0; r < rows; ++r, x += n, y += n) {
    double total = 0;
    const Mean<T> mean = moments_of(n, x, total);
    const T rstd = static_cast<T>(total < __builtin_inf() ? 1 / __builtin_sqrt(total / static_cast<double>(n) + eps)
                                                          : rstd_of_large(n, x, mean));
    means[2 * r] = mean.high;
    means[2 * r + 1] = mean.low;
    rstds[r] = rstd;
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      Vec<T> v = (load_up_to(x + i, count) - mean.high - mean.low) * rstd;
      if (gamma) v *= load_up_to(gamma + i, count);
      if (beta) v += load_up_to(beta + i, count);
      store_up_to<T>(y + i, v, count);
    });
  }
}

// dx = rstd·(h - mean(h) - x̂·mean(h∘x̂)) with h = g∘γ, x̂ = (x - mean)·rstd, and dγ += Σ g∘x̂, dβ += Σ g in double: for
// `at_once` rows, so that a sum is loaded and stored once for them, and each row is read from the first cache the
// second time.
template <class T, int at_once>
GRADUS_INLINE void backward_rows(i64 n, const T* g, const T* x, const T* gamma, const T* mean, const T* rstd, T* dx,
                                 double* dgamma, double* dbeta) {
  T mean_h[at_once], mean_dot[at_once];
  for (int k = 0; k < at_once; ++k) {
    const T *gr = g + k * n, *xr = x + k * n;
    Sum sum, dot;
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      __builtin_prefetch(gr + i + at_once * n);  // the next rows, while these are worked on
      __builtin_prefetch(xr + i + at_once * n);
      Vec<T> h = load_up_to(gr + i, count, T(0));
      if (gamma) h *= load_up_to(gamma + i, count, T(0));
      sum.add(h);
      dot.add(h * ((load_up_to(xr + i, count, T(0)) - mean[2 * k] - mean[2 * k + 1]) * rstd[k]));
    });
    mean_h[k] = static_cast<T>(sum.total() / static_cast<double>(n));
    mean_dot[k] = static_cast<T>(dot.total() / static_cast<double>(n));
  }
  each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    const Vec<T> scale = gamma ? load_up_to(gamma + i, count) : splat(T(1));
    Sum dots, sums;
    if (dgamma) {
      dots = load_sum<T>(dgamma + i, count);
      sums = load_sum<T>(dbeta + i, count);
    }
#pragma GCC unroll 4
    for (int k = 0; k < at_once; ++k) {
      const Vec<T> gv = load_up_to(g + k * n + i, count);
      const Vec<T> normed = (load_up_to(x + k * n + i, count) - mean[2 * k] - mean[2 * k + 1]) * rstd[k];
      store_up_to<T>(dx + k * n + i, (gv * scale - mean_h[k] - normed * mean_dot[k]) * rstd[k], count);
      if (dgamma) {
        dots.add(gv * normed);
        sums.add(gv);
      }
    }
    if (dgamma) {
      store_sum<T>(dgamma + i, dots, count);
      store_sum<T>(dbeta + i, sums, count);
    }
  });
}

template <class T>
void layer_norm_backward_of(i64 rows, i64 n, const void* g_, const void* x_, const void* gamma_, const void* mean_,
                            const void* rstd_, void* dx_, double* dgamma, double* dbeta) {
  const T* g = static_cast<const T*>(g_);
  const T* x = static_cast<const T*>(x_);
  const T* gamma = static_cast<const T*>(gamma_);
  const T* mean = static_cast<const T*>(mean_);
  const T* rstd = static_cast<const T*>(rstd_);
  T* dx = static_cast<T*>(dx_);
  i64 r = 0;
  for (; r + rows_at_once <= rows; r += rows_at_once)
    backward_rows<T, rows_at_once>(n, g + r * n, x + r * n, gamma, mean + 2 * r, rstd + r, dx + r * n, dgamma, dbeta);
  for (; r < rows; ++r)
    backward_rows<T, 1>(n, g + r * n, x + r * n, gamma, mean + 2 * r, rstd + r, dx + r * n, dgamma, dbeta);
}

}  // namespace

void layer_norm(DType dtype, i64 rows, i64 n, const void* x, const void* gamma, const void* beta, double eps, void* y,
                void* mean, void* rstd) {
  GRADUS_FLOATS(layer_norm_of, dtype, rows, n, x, gamma, beta, eps, y, mean, rstd);
}

void layer_norm_backward(DType dtype, i64 rows, i64 n, const void* g, const void* x, const void* gamma,
                         const void* mean, const void* rstd, void* dx, double* dgamma, double* dbeta) {
  GRADUS_FLOATS(layer_norm_backward_of, dtype, rows, n, g, x, gamma, mean, rstd, dx, dgamma, dbeta);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
