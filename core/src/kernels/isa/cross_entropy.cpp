// Cross entropy of rows of scores against one class a row, with label smoothing and class weights.
#include "families.h"
#include "math.h"
#include "rows.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// loss = w_t·(1-ε)·(lse - x_t) + ε/n·Σ w_j·(lse - x_j). Without smoothing the sum is not taken: there x_j may be -inf.
template <class T>
void cross_entropy_of(i64 rows, i64 n, const void* x_, const i64* target, i64 ignore, double smoothing,
                      const void* weight_, void* loss_, void* lse_) {
  const T* x = static_cast<const T*>(x_);
  const T* weight = static_cast<const T*>(weight_);
  T* loss = static_cast<T*>(loss_);
  T* lse = static_cast<T*>(lse_);
  for (i64 r = 0; r < rows; ++r, x += n) {
    const T top = row_max(n, x);
    const double log_sum = __builtin_log(sum_exp(n, x, top));
    const double total = static_cast<double>(top) + log_sum;
    lse[r] = static_cast<T>(total);
    const i64 t = target[r];
    if (t == ignore) {
      loss[r] = 0;
      continue;
    }
    const double target_weight = weight ? static_cast<double>(weight[t]) : 1.0;
    double value = target_weight * (1 - smoothing) * (total - static_cast<double>(x[t]));
    if (smoothing != 0) {
      Sum sum;
      const Vec<T> base = splat(lse[r]);
      each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
        Vec<T> d = base - load_up_to(x + i, count, lse[r]);
        if (weight) d *= load_up_to(weight + i, count, T(0));
        sum.add(d);
      });
      value += smoothing / static_cast<double>(n) * sum.total();
    }
    loss[r] = static_cast<T>(value);
  }
}

// d loss/d x_j = w_t·(1-ε)·(p_j - [j = t]) + ε/n·(p_j·Σw - w_j) with p = e^(x - lse), times scale.
template <class T>
void cross_entropy_backward_of(i64 rows, i64 n, const void* x_, const i64* target, i64 ignore, double smoothing,
                               const void* weight_, const void* lse_, const void* scale_, void* dx_) {
  const T* x = static_cast<const T*>(x_);
  const T* weight = static_cast<const T*>(weight_);
  const T* lse = static_cast<const T*>(lse_);
  const T* scale = static_cast<const T*>(scale_);
  T* dx = static_cast<T*>(dx_);
  double total_weight = static_cast<double>(n);
  if (weight) {
    Sum sum;
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED { sum.add(load_up_to(weight + i, count, T(0))); });
    total_weight = sum.total();
  }
  const double each = smoothing / static_cast<double>(n);
  for (i64 r = 0; r < rows; ++r, x += n, dx += n) {
    const i64 t = target[r];
    if (t == ignore) {
      each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED { store_up_to<T>(dx + i, Vec<T>{}, count); });
      continue;
    }
    const double s = static_cast<double>(scale[r]);
    const double on_target = (weight ? static_cast<double>(weight[t]) : 1.0) * (1 - smoothing) * s;
    const T of_p = static_cast<T>(on_target + each * total_weight * s);
    const T of_w = static_cast<T>(each * s);
    const T base = lse[r];
    const double p_target = __builtin_exp(static_cast<double>(x[t]) - static_cast<double>(base));
    const double w_target = weight ? static_cast<double>(weight[t]) : 1.0;
    const T at_target = static_cast<T>(on_target * (p_target - 1) + each * s * (p_target * total_weight - w_target));
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      Vec<T> d = exp<T>(load_up_to(x + i, count) - base) * of_p;
      if (smoothing != 0) d -= weight ? load_up_to(weight + i, count) * of_w : splat(of_w);
      store_up_to<T>(dx + i, d, count);
    });
    dx[t] = at_target;
  }
}

}  // namespace

void cross_entropy(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore, double smoothing,
                   const void* weight, void* loss, void* lse) {
  GRADUS_FLOATS(cross_entropy_of, dtype, rows, n, x, target, ignore, smoothing, weight, loss, lse);
}

void cross_entropy_backward(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore,
                            double smoothing, const void* weight, const void* lse, const void* scale, void* dx) {
  GRADUS_FLOATS(cross_entropy_backward_of, dtype, rows, n, x, target, ignore, smoothing, weight, lse, scale, dx);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
