#pragma once
// How ops refuse: check(condition, "op", "what is wrong: ", shape, ...) throws Error "op: what is wrong: [2, 3]".
#include <gradus/error.h>
#include <gradus/shape.h>
#include <gradus/tensor.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace gradus::detail {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, const char* part) { text += part; }
inline void append(std::string& text, const std::string& part) { text += part; }
inline void append(std::string& text, const Shape& shape) { text += shape.str(); }
inline void append(std::string& text, DType dtype) { text += gradus::name(dtype); }
std::string number_text(double number);
template <class T>
requires std::is_arithmetic_v<T>
void append(std::string& text, T number) {
  if constexpr (std::is_floating_point_v<T>) {
    text += number_text(number);
  } else {
    text += std::to_string(number);
  }
}

/// "[2, 3]", or "'W' [2, 3]" of a tensor with a name.
std::string describe(const Tensor& tensor);
inline void append(std::string& text, const Tensor& tensor) { text += describe(tensor); }

template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const char* op, const Parts&... parts) {
  std::string text = op;
  text += ": ";
  (append(text, parts), ...);
  throw Error(text);
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
