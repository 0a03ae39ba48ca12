#include <gradus/optim/clip.h>
#include <gradus/update.h>

#include <cmath>
#include <unordered_set>

#include "check.h"

namespace gradus::optim {

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, const ClipOptions& options) {
  constexpr const char* op = "clip_grad_norm_";
  check(max_norm >= 0, op, "max_norm must not be negative, is ", max_norm);
  check(options.norm_type > 0, op, "norm_type must be above 0, is ", options.norm_type);
  std::vector<Tensor> grads;
  grads.reserve(parameters.size());
  std::unordered_set<const void*> seen;
  for (const Tensor& parameter : parameters) {
    check_defined(parameter, op, "a parameter");
    if (!seen.insert(&parameter.impl()).second) continue;
    if (Tensor grad = parameter.grad(); grad.defined()) grads.push_back(std::move(grad));
  }
  if (grads.empty()) return 0;

  const double norm = total_norm(grads, options.norm_type);
  check(!options.error_if_nonfinite || std::isfinite(norm), op, "the norm of the gradients is ", norm,
        ", and error_if_nonfinite is set; nothing was scaled");
  const double factor = max_norm / (norm + 1e-6);
  if (!(factor >= 1))  // so that NaN is not hidden
    for (const Tensor& grad : grads) scale_(grad, factor);
  return norm;
}

}  // namespace gradus::optim
