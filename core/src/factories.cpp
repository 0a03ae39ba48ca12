#include <gradus/factories.h>

#include <cmath>
#include <cstring>

#include "internal.h"

namespace gradus {

namespace {

Tensor finish(Tensor x, const TensorOptions& options) {
  if (options.requires_grad) x.requires_grad_();
  return x;
}

DType or_default(const TensorOptions& options, DType fallback) { return options.dtype.value_or(fallback); }

void write_number(void* to, DType dtype, std::int64_t i, Scalar value) {
  switch (dtype) {
    case DType::Float32:
      static_cast<float*>(to)[i] = static_cast<float>(value.to_double());
      break;
    case DType::Float64:
      static_cast<double*>(to)[i] = value.to_double();
      break;
    case DType::Int64:
      static_cast<std::int64_t*>(to)[i] = value.to_int();
      break;
    case DType::Bool:
      static_cast<bool*>(to)[i] = value.to_double() != 0;
      break;
  }
}

template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape, const TensorOptions& options) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(), "from_vector", values.size(),
        " values do not fill the shape ", shape, " (", shape.numel(), " elements)");
  Tensor x = detail::make(shape, dtype_of<T>::value);
  T* p = x.data<T>();
  for (std::size_t i = 0; i < values.size(); ++i) p[i] = values[i];
  const NoGradGuard guard;
  return finish(x.to(or_default(options, x.dtype())), options);
}

}  // namespace

void NestedList::shape_into(Shape& shape) const {
  if (!is_list_) return;
  shape.push_back(static_cast<std::int64_t>(items_.size()));
  if (!items_.empty()) items_.front().shape_into(shape);
}

void NestedList::collect(const Shape& shape, int depth, std::vector<Scalar>& numbers) const {
  const bool list_wanted = depth < shape.size();
  check(is_list_ == list_wanted && (!is_list_ || static_cast<std::int64_t>(items_.size()) == shape[depth]), "tensor",
        "ragged nested list: at depth ", depth, " the first item has the shape ", shape,
        " and another one differs; every list of one level must have the same length");
  if (!is_list_) return numbers.push_back(number_);
  for (const NestedList& item : items_) item.collect(shape, depth + 1, numbers);
}

Tensor tensor(const NestedList& data, const TensorOptions& options) {
  Shape shape;
  data.shape_into(shape);
  std::vector<Scalar> numbers;
  data.collect(shape, 0, numbers);
  bool floating = numbers.empty(), all_bool = true;
  for (const Scalar& number : numbers) {
    floating |= number.is_floating();
    all_bool &= number.is_bool();
  }
  const DType dtype = or_default(options, floating ? Float32 : all_bool ? Bool : Int64);
  Tensor x = detail::make(shape, dtype);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    write_number(detail::mutable_pointer(x), dtype, static_cast<std::int64_t>(i), numbers[i]);
  return finish(x, options);
}

Tensor from_vector(const std::vector<float>& values, const Shape& shape, const TensorOptions& options) {
  return from_values(values, shape, options);
}
Tensor from_vector(const std::vector<double>& values, const Shape& shape, const TensorOptions& options) {
  return from_values(values, shape, options);
}
Tensor from_vector(const std::vector<std::int64_t>& values, const Shape& shape, const TensorOptions& options) {
  return from_values(values, shape, options);
}
Tensor from_vector(const std::vector<bool>& values, const Shape& shape, const TensorOptions& options) {
  return from_values(values, shape, options);
}

namespace detail {

void refuse_null_owner() {
  fail("from_blob", "the owner is null: nothing would keep the memory alive; to copy, use from_vector");
}

Tensor adopt_blob(void* data, const Shape& shape, DType dtype, Owner* owner) {
  // The block of an empty tensor serves as the header of the foreign memory; from here on the storage deletes the
  // owner.
  Tensor x = [&] {
    try {
      return make({0}, dtype);
    } catch (...) {
      delete owner;
      throw;
    }
  }();
  auto& impl = x.impl();
  impl.storage->owner = owner;
  impl.storage->pooled = false;
  for (const std::int64_t size : shape) check(size >= 0, "from_blob", "negative size in ", shape);
  check(data != nullptr || shape.numel() == 0, "from_blob", "the memory is null for ", shape);
  check(reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(size_of(dtype)) == 0, "from_blob",
        "the memory is not aligned for ", dtype);
  impl.storage->data = data;
  impl.shape = shape;
  impl.strides = row_major_strides(shape);
  impl.numel = shape.numel();
  return x;
}

}  // namespace detail

Tensor empty(const Shape& shape, const TensorOptions& options) {
  return finish(detail::make(shape, or_default(options, Float32)), options);
}

Tensor zeros(const Shape& shape, const TensorOptions& options) {
  Tensor x = detail::make(shape, or_default(options, Float32));
  std::memset(detail::mutable_pointer(x), 0, static_cast<std::size_t>(x.numel() * size_of(x.dtype())));
  return finish(x, options);
}

Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1, options); }

Tensor full(const Shape& shape, Scalar value, const TensorOptions& options) {
  const DType dtype = or_default(options, value.is_bool() ? Bool : Float32);
  Tensor x = detail::make(shape, dtype);
  if (x.numel() == 0) return finish(x, options);
  if (shape.empty() || x.numel() == 1) {
    write_number(detail::mutable_pointer(x), dtype, 0, value);
  } else {
    detail::fill(x, value);
  }
  return finish(x, options);
}

namespace {

TensorOptions like_options(const Tensor& like, const TensorOptions& options, const char* op) {
  check_defined(like, op, "the tensor");
  return {.dtype = options.dtype.value_or(like.dtype()), .requires_grad = options.requires_grad};
}

}  // namespace

Tensor zeros_like(const Tensor& like, const TensorOptions& options) {
  return zeros(like.shape(), like_options(like, options, "zeros_like"));
}
Tensor ones_like(const Tensor& like, const TensorOptions& options) {
  return ones(like.shape(), like_options(like, options, "ones_like"));
}
Tensor full_like(const Tensor& like, Scalar value, const TensorOptions& options) {
  return full(like.shape(), value, like_options(like, options, "full_like"));
}
Tensor empty_like(const Tensor& like, const TensorOptions& options) {
  return empty(like.shape(), like_options(like, options, "empty_like"));
}

namespace {

/// Differences of 64-bit integers may need 64 bits without a sign.
std::uint64_t unsigned_of(Scalar integer) { return static_cast<std::uint64_t>(integer.to_int()); }

/// How many of start, start + step, … lie before end.
std::int64_t whole_steps(std::int64_t start, std::int64_t end, std::int64_t step) {
  if (step > 0 ? start >= end : start <= end) return 0;
  const std::uint64_t from = unsigned_of(start), to = unsigned_of(end), by = unsigned_of(step);
  return static_cast<std::int64_t>((step > 0 ? (to - from - 1) / by : (from - to - 1) / (0 - by)) + 1);
}

}  // namespace

Tensor arange(Scalar end, const TensorOptions& options) { return arange(0, end, 1, options); }

Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options) {
  check(step.to_double() != 0, "arange", "the step must not be 0");
  const double span = end.to_double() - start.to_double();
  check(std::isfinite(span) && std::isfinite(step.to_double()), "arange", "start, end and step must be finite, got ",
        start.to_double(), ", ", end.to_double(), ", ", step.to_double());
  const bool floating = start.is_floating() || end.is_floating() || step.is_floating();
  const DType dtype = or_default(options, floating ? Float32 : Int64);
  const double steps = std::max(0.0, std::ceil(span / step.to_double()));
  check(steps < 0x1p62, "arange", "too many elements: ", steps);
  const std::int64_t count =
      floating ? static_cast<std::int64_t>(steps) : whole_steps(start.to_int(), end.to_int(), step.to_int());
  Tensor x = detail::make({count}, dtype);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const Scalar value =
        floating
            ? Scalar(start.to_double() + static_cast<double>(i) * step.to_double())
            : Scalar(static_cast<std::int64_t>(unsigned_of(start) + static_cast<std::uint64_t>(i) * unsigned_of(step)));
    write_number(detail::mutable_pointer(x), dtype, i, value);
  }
  return finish(x, options);
}

Tensor eye(std::int64_t n, std::optional<std::int64_t> m, const TensorOptions& options) {
  check(n >= 0 && m.value_or(n) >= 0, "eye", "sizes must not be negative, got ", n, " and ", m.value_or(n));
  Tensor x = zeros({n, m.value_or(n)}, {.dtype = or_default(options, Float32)});
  for (std::int64_t i = 0; i < std::min(n, m.value_or(n)); ++i)
    write_number(detail::mutable_pointer(x), x.dtype(), i * x.size(1) + i, 1);
  return finish(x, options);
}

}  // namespace gradus
