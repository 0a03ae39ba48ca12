#pragma once
// Eigen over gradus memory, for programs that use Eigen themselves. Not part of <gradus/gradus.h>: gradus needs no
// Eigen once it is installed, so the program brings its own, of any version from 3.4 on and compiled in any way:
//
//     find_package(Eigen3 CONFIG REQUIRED)
//     target_link_libraries(my_program PRIVATE gradus::gradus Eigen3::Eigen)
//
// Only maps and copies are handed over. No Eigen object is made inside the library or destroyed in it, so wider vectors
// on one side than on the other do no harm.
#include <gradus/factories.h>
#include <gradus/tensor.h>

#include <Eigen/Core>
#include <cstdint>
#include <type_traits>

namespace gradus {

/// A map over a tensor's memory; `const T` for reading alone.
template <class T>
using EigenMatrixMap = Eigen::Map<
    std::conditional_t<std::is_const_v<T>,
                       const Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                       Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>,
    Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using EigenVectorMap =
    Eigen::Map<std::conditional_t<std::is_const_v<T>, const Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, 1>,
                                  Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, 1>>,
               Eigen::Unaligned, Eigen::InnerStride<Eigen::Dynamic>>;

namespace detail {
/// Error unless x is defined, of this dtype and rank, and, to be written, without elements that share memory.
GRADUS_API void check_eigen_map(const Tensor& x, DType dtype, int rank, bool writable, const char* op);
}  // namespace detail

/// A tensor of rank 2 as an Eigen matrix on the same memory, whatever its strides: `eigen_matrix<float>(w)`. It is
/// valid while the tensor's memory is alive, so the tensor must have a name of its own. Writes through it are, as those
/// through data(), not seen by the check for changed saved tensors. T is float, double, std::int64_t or bool, as the
/// dtype, or const such a one for reading alone. Error for another rank or dtype, and for writing to memory that
/// overlaps (an expanded tensor).
template <class T>
EigenMatrixMap<T> eigen_matrix(const Tensor& x) {
  using Number = std::remove_const_t<T>;
  detail::check_eigen_map(x, dtype_of<Number>::value, 2, !std::is_const_v<T>, "eigen_matrix");
  const Shape &shape = x.shape(), &strides = x.strides();
  return EigenMatrixMap<T>(x.data<Number>(), static_cast<Eigen::Index>(shape[0]), static_cast<Eigen::Index>(shape[1]),
                           {static_cast<Eigen::Index>(strides[0]), static_cast<Eigen::Index>(strides[1])});
}
template <class T>
EigenMatrixMap<T> eigen_matrix(const Tensor&& x) = delete;  // its memory would be gone before the map is used

/// A tensor of rank 1 as an Eigen column vector on the same memory; as eigen_matrix in all else.
template <class T>
EigenVectorMap<T> eigen_vector(const Tensor& x) {
  using Number = std::remove_const_t<T>;
  detail::check_eigen_map(x, dtype_of<Number>::value, 1, !std::is_const_v<T>, "eigen_vector");
  return EigenVectorMap<T>(x.data<Number>(), static_cast<Eigen::Index>(x.shape()[0]),
                           Eigen::InnerStride<Eigen::Dynamic>(static_cast<Eigen::Index>(x.strides()[0])));
}
template <class T>
EigenVectorMap<T> eigen_vector(const Tensor&& x) = delete;

/// A copy of an Eigen matrix, array or expression of float, double, std::int64_t or bool: [rows, cols], or [n] where it
/// is a vector at compile time. Values of other types take a cast<...>() first.
template <class Derived>
Tensor from_eigen(const Eigen::DenseBase<Derived>& values, const TensorOptions& options = {}) {
  using Number = typename Derived::Scalar;
  static_assert(std::is_same_v<Number, float> || std::is_same_v<Number, double> ||
                    std::is_same_v<Number, std::int64_t> || std::is_same_v<Number, bool>,
                "from_eigen takes float, double, std::int64_t or bool: use values.cast<...>()");
  constexpr DType dtype = dtype_of<Number>::value;
  Tensor result;
  if constexpr (static_cast<bool>(Derived::IsVectorAtCompileTime)) {
    result = empty({static_cast<std::int64_t>(values.size())}, {.dtype = dtype});
  } else {
    result =
        empty({static_cast<std::int64_t>(values.rows()), static_cast<std::int64_t>(values.cols())}, {.dtype = dtype});
  }
  using RowMajor = Eigen::Array<Number, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<RowMajor> map(result.data<Number>(), values.rows(), values.cols());
  if constexpr (std::is_base_of_v<Eigen::ArrayBase<Derived>, Derived>) {
    map = values.derived();
  } else {
    map.matrix() = values.derived();
  }
  if (options.dtype) result = result.to(*options.dtype);
  if (options.requires_grad) result.requires_grad_();
  return result;
}

}  // namespace gradus
