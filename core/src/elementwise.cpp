#include <gradus/elementwise.h>
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "internal.h"

namespace gradus {

using detail::apply;
using kernels::Binary;
using kernels::Compare;
using kernels::Unary;

namespace {

/// The dtype in which two operands meet, where they have to be converted.
std::optional<DType> meeting(const Tensor& a, const Tensor& b, const char* op) {
  check_defined(a, op, "the first operand");
  check_defined(b, op, "the second operand");
  if (a.dtype() == b.dtype()) return {};
  return promote(a.dtype(), b.dtype());
}

/// x in the dtype that it has beside a C++ number: floats stay, a floating number makes integers Float32.
Tensor beside(const Tensor& x, Scalar number, const char* op) {
  check_defined(x, op, "the tensor");
  if (is_floating(x.dtype())) return x;
  if (number.is_floating()) return to(x, Float32);
  return x.dtype() == Bool && !number.is_bool() ? to(x, Int64) : x;
}

/// Kernels take numbers as doubles. A whole number too large for one meets an integer tensor as a tensor of its own.
bool needs_tensor(const Tensor& x, Scalar number) {
  constexpr std::int64_t limit = std::int64_t{1} << 53;
  return x.dtype() == Int64 && (number.to_int() > limit || number.to_int() < -limit);
}
Tensor as_tensor(Scalar number, const Tensor& like) { return full({}, number, {.dtype = like.dtype()}); }

/// Integers become Float32: for ops whose results are not whole numbers.
Tensor as_float(const Tensor& x, const char* op) {
  check_defined(x, op, "the tensor");
  return is_floating(x.dtype()) ? x : to(x, Float32);
}

}  // namespace

// ---- two operands

// y = a + b :  da = G,  db = G
Tensor add(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "add")) return add(to(a, *dtype), to(b, *dtype));
  return record("add", apply(Binary::Add, a, b, "add"),
                wrt(a, [s = a.shape()](const Tensor& g) { return sum_to(g, s); }),
                wrt(b, [s = b.shape()](const Tensor& g) { return sum_to(g, s); }));
}

// y = a - b :  da = G,  db = -G
Tensor sub(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "sub")) return sub(to(a, *dtype), to(b, *dtype));
  return record("sub", apply(Binary::Sub, a, b, "sub"),
                wrt(a, [s = a.shape()](const Tensor& g) { return sum_to(g, s); }),
                wrt(b, [s = b.shape()](const Tensor& g) { return sum_to(neg(g), s); }));
}

// y = a·b :  da = G·b,  db = G·a
Tensor mul(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "mul")) return mul(to(a, *dtype), to(b, *dtype));
  return record("mul", apply(Binary::Mul, a, b, "mul"),
                wrt(a, saving(b), [s = a.shape()](const Tensor& g, const Tensor& B) { return sum_to(mul(g, B), s); }),
                wrt(b, saving(a), [s = b.shape()](const Tensor& g, const Tensor& A) { return sum_to(mul(g, A), s); }));
}

// y = a/b :  da = G/b,  db = -G·a/b²
Tensor div(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "div")) return div(to(a, *dtype), to(b, *dtype));
  if (!is_floating(a.dtype())) return div(to(a, Float32), to(b, Float32));
  return record("div", apply(Binary::Div, a, b, "div"),
                wrt(a, saving(b), [s = a.shape()](const Tensor& g, const Tensor& B) { return sum_to(div(g, B), s); }),
                wrt(b, saving(a, b), [s = b.shape()](const Tensor& g, const Tensor& A, const Tensor& B) {
                  return sum_to(neg(div(div(mul(g, A), B), B)), s);
                }));
}

// y = a^b :  da = G·b·a^(b-1) (0 where b = 0),  db = G·y·log a (0 where a = 0 and b ≥ 0)
Tensor pow(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "pow")) return pow(to(a, *dtype), to(b, *dtype));
  return record(
      "pow", apply(Binary::Pow, a, b, "pow"),
      wrt(a, saving(a, b),
          [s = a.shape()](const Tensor& g, const Tensor& A, const Tensor& B) {
            return sum_to(where(B == 0, 0, g * B * pow(A, B - 1)), s);
          }),
      wrt(b, saving(a, b, output), [s = b.shape()](const Tensor& g, const Tensor& A, const Tensor& B, const Tensor& Y) {
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
                    [s = a.shape()](const Tensor& g, const Tensor& A, const Tensor& B) {
                      return winner_gradient(g, A, B, A < B, s);
                    }),
                wrt(b, saving(a, b), [s = b.shape()](const Tensor& g, const Tensor& A, const Tensor& B) {
                  return winner_gradient(g, A, B, B < A, s);
                }));
}

// y = min(a, b) :  da = G where a < b, G/2 where a = b
Tensor minimum(const Tensor& a, const Tensor& b) {
  if (const auto dtype = meeting(a, b, "minimum")) return minimum(to(a, *dtype), to(b, *dtype));
  return record("minimum", apply(Binary::Minimum, a, b, "minimum"),
                wrt(a, saving(a, b),
                    [s = a.shape()](const Tensor& g, const Tensor& A, const Tensor& B) {
                      return winner_gradient(g, A, B, A > B, s);
                    }),
                wrt(b, saving(a, b), [s = b.shape()](const Tensor& g, const Tensor& A, const Tensor& B) {
                  return winner_gradient(g, A, B, B > A, s);
                }));
}

// ---- a tensor and a number

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

// ---- one operand

// y = -x :  dx = -G
Tensor neg(const Tensor& x) {
  check_defined(x, "neg", "the tensor");
  return record("neg", apply(Unary::Neg, x, "neg"), wrt(x, [](const Tensor& g) { return neg(g); }));
}

// y = |x| :  dx = G·sign(x)
Tensor abs(const Tensor& x) {
  check_defined(x, "abs", "the tensor");
  return record("abs", apply(Unary::Abs, x, "abs"),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return g * sign(X); }));
}

// y = sign(x) :  dx = 0
Tensor sign(const Tensor& x) {
  check_defined(x, "sign", "the tensor");
  return record("sign", apply(Unary::Sign, x, "sign"), wrt(x, [](const Tensor& g) { return zeros_like(g); }));
}

// y = eˣ :  dx = G·y
Tensor exp(const Tensor& a) {
  const Tensor x = as_float(a, "exp");
  return record("exp", apply(Unary::Exp, x, "exp"),
                wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) { return g * Y; }));
}

// y = log x :  dx = G/x
Tensor log(const Tensor& a) {
  const Tensor x = as_float(a, "log");
  return record("log", apply(Unary::Log, x, "log"),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return g / X; }));
}

// y = √x :  dx = G/(2y)
Tensor sqrt(const Tensor& a) {
  const Tensor x = as_float(a, "sqrt");
  return record("sqrt", apply(Unary::Sqrt, x, "sqrt"),
                wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) { return g / (Y * 2); }));
}

// y = 1/√x :  dx = -G·y³/2
Tensor rsqrt(const Tensor& a) {
  const Tensor x = as_float(a, "rsqrt");
  return record("rsqrt", apply(Unary::Rsqrt, x, "rsqrt"),
                wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) { return g * (Y * Y * Y) * -0.5; }));
}

// y = x² :  dx = 2·G·x
Tensor square(const Tensor& x) {
  check_defined(x, "square", "the tensor");
  return record("square", apply(Unary::Square, x, "square"),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return g * (X * 2); }));
}

// y = 1/x :  dx = -G·y²
Tensor reciprocal(const Tensor& a) {
  const Tensor x = as_float(a, "reciprocal");
  return record("reciprocal", apply(Unary::Reciprocal, x, "reciprocal"),
                wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) { return neg(g * square(Y)); }));
}

// y = sin x :  dx = G·cos x
Tensor sin(const Tensor& a) {
  const Tensor x = as_float(a, "sin");
  return record("sin", apply(Unary::Sin, x, "sin"),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return g * cos(X); }));
}

// y = cos x :  dx = -G·sin x
Tensor cos(const Tensor& a) {
  const Tensor x = as_float(a, "cos");
  return record("cos", apply(Unary::Cos, x, "cos"),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return neg(g * sin(X)); }));
}

// The activations below have their gradient in one pass (Binary::*Backward) where no history of it is wanted.

// y = tanh x :  dx = G·(1 - y²)
Tensor tanh(const Tensor& a) {
  const Tensor x = as_float(a, "tanh");
  return record("tanh", apply(Unary::Tanh, x, "tanh"), wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) {
                  return grad_enabled() ? g * (1 - square(Y)) : apply(Binary::TanhBackward, g, Y, "tanh");
                }));
}

// y = 1/(1 + e⁻ˣ) :  dx = G·y·(1 - y)
Tensor sigmoid(const Tensor& a) {
  const Tensor x = as_float(a, "sigmoid");
  return record("sigmoid", apply(Unary::Sigmoid, x, "sigmoid"),
                wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) {
                  return grad_enabled() ? g * Y * (1 - Y) : apply(Binary::SigmoidBackward, g, Y, "sigmoid");
                }));
}

// y = max(x, 0) :  dx = G where y > 0, else 0
Tensor relu(const Tensor& x) {
  check_defined(x, "relu", "the tensor");
  return record("relu", apply(Unary::Relu, x, "relu"), wrt(x, saving(output), [](const Tensor& g, const Tensor& Y) {
                  return grad_enabled() ? where(Y > 0, g, 0) : apply(Binary::ReluBackward, g, Y, "relu");
                }));
}

namespace {

// s(x) = Φ(x) + x·φ(x), the slope of gelu :  dx = G·φ(x)·(2 - x²),  φ(x) = e^(-x²/2)/√(2π)
Tensor gelu_slope(const Tensor& x) {
  return record("gelu_slope", apply(Binary::GeluBackward, ones_like(x), x, "gelu"),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) {
                  const Tensor density = exp(square(X) * -0.5) * (0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
                  return g * density * (2 - square(X));
                }));
}

// u = k·(x + c·x³), t = tanh u :  the slope of x·(1 + t)/2 is (1 + t)/2 + x/2·(1 - t²)·k·(1 + 3c·x²)
Tensor gelu_tanh_slope(const Tensor& x) {
  constexpr double k = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, c = 0.044715;
  const Tensor x2 = square(x);
  const Tensor t = tanh(x * (x2 * c + 1) * k);
  return (t + 1) * 0.5 + x * 0.5 * (1 - square(t)) * (x2 * (3 * c) + 1) * k;
}

}  // namespace

// y = x·Φ(x) :  dx = G·s(x)
Tensor gelu(const Tensor& a, GeluApproximation approximate) {
  const Tensor x = as_float(a, "gelu");
  if (approximate == GeluApproximation::Tanh) {
    return record("gelu_tanh", apply(Unary::GeluTanh, x, "gelu"),
                  wrt(x, saving(x), [](const Tensor& g, const Tensor& X) {
                    return grad_enabled() ? g * gelu_tanh_slope(X) : apply(Binary::GeluTanhBackward, g, X, "gelu");
                  }));
  }
  return record("gelu", apply(Unary::Gelu, x, "gelu"), wrt(x, saving(x), [](const Tensor& g, const Tensor& X) {
                  return grad_enabled() ? g * gelu_slope(X) : apply(Binary::GeluBackward, g, X, "gelu");
                }));
}

// y = x·σ(x) :  dx = G·σ·(1 + x·(1 - σ))
Tensor silu(const Tensor& a) {
  const Tensor x = as_float(a, "silu");
  return record("silu", apply(Unary::Silu, x, "silu"), wrt(x, saving(x), [](const Tensor& g, const Tensor& X) {
                  if (!grad_enabled()) return apply(Binary::SiluBackward, g, X, "silu");
                  const Tensor s = sigmoid(X);
                  return g * s * (X * (1 - s) + 1);
                }));
}

// y = log(1 + eˣ) :  dx = G·σ(x)
Tensor softplus(const Tensor& a) {
  const Tensor x = as_float(a, "softplus");
  return record("softplus", apply(Unary::Softplus, x, "softplus"),
                wrt(x, saving(x), [](const Tensor& g, const Tensor& X) { return g * sigmoid(X); }));
}

// y = min(max(x, lo), hi) :  dx = G where lo ≤ x ≤ hi, else 0
Tensor clamp(const Tensor& a, std::optional<Scalar> min, std::optional<Scalar> max) {
  check_defined(a, "clamp", "the tensor");
  check(min || max, "clamp", "needs a minimum or a maximum");
  const Tensor x = beside(a, min && (min->is_floating() || !max) ? *min : *max, "clamp");
  const double infinity = std::numeric_limits<double>::infinity();
  const double lo = min ? min->to_double() : -infinity, hi = max ? max->to_double() : infinity;
  if (lo != lo || hi != hi) {  // NaN is no bound that the kernel knows
    const auto bound = [&](const std::optional<Scalar>& b) {
      return b ? full({}, *b, {.dtype = x.dtype()}) : Tensor();
    };
    return clamp(x, bound(min), bound(max));
  }
  return record("clamp", apply(Unary::Clamp, x, "clamp", lo, hi),
                wrt(x, saving(x),
                    [lo, hi](const Tensor& g, const Tensor& X) { return where(logical_and(X >= lo, X <= hi), g, 0); }));
}

namespace {

/// A bound of clamp in x's dtype; `none`, beyond every number, where there is no bound.
Tensor bound_or(const Tensor& bound, DType dtype, Scalar none) {
  return bound.defined() ? to(bound, dtype) : full({}, none, {.dtype = dtype});
}

}  // namespace

// y = min(max(x, lo), hi) :  dx = G where lo ≤ x ≤ hi,  dlo = G where x < lo ≤ hi,  dhi = G where x > hi or hi < lo
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) {
  check_defined(x, "clamp", "the tensor");
  check(min.defined() || max.defined(), "clamp", "needs a minimum or a maximum");
  DType dtype = x.dtype();
  for (const Tensor& bound : {min, max})
    if (bound.defined()) dtype = promote(dtype, bound.dtype());
  check(dtype != Bool, "clamp", "has no meaning for ", dtype, " ", x, "; convert it with to()");
  constexpr double infinity = std::numeric_limits<double>::infinity();
  using Whole = std::numeric_limits<std::int64_t>;
  const Tensor a = to(x, dtype), lo = bound_or(min, dtype, is_floating(dtype) ? Scalar(-infinity) : Whole::min()),
               hi = bound_or(max, dtype, is_floating(dtype) ? Scalar(infinity) : Whole::max());
  return record(
      "clamp", apply(Binary::Minimum, apply(Binary::Maximum, a, lo, "clamp"), hi, "clamp"),
      wrt(a, saving(a, lo, hi),
          [s = a.shape()](const Tensor& g, const Tensor& A, const Tensor& L, const Tensor& H) {
            return sum_to(where(logical_and(A >= L, A <= H), g, 0), s);
          }),
      wrt(lo, saving(a, lo, hi),
          [s = lo.shape()](const Tensor& g, const Tensor& A, const Tensor& L, const Tensor& H) {
            return sum_to(where(logical_and(A < L, L <= H), g, 0), s);
          }),
      wrt(hi, saving(a, lo, hi), [s = hi.shape()](const Tensor& g, const Tensor& A, const Tensor& L, const Tensor& H) {
        return sum_to(where(logical_or(A > H, H < L), g, 0), s);
      }));
}

// ---- comparisons

namespace {

Tensor compare(Compare op, const Tensor& a, const Tensor& b, const char* name) {
  if (const auto dtype = meeting(a, b, name)) {
    const NoGradGuard guard;
    return compare(op, to(a, *dtype), to(b, *dtype), name);
  }
  const Shape shape = detail::broadcast_shapes(a.shape(), b.shape(), name);
  Tensor y = detail::make(shape, Bool);
  kernels::binary(kernels::table().compare(op, a.dtype()), a.dtype(), Bool, shape, detail::pointer(a),
                  detail::broadcast_strides(a, shape), detail::pointer(b), detail::broadcast_strides(b, shape),
                  detail::mutable_pointer(y), y.strides());
  return y;
}

Tensor compare(Compare op, const Tensor& a, Scalar b, const char* name) {
  check_defined(a, name, "the first operand");
  // An integer tensor against a fraction is compared in Float64, so that the fraction is not lost.
  const DType dtype = is_floating(a.dtype()) ? a.dtype() : b.is_floating() ? Float64 : Int64;
  const NoGradGuard guard;
  return compare(op, to(a, dtype), full({}, b, {.dtype = dtype}), name);
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare(Compare::Eq, a, b, "eq"); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare(Compare::Ne, a, b, "ne"); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare(Compare::Lt, a, b, "lt"); }
Tensor le(const Tensor& a, const Tensor& b) { return compare(Compare::Le, a, b, "le"); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare(Compare::Gt, a, b, "gt"); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare(Compare::Ge, a, b, "ge"); }
Tensor eq(const Tensor& a, Scalar b) { return compare(Compare::Eq, a, b, "eq"); }
Tensor ne(const Tensor& a, Scalar b) { return compare(Compare::Ne, a, b, "ne"); }
Tensor lt(const Tensor& a, Scalar b) { return compare(Compare::Lt, a, b, "lt"); }
Tensor le(const Tensor& a, Scalar b) { return compare(Compare::Le, a, b, "le"); }
Tensor gt(const Tensor& a, Scalar b) { return compare(Compare::Gt, a, b, "gt"); }
Tensor ge(const Tensor& a, Scalar b) { return compare(Compare::Ge, a, b, "ge"); }

namespace {

void check_bool(const Tensor& x, const char* op) {
  check_defined(x, op, "the tensor");
  check(x.dtype() == Bool, op, "needs Bool tensors, got ", x.dtype(), " ", x, "; compare it first (x != 0)");
}

}  // namespace

Tensor logical_and(const Tensor& a, const Tensor& b) {
  check_bool(a, "logical_and");
  check_bool(b, "logical_and");
  return apply(Binary::Minimum, a, b, "logical_and");
}

Tensor logical_or(const Tensor& a, const Tensor& b) {
  check_bool(a, "logical_or");
  check_bool(b, "logical_or");
  return apply(Binary::Maximum, a, b, "logical_or");
}

Tensor logical_not(const Tensor& a) {
  check_bool(a, "logical_not");
  return a == 0;
}

// y = x in another dtype :  dx = G in x's
Tensor to(const Tensor& x, DType dtype) {
  check_defined(x, "to", "the tensor");
  if (x.dtype() == dtype) return x;
  Tensor y = detail::make(x.shape(), dtype);
  detail::write(y, x);
  if (!is_floating(dtype)) return y;
  return record("to", y, wrt(x, [from = x.dtype()](const Tensor& g) { return to(g, from); }));
}

}  // namespace gradus
