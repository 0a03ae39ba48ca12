#pragma once
// How ops refuse: check(condition, "op", "what is wrong: ", shape, ...) throws Error "op: what is wrong: [2, 3]".
#include <gradus/error.h>
#include <gradus/shape.h>
#include <gradus/tensor.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace gradus::detail {

/// "[2, 3]", or "'W' [2, 3]" of a tensor with a name.
std::string describe(const Tensor& tensor);
std::string number_text(double number);

/// One part of an error's text. It becomes text where a check failed only, and then in one place for all types.
class Part {
 public:
  Part(const char* text) : kind_(Kind::Text), text_(text) {}
  Part(const std::string& text) : kind_(Kind::String), string_(&text) {}
  Part(const Shape& shape) : kind_(Kind::Shape), shape_(&shape) {}
  Part(DType dtype) : kind_(Kind::Text), text_(gradus::name(dtype)) {}
  Part(const Tensor& tensor) : kind_(Kind::Tensor), tensor_(&tensor) {}
  template <std::floating_point T>
  Part(T number) : kind_(Kind::Floating), floating_(number) {}
  template <std::signed_integral T>
  Part(T number) : kind_(Kind::Signed), signed_(number) {}
  template <std::unsigned_integral T>
  Part(T number) : kind_(Kind::Unsigned), unsigned_(number) {}
  void append_to(std::string& text) const;

 private:
  enum class Kind : std::uint8_t { Text, String, Shape, Tensor, Floating, Signed, Unsigned } kind_;
  union {
    const char* text_;
    const std::string* string_;
    const Shape* shape_;
    const Tensor* tensor_;
    double floating_;
    std::int64_t signed_;
    std::uint64_t unsigned_;
  };
};

[[noreturn]] void fail_with(const char* op, std::initializer_list<Part> parts);

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const char* op, const Parts&... parts) {
  fail_with(op, {Part(parts)...});
}

template <class... Parts>
void check(bool condition, const char* op, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(op, parts...);
}

/// Error unless the tensor is defined; `what` names the argument.
inline void check_defined(const Tensor& tensor, const char* op, const char* what) {
  if (!tensor.defined()) [[unlikely]]
    fail(op, what, " is an undefined tensor");
}
inline void check_floating(const Tensor& x, const char* op) {
  if (!is_floating(x.dtype())) [[unlikely]]
    fail(op, "needs Float32 or Float64, got ", x.dtype(), " ", x, "; convert with to(Float32)");
}

/// A dim in [0, rank) from one in [-rank, rank). A 0-d tensor has the dims -1 and 0 of a 1-d one.
std::int64_t wrap_dim(std::int64_t dim, std::int64_t rank, const char* op);

}  // namespace gradus::detail

namespace gradus {
// Inside the library the helpers of detail are used throughout.
using detail::check;
using detail::check_defined;
using detail::check_floating;
using detail::wrap_dim;
}  // namespace gradus
