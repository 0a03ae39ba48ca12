#pragma once
#include <gradus/tensor.h>

#include <vector>

namespace gradus::optim {

struct ClipOptions {
  double norm_type = 2;             ///< p of the p-norm, infinity for the largest element
  bool error_if_nonfinite = false;  ///< an Error, before any gradient is changed, where the norm is NaN or infinite
};

/// Scales all gradients, in place, by max_norm/(norm + 1e-6) where that is below 1, and returns their norm before,
/// taken over all of them as one vector: 0 where there are none. A parameter listed twice counts once. A norm that is
/// not finite makes the gradients NaN or 0, as in PyTorch, unless error_if_nonfinite. Error for a negative or NaN
/// max_norm and unless norm_type > 0. (Pascanu et al. 2013; torch.nn.utils.clip_grad_norm_)
GRADUS_API double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                                  const ClipOptions& options = {});

}  // namespace gradus::optim
