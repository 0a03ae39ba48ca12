#pragma once
// What softmax and cross entropy ask of a row first.
#include "math.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// Σ e^(x - top) of a row, top being its largest element: NaN where that is infinite or a NaN is there. A NaN may be
// passed over as top.
template <class T>
struct ExpSum {
  T top;
  double sum;
};

// Lane by lane, a sum of numbers from 0 to 1, and what its additions rounded off: together they are as good as a sum in
// double, in half of its instructions. It starts at 1, which is the larger in each addition, so that next - sum is
// exact (Dekker's Fast2Sum); in the lane of the largest power, small ones keep all their digits.
template <class T>
struct PowerSum {
  Vec<T> sum = splat(T(1)), rest{};
  GRADUS_INLINE void add(Vec<T> power) {
    const Vec<T> next = sum + power;
    rest += power - (next - sum);
    sum = next;
  }
  GRADUS_INLINE double total() const {
    Sum all;
    all.add(sum - T(1));
    all.add(rest);
    return all.total();
  }
};

// The largest element. A NaN may be passed over.
template <class T>
GRADUS_INLINE T row_max(i64 n, const T* x) {
  constexpr i64 w = Lanes<T>::count;
  constexpr T lowest = -Lanes<T>::infinity;
  Vec<T> a = splat<T>(lowest), b = a;
  i64 i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    a = max<T>(load(x + i), a);
    b = max<T>(load(x + i + w), b);
  }
  for (; i < n; i += w) a = max<T>(load_up_to(x + i, n - i, lowest), a);
  return largest_lane<T>(max<T>(a, b));
}

// Calls f(row, ExpSum) for each row. While the powers of one are added up, the largest element of the next is found:
// each element is fetched once, and no row waits for its own. A term so small that its power of two would be subnormal
// is nothing beside the largest, 1.
template <class T, class F>
GRADUS_INLINE void each_exp_sum(i64 rows, i64 n, const T* x, F f) {
  constexpr T infinity = Lanes<T>::infinity;
  constexpr i64 w = Lanes<T>::count;
  if (rows == 0) return;
  T top = row_max(n, x);
  for (i64 r = 0; r < rows; ++r, x += n) {
    const T* next = r + 1 < rows ? x + n : x;
    const auto powers = [top](auto v) GRADUS_INLINED { return quick_exp<T>(at_least(v - top, lowest_normal_exp<T>)); };
    PowerSum<T> sum;
    Vec<T> most = splat<T>(-infinity);
    i64 i = 0;
    for (; i + 2 * w <= n; i += 2 * w) {
      __builtin_prefetch(next + n + i);
      const Two<Vec<T>> power = powers(load_two(x + i));
      sum.add(power.a);
      sum.add(power.b);
      most = max<T>(load(next + i), max<T>(load(next + i + w), most));
    }
    for (; i < n; i += w) {
      sum.add(powers(load_up_to(x + i, n - i, -infinity)));
      most = max<T>(load_up_to(next + i, n - i, -infinity), most);
    }
    f(r, ExpSum<T>{top, top - top == T(0) ? sum.total() : static_cast<double>(top - top)});
    top = largest_lane<T>(most);
  }
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
