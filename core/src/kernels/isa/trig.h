#pragma once
// sin and cos on vectors: Eigen's. Only who needs them includes Eigen, which takes long to compile.
#include <Eigen/Core>

#include "vec.h"

namespace gradus::kernels::GRADUS_ISA_NS {
namespace {

// A function of Eigen on the lanes of a vector.
template <class T, class F>
GRADUS_INLINE Vec<T> with_eigen(Vec<T> x, F f) {
  using Array = Eigen::Array<T, Lanes<T>::count, 1>;
  alignas(64) T lanes[Lanes<T>::count];
  store(lanes, x);
  Eigen::Map<Array, Eigen::AlignedMax> map(lanes);
  map = f(map);
  return load(lanes);
}
template <class T>
GRADUS_INLINE Vec<T> sin(Vec<T> x) {
  return with_eigen<T>(x, [](const auto& v) { return v.sin(); });
}
template <class T>
GRADUS_INLINE Vec<T> cos(Vec<T> x) {
  return with_eigen<T>(x, [](const auto& v) { return v.cos(); });
}

}  // namespace
}  // namespace gradus::kernels::GRADUS_ISA_NS
