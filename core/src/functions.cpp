// Functions of one tensor, and clamp.
#include <gradus/mask.h>
#include <gradus/reduce.h>

#include <limits>
#include <numbers>

#include "operands.h"

namespace gradus {

using detail::apply;
using detail::as_float;
using detail::beside;
using kernels::Binary;
using kernels::Unary;

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
  return record("clamp", apply(Binary::Minimum, apply(Binary::Maximum, a, lo, "clamp"), hi, "clamp"),
                wrt(a, saving(a, lo, hi),
                    [](const Tensor& g, const Tensor& A, const Tensor& L, const Tensor& H, const Shape& s) {
                      return sum_to(where(logical_and(A >= L, A <= H), g, 0), s);
                    }),
                wrt(lo, saving(a, lo, hi),
                    [](const Tensor& g, const Tensor& A, const Tensor& L, const Tensor& H, const Shape& s) {
                      return sum_to(where(logical_and(A < L, L <= H), g, 0), s);
                    }),
                wrt(hi, saving(a, lo, hi),
                    [](const Tensor& g, const Tensor& A, const Tensor& L, const Tensor& H, const Shape& s) {
                      return sum_to(where(logical_or(A > H, H < L), g, 0), s);
                    }));
}

}  // namespace gradus
