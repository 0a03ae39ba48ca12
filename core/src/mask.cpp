#include <gradus/elementwise.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include "internal.h"

namespace gradus {

namespace {

/// c ? a : b over the shape in which all three meet; a and b of one dtype. No history.
Tensor choose(const Tensor& c, const Tensor& a, const Tensor& b, const Shape& shape) {
  Tensor y = detail::make(shape, a.dtype());
  kernels::select(a.dtype(), shape, static_cast<const bool*>(detail::pointer(c)), detail::broadcast_strides(c, shape),
                  detail::pointer(a), detail::broadcast_strides(a, shape), detail::pointer(b),
                  detail::broadcast_strides(b, shape), detail::mutable_pointer(y), y.strides());
  return y;
}

void check_mask(const Tensor& mask, const char* op) {
  check_defined(mask, op, "the mask");
  check(mask.dtype() == Bool, op, "the mask must be Bool, got ", mask.dtype(), " ", mask, "; compare it (mask != 0)");
}

}  // namespace

// y = mask ? value : x :  dx = mask ? 0 : G
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  check_defined(x, "masked_fill", "the tensor");
  check_mask(mask, "masked_fill");
  return masked_fill(x, mask, detail::number_like(value, x, "masked_fill"));
}

// and dvalue = Σ(mask ? G : 0)
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  check_defined(x, "masked_fill", "the tensor");
  check_mask(mask, "masked_fill");
  check_defined(value, "masked_fill", "the value");
  check(value.dim() == 0, "masked_fill", "the value must have no dims, got ", value,
        "; where(mask, value, x) takes any");
  check(is_floating(x.dtype()) || !is_floating(value.dtype()), "masked_fill", "a value of ", value.dtype(),
        " does not fit a tensor of ", x.dtype());
  const Shape shape = detail::broadcast_shapes(x.shape(), mask.shape(), "masked_fill");
  const Tensor number = to(value, x.dtype());
  return record("masked_fill", choose(mask, number, x, shape),
                wrt(x, saving(mask),
                    [](const Tensor& g, const Tensor& M, const Shape& s) { return sum_to(masked_fill(g, M, 0), s); }),
                wrt(number, saving(mask), [](const Tensor& g, const Tensor& M) { return sum(where(M, g, 0)); }));
}

// y = c ? a : b :  da = c ? G : 0,  db = c ? 0 : G
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_defined(a, "where", "the first choice");
  check_defined(b, "where", "the second choice");
  check_mask(condition, "where");
  if (a.dtype() != b.dtype()) {
    const DType dtype = promote(a.dtype(), b.dtype());
    return where(condition, to(a, dtype), to(b, dtype));
  }
  const Shape shape =
      detail::broadcast_shapes(condition.shape(), detail::broadcast_shapes(a.shape(), b.shape(), "where"), "where");
  return record("where", choose(condition, a, b, shape),
                wrt(a, saving(condition),
                    [](const Tensor& g, const Tensor& C, const Shape& s) { return sum_to(where(C, g, 0), s); }),
                wrt(b, saving(condition),
                    [](const Tensor& g, const Tensor& C, const Shape& s) { return sum_to(where(C, 0, g), s); }));
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  check_defined(a, "where", "the first choice");
  const Tensor x = is_floating(a.dtype()) || !b.is_floating() ? a : to(a, Float32);
  return where(condition, x, full({}, b, {.dtype = x.dtype()}));
}

Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  check_defined(b, "where", "the second choice");
  const Tensor x = is_floating(b.dtype()) || !a.is_floating() ? b : to(b, Float32);
  return where(condition, full({}, a, {.dtype = x.dtype()}), x);
}

namespace {

/// True where column - row > diagonal (above it), for the last two dims.
Tensor above(const Tensor& x, std::int64_t diagonal, const char* op) {
  check_defined(x, op, "the tensor");
  check(x.dim() >= 2, op, "needs at least two dims, got ", x);
  const NoGradGuard guard;
  const Tensor rows = arange(x.size(-2)).unsqueeze(1), columns = arange(x.size(-1));
  return columns - rows > diagonal;
}

}  // namespace

// y = x on and below the diagonal, else 0 :  dx = tril(G)
Tensor tril(const Tensor& x, std::int64_t diagonal) { return masked_fill(x, above(x, diagonal, "tril"), 0); }

// y = x on and above the diagonal, else 0 :  dx = triu(G)
Tensor triu(const Tensor& x, std::int64_t diagonal) {
  return masked_fill(x, logical_not(above(x, diagonal - 1, "triu")), 0);
}

}  // namespace gradus
