#include <gradus/elementwise.h>
#include <gradus/layout.h>
#include <gradus/norm.h>
#include <gradus/reduce.h>

#include <array>

#include "internal.h"

namespace gradus {

using detail::packed;
using detail::pointer_or_null;

namespace {

/// x̂ and 1/√(var + eps), with their own history: for gradients of gradients. Beside a mean far greater than the
/// deviation its rounding shows: it is taken away as well.
struct Normalized {
  Tensor x_hat, rstd;
};
Normalized normalize(const Tensor& x, double eps) {
  const Tensor near = x - mean(x, {-1}, true), centered = near - mean(near, {-1}, true);
  const Tensor rstd = rsqrt(mean(square(centered), {-1}, true) + eps);
  return {centered * rstd, rstd};
}

/// By differentiable ops. γ may be undefined, for 1.
std::array<Tensor, 3> composed_gradient(const Tensor& g, const Tensor& x, const Tensor& gamma, double eps) {
  const auto [x_hat, rstd] = normalize(x, eps);
  const Tensor h = gamma.defined() ? g * gamma : g;
  const Shape params{x.size(-1)};
  return {rstd * (h - mean(h, {-1}, true) - x_hat * mean(h * x_hat, {-1}, true)), sum_to(g * x_hat, params),
          sum_to(g, params)};
}

/// By the kernel, which reads G and x once for all three.
std::array<Tensor, 3> kernel_gradient(const Tensor& g, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                                      const Tensor& rstd, bool params) {
  const Tensor upstream = packed(g), input = packed(x), scale = gamma.defined() ? packed(gamma) : gamma;
  const std::int64_t n = x.size(-1);
  const Tensor dx = detail::make(x.shape(), x.dtype()), dgamma = detail::make({n}, x.dtype()),
               dbeta = detail::make({n}, x.dtype());
  kernels::layer_norm_backward(x.dtype(), rstd.numel(), n, detail::pointer(upstream), detail::pointer(input),
                               pointer_or_null(scale), detail::pointer(mean), detail::pointer(rstd),
                               detail::mutable_pointer(dx), params ? detail::mutable_pointer(dgamma) : nullptr,
                               params ? detail::mutable_pointer(dbeta) : nullptr);
  return {dx, dgamma, dbeta};
}

}  // namespace

// y = x̂·γ + β, x̂ = (x - mean)·rstd :
//   dx = rstd·(γG - mean(γG) - x̂·mean(γG∘x̂)),  dγ = Σ G∘x̂,  dβ = Σ G
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_defined(x, "layer_norm", "the tensor");
  check_floating(x, "layer_norm");
  if (const Tensor& like = weight.defined() ? weight : bias; like.defined() && like.dim() > 1)
    return layer_norm(x, like.shape(), weight, bias, eps);
  check(x.dim() >= 1, "layer_norm", "needs a last dim to normalise, got ", x);
  check(eps >= 0, "layer_norm", "eps must not be negative, got ", eps);
  const std::int64_t n = x.size(-1), rows = n > 0 ? x.numel() / n : 0;
  for (const Tensor& t : {weight, bias}) {
    if (!t.defined()) continue;
    check(t.dim() == 1 && t.size(0) == n, "layer_norm", "weight and bias must be [", n, "] for ", x, ", got ", t);
    check(t.dtype() == x.dtype(), "layer_norm", "dtypes differ: x is ", x.dtype(), ", weight or bias ", t.dtype());
  }
  const Tensor source = packed(x), gamma = weight.defined() ? packed(weight) : weight,
               beta = bias.defined() ? packed(bias) : bias;
  Tensor y = detail::make(x.shape(), x.dtype()), mean = detail::make({rows, 2}, x.dtype()),
         rstd = detail::make({rows}, x.dtype());
  kernels::layer_norm(x.dtype(), rows, n, detail::pointer(source), pointer_or_null(gamma), pointer_or_null(beta), eps,
                      detail::mutable_pointer(y), detail::mutable_pointer(mean), detail::mutable_pointer(rstd));

  // Without a weight the formula sees an undefined γ, which stands for 1.
  const bool params = weight.defined() || bias.defined();
  return record_together(
      "layer_norm", y, std::array{&x, &weight, &bias}, saving(x, weight, mean, rstd),
      [eps, params](const Tensor& g, const Tensor& X, const Tensor& W, const Tensor& mu, const Tensor& rs) {
        if (grad_enabled()) return composed_gradient(g, X, W, eps);
        return kernel_gradient(g, X, W, mu, rs, params);
      });
}

// Several dims are one, seen row-major.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_defined(x, "layer_norm", "the tensor");
  const int dims = normalized_shape.size(), before = x.shape().size() - dims;
  check(dims > 0 && before >= 0 && Shape(x.shape().begin() + before, x.shape().end()) == normalized_shape, "layer_norm",
        "the normalized shape ", normalized_shape, " is not what ", x, " ends with");
  for (const Tensor& t : {weight, bias})
    check(!t.defined() || t.shape() == normalized_shape, "layer_norm", "weight and bias must be ", normalized_shape,
          " for ", x, ", got ", t.defined() ? t.shape() : Shape());
  if (dims == 1) return layer_norm(x, weight, bias, eps);
  const std::int64_t n = normalized_shape.numel();
  const auto flat = [n](const Tensor& t) { return t.defined() ? reshape(t, {n}) : t; };
  return reshape(layer_norm(reshape(x, {n > 0 ? x.numel() / n : 0, n}), flat(weight), flat(bias), eps), x.shape());
}

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, double eps) {
  return layer_norm(x, normalized_shape, {}, {}, eps);
}

}  // namespace gradus
