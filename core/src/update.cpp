#include <gradus/autograd.h>
#include <gradus/reduce.h>
#include <gradus/update.h>

#include <cmath>
#include <limits>

#include "internal.h"

namespace gradus {

namespace {

void check_update(const Tensor& param, const Tensor& grad, const char* op) {
  check_defined(param, op, "the parameter");
  check_defined(grad, op, "the gradient");
  check_floating(param, op);
  check(param.is_contiguous(), op, "the parameter must be row-major: ", param);
  check(grad.shape() == param.shape() && grad.dtype() == param.dtype(), op, "the gradient ", grad, " ", grad.dtype(),
        " does not fit the parameter ", param, " ", param.dtype());
}

void check_state(const Tensor& state, const Tensor& param, const char* op) {
  check(state.defined() && state.shape() == param.shape() && state.dtype() == param.dtype() && state.is_contiguous(),
        op, "the state ", state, " does not fit the parameter ", param);
}

}  // namespace

void sgd_update(const Tensor& param, const Tensor& grad, Tensor& momentum_buffer, const SgdUpdate& u) {
  check_update(param, grad, "sgd_update");
  const Tensor g = detail::packed(grad);
  const bool first = u.momentum != 0 && !momentum_buffer.defined();
  if (first) momentum_buffer = detail::make(param.shape(), param.dtype());
  if (u.momentum != 0) check_state(momentum_buffer, param, "sgd_update");
  const kernels::SgdStep step{.lr = u.lr,
                              .momentum = u.momentum,
                              .dampening = u.dampening,
                              .weight_decay = u.weight_decay,
                              .nesterov = u.nesterov,
                              .maximize = u.maximize,
                              .first = first};
  kernels::sgd(param.dtype(), param.numel(), step, detail::mutable_pointer(param), detail::pointer(g),
               u.momentum != 0 ? detail::mutable_pointer(momentum_buffer) : nullptr);
  detail::bump_version(param);
}

void adam_update(const Tensor& param, const Tensor& grad, const Tensor& mean, const Tensor& square,
                 const Tensor& max_square, const AdamUpdate& u) {
  check_update(param, grad, "adam_update");
  check(u.step >= 1, "adam_update", "steps are counted from 1, got ", u.step);
  check_state(mean, param, "adam_update");
  check_state(square, param, "adam_update");
  if (max_square.defined()) check_state(max_square, param, "adam_update");
  const Tensor g = detail::packed(grad);
  const auto t = static_cast<double>(u.step);
  const kernels::AdamStep step{.lr = u.lr,
                               .beta1 = u.beta1,
                               .beta2 = u.beta2,
                               .eps = u.eps,
                               .weight_decay = u.weight_decay,
                               .correction1 = 1 - std::pow(u.beta1, t),
                               .correction2 = 1 - std::pow(u.beta2, t),
                               .decoupled = u.decoupled_weight_decay,
                               .maximize = u.maximize};
  kernels::adam(param.dtype(), param.numel(), step, detail::mutable_pointer(param), detail::pointer(g),
                detail::mutable_pointer(mean), detail::mutable_pointer(square),
                max_square.defined() ? detail::mutable_pointer(max_square) : nullptr);
  detail::bump_version(param);
}

double total_norm(const std::vector<Tensor>& tensors, double p) {
  const NoGradGuard guard;
  const bool largest = p == std::numeric_limits<double>::infinity();
  check(largest || p > 0, "total_norm", "the order of the norm must be positive, got ", p);
  double total = 0;
  for (const Tensor& tensor : tensors) {
    check_defined(tensor, "total_norm", "one of the tensors");
    if (tensor.numel() == 0) continue;
    // In double throughout, so that squares of large floats do not overflow.
    const Tensor x = tensor.to(Float64);
    if (largest) {
      const double biggest = amax(x.abs()).item();
      total = std::isnan(biggest) || std::isnan(total) ? std::numeric_limits<double>::quiet_NaN()
                                                       : std::max(total, biggest);
    } else {
      total += sum(p == 2 ? x.square() : x.abs().pow(p)).item();
    }
  }
  return largest ? total : p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
}

void scale_(const Tensor& x, double factor) {
  check_defined(x, "scale_", "the tensor");
  check_floating(x, "scale_");
  const auto run = kernels::table().unary(kernels::Unary::MulScalar, x.dtype());
  kernels::unary(run, x.dtype(), x.dtype(), x.shape(), detail::pointer(x), x.strides(), detail::mutable_pointer(x),
                 x.strides(), factor);
  detail::bump_version(x);
}

}  // namespace gradus
