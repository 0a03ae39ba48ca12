#pragma once
#include <gradus/tensor.h>

#include <concepts>
#include <initializer_list>
#include <optional>
#include <vector>

namespace gradus {

struct TensorOptions {
  std::optional<DType>
      dtype{};  ///< default: Float32 (of `tensor` and `arange`: what the numbers are; of *_like: the like)
  bool requires_grad = false;
};

/// Nested lists of numbers: `tensor({{1, 2}, {3, 4}})`. Only integers give Int64, only bools Bool, else Float32.
class GRADUS_API NestedList {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> NestedList(T number) : number_(number) {}
  NestedList(std::initializer_list<NestedList> items) : items_(items), is_list_(true) {}

 private:
  friend GRADUS_API Tensor tensor(const NestedList& data, const TensorOptions& options);
  void shape_into(Shape& shape) const;
  void collect(const Shape& shape, int depth, std::vector<Scalar>& numbers) const;

  Scalar number_ = 0;
  std::vector<NestedList> items_;
  bool is_list_ = false;
};

/// Error where lists of one level differ in length.
GRADUS_API Tensor tensor(const NestedList& data, const TensorOptions& options = {});
/// Row-major values of any shape. Error where values.size() is not shape.numel().
GRADUS_API Tensor from_vector(const std::vector<float>& values, const Shape& shape, const TensorOptions& options = {});
GRADUS_API Tensor from_vector(const std::vector<double>& values, const Shape& shape, const TensorOptions& options = {});
GRADUS_API Tensor from_vector(const std::vector<std::int64_t>& values, const Shape& shape,
                              const TensorOptions& options = {});
GRADUS_API Tensor from_vector(const std::vector<bool>& values, const Shape& shape, const TensorOptions& options = {});
namespace detail {
GRADUS_API Tensor adopt_blob(void* data, const Shape& shape, DType dtype, Owner* owner);
[[noreturn]] GRADUS_API void refuse_null_owner();
}  // namespace detail

/// A tensor on foreign memory, row-major and aligned for its type. `owner` is any object whose life keeps that memory
/// alive (a shared_ptr, a moved-in container): it is held for as long as any tensor uses the memory. Error for a null
/// one.
template <std::move_constructible O>
Tensor from_blob(void* data, const Shape& shape, DType dtype, O owner) {
  if constexpr (requires { owner == nullptr; }) {
    if (owner == nullptr) detail::refuse_null_owner();
  }
  struct Held final : detail::Owner {
    explicit Held(O&& o) : object(std::move(o)) {}
    O object;
  };
  return detail::adopt_blob(data, shape, dtype, new Held(std::move(owner)));
}

/// Uninitialised memory.
GRADUS_API Tensor empty(const Shape& shape, const TensorOptions& options = {});
GRADUS_API Tensor zeros(const Shape& shape, const TensorOptions& options = {});
GRADUS_API Tensor ones(const Shape& shape, const TensorOptions& options = {});
/// `value` everywhere; Float32 (Bool for a bool) unless a dtype is asked for.
GRADUS_API Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {});
GRADUS_API Tensor zeros_like(const Tensor& like, const TensorOptions& options = {});
GRADUS_API Tensor ones_like(const Tensor& like, const TensorOptions& options = {});
GRADUS_API Tensor full_like(const Tensor& like, Scalar value, const TensorOptions& options = {});
GRADUS_API Tensor empty_like(const Tensor& like, const TensorOptions& options = {});
/// start, start + step, … below (for negative steps: above) end.
GRADUS_API Tensor arange(Scalar end, const TensorOptions& options = {});
GRADUS_API Tensor arange(Scalar start, Scalar end, Scalar step = 1, const TensorOptions& options = {});
/// The n×m identity (m defaults to n).
GRADUS_API Tensor eye(std::int64_t n, std::optional<std::int64_t> m = {}, const TensorOptions& options = {});

}  // namespace gradus
