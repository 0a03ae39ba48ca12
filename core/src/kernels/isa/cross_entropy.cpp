// Cross entropy of rows of scores against one class a row, with label smoothing and class weights.
#include "families.h"
#include "math.h"
#include "rows.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// loss = w_t·(1-ε)·(lse - x_t) + ε/n·Σ w_j·(lse - x_j). The differences are taken from the largest element, not from
// lse, whose rounding would be theirs. What has no weight counts for nothing, even where x_j is -inf.
template <class T>
void cross_entropy_of(i64 rows, i64 n, const void* x_, const i64* target, i64 ignore, double smoothing,
                      const void* weight_, void* loss_, double* top_sum) {
  const T* weight = static_cast<const T*>(weight_);
  T* loss = static_cast<T*>(loss_);
  const T* x = static_cast<const T*>(x_);
  // First all sums: calls of log between them would take away the registers.
  each_exp_sum(rows, n, x, [&](i64 r, ExpSum<T> of) GRADUS_INLINED {
    top_sum[2 * r] = static_cast<double>(of.top);
    top_sum[2 * r + 1] = of.sum;
  });
  for (i64 r = 0; r < rows; ++r, x += n) {
    const i64 t = target[r];
    loss[r] = 0;
    if (t == ignore) continue;
    const double top = top_sum[2 * r], log_sum = __builtin_log(top_sum[2 * r + 1]);
    const double on_target = (weight ? static_cast<double>(weight[t]) : 1.0) * (1 - smoothing);
    double value = 0;
    if (on_target != 0) value = on_target * (top - static_cast<double>(x[t]) + log_sum);
    if (smoothing != 0) {
      const T row_top = static_cast<T>(top);
      Sum below, weights;
      each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
        const Vec<T> d = row_top - load_up_to(x + i, count, row_top);
        const Vec<T> w = weight ? load_up_to(weight + i, count, T(0)) : splat(T(1));
        below.add(w == T(0) ? Vec<T>{} : d * w);
        weights.add(w);
      });
      const double total = weight ? weights.total() : static_cast<double>(n);
      value += smoothing / static_cast<double>(n) * (below.total() + total * log_sum);
    }
    loss[r] = static_cast<T>(value);
  }
}

// d loss/d x_j = w_t·(1-ε)·(p_j - [j = t]) + ε/n·(p_j·Σw - w_j) with p = e^(x - max x)/Σ e^(x - max x), times scale.
template <class T>
void cross_entropy_backward_of(i64 rows, i64 n, const void* x_, const i64* target, i64 ignore, double smoothing,
                               const void* weight_, const double* top_sum, const void* scale_, void* dx_) {
  const T* x = static_cast<const T*>(x_);
  const T* weight = static_cast<const T*>(weight_);
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
    const double s = static_cast<double>(scale[r]), sum = top_sum[2 * r + 1];
    const double w_target = weight ? static_cast<double>(weight[t]) : 1.0;
    const double on_target = w_target * (1 - smoothing) * s;
    const T top = static_cast<T>(top_sum[2 * r]);
    const T of_power = static_cast<T>((on_target + each * total_weight * s) / sum);
    const T of_weight = static_cast<T>(each * s);
    const double power = __builtin_exp(static_cast<double>(x[t]) - top_sum[2 * r]);
    const T at_target =
        static_cast<T>((on_target * (power - sum) + each * s * (power * total_weight - w_target * sum)) / sum);
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      __builtin_prefetch(x + n + i);  // the next row, while this one is worked on
      __builtin_prefetch(dx + n + i, 1);
      Vec<T> d = exp_of_negative<T>(load_up_to(x + i, count) - top) * of_power;
      if (smoothing != 0) d -= weight ? load_up_to(weight + i, count) * of_weight : splat(of_weight);
      store_up_to<T>(dx + i, d, count);
    });
    dx[t] = at_target;
  }
}

}  // namespace

void cross_entropy(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore, double smoothing,
                   const void* weight, void* loss, double* top_sum) {
  GRADUS_FLOATS(cross_entropy_of, dtype, rows, n, x, target, ignore, smoothing, weight, loss, top_sum);
}

void cross_entropy_backward(DType dtype, i64 rows, i64 n, const void* x, const i64* target, i64 ignore,
                            double smoothing, const void* weight, const double* top_sum, const void* scale, void* dx) {
  GRADUS_FLOATS(cross_entropy_backward_of, dtype, rows, n, x, target, ignore, smoothing, weight, top_sum, scale, dx);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
