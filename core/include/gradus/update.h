#pragma once
// The arithmetic of the optimizers: one fused pass over a parameter and its moments, in place and without history.
#include <gradus/tensor.h>

namespace gradus {

struct SgdUpdate {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize;
};
/// g ← ±grad + weight_decay·p;  b ← momentum·b + (1 - dampening)·g (b = g where `momentum_buffer` is undefined, which
/// is then made);  p ← p - lr·(nesterov ? g + momentum·b : momentum ? b : g). (torch.optim.SGD)
GRADUS_API void sgd_update(const Tensor& param, const Tensor& grad, Tensor& momentum_buffer, const SgdUpdate& update);

struct AdamUpdate {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled_weight_decay;  ///< AdamW: p shrinks by lr·weight_decay; else weight_decay·p joins the gradient
  bool maximize;
  std::int64_t step;  ///< t, counted from 1
};
/// m ← β₁m + (1-β₁)g;  v ← β₂v + (1-β₂)g²;  p ← p - lr·(m/(1-β₁ᵗ))/(√(v/(1-β₂ᵗ)) + eps); with `max_square` (amsgrad)
/// its running maximum of v stands in for v. (Kingma & Ba 2015; Loshchilov & Hutter 2019; torch.optim.Adam, AdamW)
GRADUS_API void adam_update(const Tensor& param, const Tensor& grad, const Tensor& mean, const Tensor& square,
                            const Tensor& max_square, const AdamUpdate& update);
/// √Σ|x|² over all elements of all tensors (p-norm for other p, the largest |x| for p = ∞), accumulated in double.
GRADUS_API double total_norm(const std::vector<Tensor>& tensors, double p = 2);
/// x ← x·factor, in place and without history.
GRADUS_API void scale_(const Tensor& x, double factor);

}  // namespace gradus
