// Two tensors, and a tensor and a number.
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include "operands.h"

namespace gradus {

using detail::apply;
using detail::as_float;
using detail::beside;
using detail::meeting;
using kernels::Binary;
using kernels::Unary;

// ---- two operands

// y = a + b :  da = G,  db = G
Tensor add(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "add")) return add(to(a, *dtype), to(b, *dtype));
  return record("add", apply(Binary::Add, a, b, "add"),
                wrt(a, [](const Tensor& g, const Shape& s) { return sum_to(g, s); }),
                wrt(b, [](const Tensor& g, const Shape& s) { return sum_to(g, s); }));
}

// y = a - b :  da = G,  db = -G
Tensor sub(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "sub")) return sub(to(a, *dtype), to(b, *dtype));
  return record("sub", apply(Binary::Sub, a, b, "sub"),
                wrt(a, [](const Tensor& g, const Shape& s) { return sum_to(g, s); }),
                wrt(b, [](const Tensor& g, const Shape& s) { return sum_to(neg(g), s); }));
}

// y = a·b :  da = G·b,  db = G·a
Tensor mul(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "mul")) return mul(to(a, *dtype), to(b, *dtype));
  return record(
      "mul", apply(Binary::Mul, a, b, "mul"),
      wrt(a, saving(b), [](const Tensor& g, const Tensor& B, const Shape& s) { return sum_to(mul(g, B), s); }),
      wrt(b, saving(a), [](const Tensor& g, const Tensor& A, const Shape& s) { return sum_to(mul(g, A), s); }));
}

// y = a/b :  da = G/b,  db = -G·a/b²
Tensor div(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "div")) return div(to(a, *dtype), to(b, *dtype));
  if (!is_floating(a.dtype())) return div(to(a, Float32), to(b, Float32));
  return record(
      "div", apply(Binary::Div, a, b, "div"),
      wrt(a, saving(b), [](const Tensor& g, const Tensor& B, const Shape& s) { return sum_to(div(g, B), s); }),
      wrt(b, saving(a, b), [](const Tensor& g, const Tensor& A, const Tensor& B, const Shape& s) {
        return sum_to(neg(div(div(mul(g, A), B), B)), s);
      }));
}

// y = a^b :  da = G·b·a^(b-1) (0 where b = 0),  db = G·y·log a (0 where a = 0 and b ≥ 0)
Tensor pow(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "pow")) return pow(to(a, *dtype), to(b, *dtype));
  return record("pow", apply(Binary::Pow, a, b, "pow"),
                wrt(a, saving(a, b),
                    [](const Tensor& g, const Tensor& A, const Tensor& B, const Shape& s) {
                      return sum_to(where(B == 0, 0, g * B * pow(A, B - 1)), s);
                    }),
                wrt(b, saving(a, b, output),
                    [](const Tensor& g, const Tensor& A, const Tensor& B, const Tensor& Y, const Shape& s) {
                      const Tensor flat = logical_and(A == 0, B >= 0);
                      return sum_to(where(flat, 0, g * Y * log(where(flat, 1, A))), s);
                    }));
}

namespace {

// The winner of maximum or minimum takes the gradient; equals take half each. `loses` is where this operand is beaten.
Tensor winner_gradient(const Tensor& g, const Tensor& a, const Tensor& b, const Tensor& loses, const Shape& shape) {
  return sum_to(masked_fill(where(a == b, g * 0.5, g), loses, 0), shape);
}

}  // namespace

// y = max(a, b) :  da = G where a > b, G/2 where a = b
Tensor maximum(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "maximum")) return maximum(to(a, *dtype), to(b, *dtype));
  return record("maximum", apply(Binary::Maximum, a, b, "maximum"),
                wrt(a, saving(a, b),
                    [](const Tensor& g, const Tensor& A, const Tensor& B, const Shape& s) {
                      return winner_gradient(g, A, B, A < B, s);
                    }),
                wrt(b, saving(a, b), [](const Tensor& g, const Tensor& A, const Tensor& B, const Shape& s) {
                  return winner_gradient(g, A, B, B < A, s);
                }));
}

// y = min(a, b) :  da = G where a < b, G/2 where a = b
Tensor minimum(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "minimum")) return minimum(to(a, *dtype), to(b, *dtype));
  return record("minimum", apply(Binary::Minimum, a, b, "minimum"),
                wrt(a, saving(a, b),
                    [](const Tensor& g, const Tensor& A, const Tensor& B, const Shape& s) {
                      return winner_gradient(g, A, B, A > B, s);
                    }),
                wrt(b, saving(a, b), [](const Tensor& g, const Tensor& A, const Tensor& B, const Shape& s) {
                  return winner_gradient(g, A, B, B > A, s);
                }));
}

// ---- a tensor and a number

namespace {

/// Kernels take numbers as doubles. A whole number too large for one meets an integer tensor as a tensor of its own.
bool needs_tensor(const Tensor& x, Scalar number) {
  constexpr std::int64_t limit = std::int64_t{1} << 53;
  return x.dtype() == Int64 && (number.to_int() > limit || number.to_int() < -limit);
}
Tensor as_tensor(Scalar number, const Tensor& like) { return full({}, number, {.dtype = like.dtype()}); }

}  // namespace

// y = x + s :  dx = G
Tensor add(const Tensor& a, Scalar b) {
  const Tensor x = beside(a, b, "add");
  if (needs_tensor(x, b)) return add(x, as_tensor(b, x));
  return record("add", apply(Unary::AddScalar, x, "add", b.to_double()), wrt(x, [](const Tensor& g) { return g; }));
}

Tensor sub(const Tensor& a, Scalar b) {
  const Tensor x = beside(a, b, "sub");
  if (needs_tensor(x, b)) return sub(x, as_tensor(b, x));
  return record("sub", apply(Unary::AddScalar, x, "sub", -b.to_double()), wrt(x, [](const Tensor& g) { return g; }));
}

// y = s - x :  dx = -G
Tensor sub(Scalar a, const Tensor& b) {
  const Tensor x = beside(b, a, "sub");
  if (needs_tensor(x, a)) return sub(as_tensor(a, x), x);
  return record("sub", apply(Unary::RSubScalar, x, "sub", a.to_double()),
                wrt(x, [](const Tensor& g) { return neg(g); }));
}

// y = s·x :  dx = s·G
Tensor mul(const Tensor& a, Scalar b) {
  const Tensor x = beside(a, b, "mul");
  if (needs_tensor(x, b)) return mul(x, as_tensor(b, x));
  return record("mul", apply(Unary::MulScalar, x, "mul", b.to_double()),
                wrt(x, [b](const Tensor& g) { return mul(g, b); }));
}

// y = x/s :  dx = G/s
Tensor div(const Tensor& a, Scalar b) {
  const Tensor x = as_float(a, "div");
  return record("div", apply(Unary::DivScalar, x, "div", b.to_double()),
                wrt(x, [b](const Tensor& g) { return div(g, b); }));
}

// y = s/x :  dx = -G·y/x
Tensor div(Scalar a, const Tensor& b) {
  const Tensor x = as_float(b, "div");
  return record("div", apply(Unary::RDivScalar, x, "div", a.to_double()),
                wrt(x, saving(x, output),
                    [](const Tensor& g, const Tensor& X, const Tensor& Y) { return neg(div(mul(g, Y), X)); }));
}

// y = x^s :  dx = G·s·x^(s-1) (0 for s = 0)
Tensor pow(const Tensor& a, Scalar b) {
  const Tensor x = beside(a, b, "pow");
  check(is_floating(x.dtype()) || b.to_double() >= 0, "pow", "integers have no negative powers, got exponent ",
        b.to_double(), "; convert with to(Float32)");
  return record("pow", apply(Unary::PowScalar, x, "pow", b.to_double()),
                wrt(x, saving(x), [s = b.to_double()](const Tensor& g, const Tensor& X) {
                  if (s == 0) return zeros_like(g);
                  return g * (pow(X, s - 1) * s);
                }));
}

Tensor pow(Scalar a, const Tensor& b) {
  const Tensor x = beside(b, a, "pow");
  return pow(as_tensor(a, x), x);
}

}  // namespace gradus
