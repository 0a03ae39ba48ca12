#pragma once
// The transpose of a block of numbers in registers.
#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

enum class Mix {
  Low,        // the lower halves of the 128-bit parts, interleaved
  High,       // the upper halves
  LowPairs,   // the lower pairs of each part, one after the other (four elements a part)
  HighPairs,  // the upper pairs
  First1,     // even parts of both: a's stay, b's move down by one
  Second1,    // odd parts of both: a's move up, b's stay
  First2,     // the same for parts two apart
  Second2,
};

// From which lane of a and b, counted on, lane l comes.
template <class T>
constexpr int source(Mix mix, int l) {
  constexpr int w = Lanes<T>::count, part = 16 / sizeof(T);
  const int start = l / part * part, in = l % part;
  switch (mix) {
    case Mix::Low:
      return start + in / 2 + in % 2 * w;
    case Mix::High:
      return start + part / 2 + in / 2 + in % 2 * w;
    case Mix::LowPairs:
      return start + in % 2 + in / 2 * w;
    case Mix::HighPairs:
      return start + 2 + in % 2 + in / 2 * w;
    case Mix::First1:
      return (l / part & 1) != 0 ? l - part + w : l;
    case Mix::Second1:
      return (l / part & 1) != 0 ? l + w : l + part;
    case Mix::First2:
      return (l / part & 2) != 0 ? l - 2 * part + w : l;
    case Mix::Second2:
      return (l / part & 2) != 0 ? l + w : l + 2 * part;
  }
  return l;
}

template <class T, Mix mix, int... l>
GRADUS_INLINE Vec<T> mixed(Vec<T> a, Vec<T> b, Indices<l...>) {
  return __builtin_shufflevector(a, b, source<T>(mix, l)...);
}
template <class T, Mix mix>
GRADUS_INLINE Vec<T> mixed(Vec<T> a, Vec<T> b) {
  return mixed<T, mix>(a, b, typename IndicesTo<Lanes<T>::count>::Type{});
}
// a and b become two mixes of both.
template <class T, Mix one, Mix other>
GRADUS_INLINE void mix(Vec<T>& a, Vec<T>& b) {
  const Vec<T> c = mixed<T, one>(a, b);
  b = mixed<T, other>(a, b);
  a = c;
}

// As many vectors as each has lanes: first within 128-bit parts, then the parts among each other.
template <class T>
GRADUS_INLINE void transpose(Vec<T> (&v)[Lanes<T>::count]) {
  constexpr int w = Lanes<T>::count, part = 16 / sizeof(T), parts = w / part;
#pragma GCC unroll 16
  for (int g = 0; g < w; g += part) {
    mix<T, Mix::Low, Mix::High>(v[g], v[g + 1]);
    if constexpr (part == 4) {
      mix<T, Mix::Low, Mix::High>(v[g + 2], v[g + 3]);
      mix<T, Mix::LowPairs, Mix::HighPairs>(v[g], v[g + 2]);
      mix<T, Mix::LowPairs, Mix::HighPairs>(v[g + 1], v[g + 3]);
      const Vec<T> second = v[g + 2];
      v[g + 2] = v[g + 1];
      v[g + 1] = second;
    }
  }
#pragma GCC unroll 16
  for (int g = 0; g < w; ++g) {
    if constexpr (parts >= 2)
      if ((g / part & 1) == 0) mix<T, Mix::First1, Mix::Second1>(v[g], v[g + part]);
  }
#pragma GCC unroll 16
  for (int g = 0; g < w; ++g) {
    if constexpr (parts >= 4)
      if ((g / part & 2) == 0) mix<T, Mix::First2, Mix::Second2>(v[g], v[g + 2 * part]);
  }
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
