#pragma once
#include <gradus/tensor.h>

namespace gradus {

/// y = (x - mean)/√(var + eps)·weight + bias along the last dims, var biased, in two passes:
/// dx = (γG - mean(γG) - x̂·mean(γG∘x̂))/√(var + eps), dγ = Σ G∘x̂, dβ = Σ G.
/// weight and bias are undefined, or of the shape that x ends with: their dims are the ones normalised together (the
/// last one without either). (Ba et al. 2016; torch.nn.functional.layer_norm)
GRADUS_API Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
/// The same with the dims named, as in PyTorch; x must end with normalized_shape, and weight and bias have it.
GRADUS_API Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, const Tensor& bias,
                             double eps = 1e-5);
GRADUS_API Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, double eps = 1e-5);

}  // namespace gradus
