#pragma once
#include <gradus/tensor.h>

namespace gradus {

/// y = (x - mean)/√(var + eps)·weight + bias along the last dim, var biased, in two passes:
/// dx = (γG - mean(γG) - x̂·mean(γG∘x̂))/√(var + eps), dγ = Σ G∘x̂, dβ = Σ G.
/// weight and bias are [x.size(-1)] or undefined. (Ba et al. 2016; torch.nn.functional.layer_norm)
GRADUS_API Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

}  // namespace gradus
