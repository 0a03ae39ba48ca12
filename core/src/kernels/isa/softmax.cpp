// softmax and log_softmax along rows of neighbours, with their gradients. The largest element is subtracted first, so
// that nothing overflows; sums are taken in double. A row of nothing but -inf gives NaN, as the formula says.
#include "families.h"
#include "math.h"
#include "rows.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// A short row, of `vectors` vectors of which the last may be partial, stays in registers between the passes.
template <class T, int vectors>
GRADUS_INLINE void short_softmax(i64 n, const T* x, T* y) {
  constexpr i64 w = Lanes<T>::count, before = (vectors - 1) * w;
  constexpr T lowest = -Lanes<T>::infinity;
  Vec<T> v[vectors];
  for (int i = 0; i < vectors - 1; ++i) v[i] = load(x + i * w);
  v[vectors - 1] = load_up_to(x + before, n - before, lowest);
  Vec<T> top = splat<T>(lowest);
  for (int i = 0; i < vectors; ++i) top = max<T>(v[i], top);
  top = splat(largest_lane<T>(top));
  Sum sum;
  for (int i = 0; i < vectors; ++i) sum.add(v[i] = exp_of_difference<T>(v[i], top));
  const T scale = static_cast<T>(1 / sum.total());
  for (int i = 0; i < vectors - 1; ++i) store<T>(y + i * w, v[i] * scale);
  store_up_to<T>(y + before, v[vectors - 1] * scale, n - before);
}

// yᵢ = e^(xᵢ - max x) / Σ e^(x - max x) where max x may be any number.
template <class T>
GRADUS_INLINE void far_softmax(i64 n, const T* x, T* y, T largest) {
  const Vec<T> top = splat(largest);
  Sum sum;
  each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    const Vec<T> e = exp_of_difference<T>(load_up_to(x + i, count, -Lanes<T>::infinity), top);
    sum.add(e);
    store_up_to<T>(y + i, e, count);
  });
  // The lanes beyond a row's end hold e^(-inf - max): 0, or NaN where every lane is NaN anyway.
  const T scale = static_cast<T>(1 / sum.total());
  each_vector<T>(
      n, [&](i64 i, i64 count) GRADUS_INLINED { store_up_to<T>(y + i, load_up_to(y + i, count) * scale, count); });
}

// The same where max x is of a usual size. With K = round(max x/ln 2), 2⁻ᴷ·eˣ does as well as e^(x - max x), and needs
// no difference that rounding could spoil: K goes into the exponent of the power. The powers are taken larger by a
// constant factor, so that none is subnormal before the scale is applied.
template <class T>
GRADUS_INLINE void near_softmax(i64 n, const T* x, T* y, T largest) {
  constexpr T shift = sizeof(T) == 4 ? T(64) : T(512);
  constexpr T range = sizeof(T) == 4 ? T(120) : T(800);  // what lies lower gives 0
  const Vec<T> at_top = splat(largest) * T(1.44269504088896340736) + round_to_integer<T>;
  const T constant = shift - (at_top[0] - round_to_integer<T>), lowest = largest - range;
  Sum sum;
  each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    const Vec<T> v = at_least(load_up_to(x + i, count, -Lanes<T>::infinity), lowest);
    __builtin_prefetch(x + i + n);  // the next row, while this one is worked on
    const Reduced<Vec<T>> at = reduce_by_ln2<T>(v, constant);
    const Vec<T> e = exp_reduced<T>(at.r) * at.power;
    sum.add(e);
    store_up_to<T>(y + i, e, count);
  });
  const T scale = static_cast<T>(1 / sum.total());
  each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
    __builtin_prefetch(y + i + n, 1);
    store_up_to<T>(y + i, load_up_to(y + i, count) * scale, count);
  });
}

template <class T>
void softmax_of(i64 rows, i64 n, const void* x_, void* y_) {
  constexpr T usual = 4096;
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  for (i64 r = 0; r < rows; ++r, x += n, y += n) {
    if (n <= Lanes<T>::count) {
      short_softmax<T, 1>(n, x, y);
    } else if (n <= 2 * Lanes<T>::count) {
      short_softmax<T, 2>(n, x, y);
    } else if (const T top = row_max(n, x); top <= usual && top >= -usual) {
      near_softmax(n, x, y, top);
    } else {
      far_softmax(n, x, y, top);
    }
  }
}

// softmax where mask is true and 0 elsewhere; a row that may choose nothing is all 0. What is hidden is never read as a
// number: e^(-inf - max) stands in for it, which is exactly 0.
template <class T>
void masked_softmax_of(i64 n, const void* x_, const bool* mask, i64 mask_step, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  bool any = false;
  for (i64 i = 0; i < n; ++i) {
    any |= mask[i * mask_step];
    y[i] = mask[i * mask_step] ? x[i] : -Lanes<T>::infinity;
  }
  if (any) return softmax_of<T>(1, n, y, y);
  for (i64 i = 0; i < n; ++i) y[i] = 0;
}

// dx = y∘(g - Σ g∘y), and 0 where y is 0, whatever g is there.
template <class T>
void masked_softmax_backward_of(i64 rows, i64 n, const void* g_, const void* y_, void* dx_) {
  const T* g = static_cast<const T*>(g_);
  const T* y = static_cast<const T*>(y_);
  T* dx = static_cast<T*>(dx_);
  const Vec<T> zero = {};
  for (i64 r = 0; r < rows; ++r, g += n, y += n, dx += n) {
    Sum sum;
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      const Vec<T> yv = load_up_to(y + i, count, T(0)), gy = load_up_to(g + i, count, T(0)) * yv;
      sum.add(yv == zero ? zero : gy);
    });
    const T dot = static_cast<T>(sum.total());
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      const Vec<T> yv = load_up_to(y + i, count), d = yv * (load_up_to(g + i, count) - dot);
      store_up_to<T>(dx + i, yv == zero ? zero : d, count);
    });
  }
}

// dx = y∘(g - Σ g∘y)
template <class T>
void softmax_backward_of(i64 rows, i64 n, const void* g_, const void* y_, void* dx_) {
  const T* g = static_cast<const T*>(g_);
  const T* y = static_cast<const T*>(y_);
  T* dx = static_cast<T*>(dx_);
  for (i64 r = 0; r < rows; ++r, g += n, y += n, dx += n) {
    Sum sum;
    each_vector<T>(n, [&](i64 i, i64 count)
                          GRADUS_INLINED { sum.add(load_up_to(g + i, count, T(0)) * load_up_to(y + i, count, T(0))); });
    const T dot = static_cast<T>(sum.total());
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      store_up_to<T>(dx + i, load_up_to(y + i, count) * (load_up_to(g + i, count) - dot), count);
    });
  }
}

// yᵢ = (xᵢ - max x) - ln Σ e^(x - max x)
template <class T>
void log_softmax_of(i64 rows, i64 n, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  each_exp_sum(rows, n, x, [&](i64 r, ExpSum<T> of) GRADUS_INLINED {
    const T log_sum = static_cast<T>(__builtin_log(of.sum));
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      store_up_to<T>(y + r * n + i, load_up_to(x + r * n + i, count) - of.top - log_sum, count);
    });
  });
}

// y = max x + ln Σ e^(x - max x). A largest element that is infinite is the answer itself, unless there is a NaN.
template <class T>
void logsumexp_of(i64 rows, i64 n, const void* x_, void* y_) {
  const T* x = static_cast<const T*>(x_);
  T* y = static_cast<T*>(y_);
  each_exp_sum(rows, n, x, [&](i64 r, ExpSum<T> of) GRADUS_INLINED {
    if (of.top == Lanes<T>::infinity || of.top == -Lanes<T>::infinity) {
      y[r] = of.top;
      for (i64 i = r * n; i < (r + 1) * n; ++i)
        if (x[i] != x[i]) y[r] = x[i];
    } else {
      y[r] = static_cast<T>(static_cast<double>(of.top) + __builtin_log(of.sum));
    }
  });
}

// dx = g - eʸ·Σ g
template <class T>
void log_softmax_backward_of(i64 rows, i64 n, const void* g_, const void* y_, void* dx_) {
  const T* g = static_cast<const T*>(g_);
  const T* y = static_cast<const T*>(y_);
  T* dx = static_cast<T*>(dx_);
  for (i64 r = 0; r < rows; ++r, g += n, y += n, dx += n) {
    Sum sum;
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED { sum.add(load_up_to(g + i, count, T(0))); });
    const T total = static_cast<T>(sum.total());
    each_vector<T>(n, [&](i64 i, i64 count) GRADUS_INLINED {
      store_up_to<T>(dx + i, load_up_to(g + i, count) - exp<T>(load_up_to(y + i, count)) * total, count);
    });
  }
}

}  // namespace

void softmax(DType dtype, i64 rows, i64 n, const void* x, void* y) { GRADUS_FLOATS(softmax_of, dtype, rows, n, x, y); }

void softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx) {
  GRADUS_FLOATS(softmax_backward_of, dtype, rows, n, g, y, dx);
}

void masked_softmax(DType dtype, i64 n, const void* x, const bool* mask, i64 mask_step, void* y) {
  GRADUS_FLOATS(masked_softmax_of, dtype, n, x, mask, mask_step, y);
}

void masked_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx) {
  GRADUS_FLOATS(masked_softmax_backward_of, dtype, rows, n, g, y, dx);
}

void log_softmax(DType dtype, i64 rows, i64 n, const void* x, void* y) {
  GRADUS_FLOATS(log_softmax_of, dtype, rows, n, x, y);
}

void logsumexp(DType dtype, i64 rows, i64 n, const void* x, void* y) {
  GRADUS_FLOATS(logsumexp_of, dtype, rows, n, x, y);
}

void log_softmax_backward(DType dtype, i64 rows, i64 n, const void* g, const void* y, void* dx) {
  GRADUS_FLOATS(log_softmax_backward_of, dtype, rows, n, g, y, dx);
}

}  // namespace gradus::kernels::GRADUS_ISA_NS
