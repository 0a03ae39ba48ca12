#pragma once
// What the tests of the kernels share. Expected values are plain loops and the standard library's functions in double;
// the kernels run on the set that GRADUS_ISA pins.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../../core/src/kernels/kernels.h"

namespace gradus::test {

using kernels::i64;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<T> numbers(i64 n, unsigned seed = 1, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> out(static_cast<std::size_t>(n));
  for (T& x : out) x = static_cast<T>(normal(random));
  return out;
}

// The distance in units in the last place of the expected value (of the smallest normal number below that).
template <class T>
inline double ulps(T got, double expected, double smallest = static_cast<double>(std::numeric_limits<T>::min())) {
  const T e = static_cast<T>(expected);
  if (std::isnan(expected)) return std::isnan(got) ? 0 : infinity;
  if (std::isinf(e) || std::isinf(got)) return got == e ? 0 : infinity;
  const double size = std::max(std::abs(expected), smallest);
  return std::abs(static_cast<double>(got) - expected) /
         std::ldexp(static_cast<double>(std::numeric_limits<T>::epsilon()), std::ilogb(size));
}

inline bool same_bits(const void* a, const void* b, std::size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

}  // namespace gradus::test
